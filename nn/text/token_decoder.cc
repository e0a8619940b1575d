// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/text/token_decoder.h"

#include <charconv>
#include <optional>
#include <utility>

#include "dtensor/nn/text/normalizer.h"
#include "dtensor/nn/text/unicode.h"

namespace dtensor::nn::text {
namespace {

// A step that changes whole tokens. Its function gets a token and the number of
// tokens before it.
class Change : public DecodeStep {
 public:
  using Function = std::function<std::string(std::string, size_t before)>;
  explicit Change(Function f) : change_(std::move(f)) {}
  std::unique_ptr<DecodeStep> fresh() const override {
    return std::make_unique<Change>(change_);
  }
  void push(Chunk chunk, const Sink& next) override {
    token_ += chunk.text;
    if (chunk.ends)
      next({change_(std::exchange(token_, {}), before_++), true, true});
  }

 private:
  Function change_;
  std::string token_;
  size_t before_ = 0;
};

// Joins all tokens into one: Fuse or, if their characters stand for bytes,
// ByteLevel.
class Join : public DecodeStep {
 public:
  explicit Join(bool bytes) : bytes_(bytes) {}
  std::unique_ptr<DecodeStep> fresh() const override {
    return std::make_unique<Join>(bytes_);
  }
  void push(Chunk chunk, const Sink& next) override {
    if (!bytes_) return give(std::move(chunk.text), false, next);
    token_ += chunk.text;
    if (!chunk.ends) return;
    waiting_ += characters_as_bytes(std::exchange(token_, {}));
    // A character that is cut off waits for its other bytes.
    const size_t sure = decided_bytes(waiting_);
    std::string text = valid_utf8(std::string_view(waiting_).substr(0, sure));
    waiting_.erase(0, sure);
    give(std::move(text), false, next);
  }
  void finish(const Sink& next) override {
    give(valid_utf8(waiting_), true, next);
  }

 private:
  void give(std::string text, bool ends, const Sink& next) {
    next({std::move(text), std::exchange(begins_, false), ends});
  }
  bool bytes_;
  bool begins_ = true;
  std::string token_, waiting_;
};

// Tokens such as <0xE2> are bytes. Consecutive ones are text if they are valid
// UTF-8 together; otherwise each becomes U+FFFD. Therefore they wait for a
// token that is not a byte, or for the end of the text.
class ByteFallback : public DecodeStep {
 public:
  std::unique_ptr<DecodeStep> fresh() const override {
    return std::make_unique<ByteFallback>();
  }
  void push(Chunk chunk, const Sink& next) override {
    token_ += chunk.text;
    if (!chunk.ends) return;
    std::string token = std::exchange(token_, {});
    if (const auto byte = byte_of(token)) {
      bytes_ += *byte;
      return;
    }
    finish(next);
    next({std::move(token), true, true});
  }
  void finish(const Sink& next) override {
    const std::string bytes = std::exchange(bytes_, {});
    if (bytes.empty()) return;
    if (valid_utf8(bytes) == bytes) return next({bytes, true, true});
    for (size_t i = 0; i < bytes.size(); i++) next({"\uFFFD", true, true});
  }

 private:
  static std::optional<char> byte_of(std::string_view token) {
    uint8_t byte = 0;
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>')
      return std::nullopt;
    const auto [end, error] =
        std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
    if (error != std::errc() || end != token.data() + 5) return std::nullopt;
    return static_cast<char>(byte);
  }
  std::string token_, bytes_;
};

// Removes the character `sign` at most `front` times from the beginning of a
// token, and at most `back` times from its end.
class Strip : public DecodeStep {
 public:
  Strip(std::string sign, int64_t front, int64_t back)
      : sign_(std::move(sign)), front_(front), back_(back), left_(front) {}
  std::unique_ptr<DecodeStep> fresh() const override {
    return std::make_unique<Strip>(sign_, front_, back_);
  }
  void push(Chunk chunk, const Sink& next) override {
    if (chunk.begins) left_ = front_;
    std::string& text = chunk.text;
    size_t begin = 0;
    for (; left_ > 0 && text.compare(begin, sign_.size(), sign_) == 0; left_--)
      begin += sign_.size();
    text.erase(0, begin);
    if (!text.empty()) left_ = 0;
    // Signs at the end of a chunk wait, since the token may go on.
    text.insert(0, std::exchange(waiting_, {}));
    for (int64_t i = 0; i < back_ && text.ends_with(sign_); i++) {
      text.resize(text.size() - sign_.size());
      waiting_ += sign_;
    }
    if (chunk.ends) waiting_.clear();
    next(std::move(chunk));
  }

 private:
  std::string sign_;
  int64_t front_, back_, left_;
  std::string waiting_;
};

// Replaces the suffix that ends words by a space, or by nothing in the last
// token.
class BpeDecoder : public DecodeStep {
 public:
  explicit BpeDecoder(Regex suffix) : suffix_(std::move(suffix)) {}
  std::unique_ptr<DecodeStep> fresh() const override {
    return std::make_unique<BpeDecoder>(suffix_);
  }
  void push(Chunk chunk, const Sink& next) override {
    if (chunk.begins && last_)
      next({suffix_.replace(*std::exchange(last_, {}), " "), true, true});
    last_ = last_.value_or("") + chunk.text;
  }
  void finish(const Sink& next) override {
    if (last_) next({suffix_.replace(*last_, ""), true, true});
  }

 private:
  Regex suffix_;
  std::optional<std::string> last_;
};

// Cleans up English text by Hugging Face's rules, in their order: removes the
// spaces at punctuation and before endings such as "n't", and turns " do not"
// into " don't".
std::string cleaned(std::string text) {
  const auto known = [](const char* sign) {
    return Regex::literal(sign, "decoder");
  };
  static const std::pair<Regex, const char*> kRules[] = {
      {known(" ."), "."},    {known(" ?"), "?"},
      {known(" !"), "!"},    {known(" ,"), ","},
      {known(" ' "), "'"},   {known(" n't"), "n't"},
      {known(" 'm"), "'m"},  {known(" do not"), " don't"},
      {known(" 's"), "'s"},  {known(" 've"), "'ve"},
      {known(" 're"), "'re"}};
  for (const auto& [from, to] : kRules)
    if (from.matches(text)) text = from.replace(text, to);
  return text;
}

std::unique_ptr<DecodeStep> change(Change::Function f) {
  return std::make_unique<Change>(std::move(f));
}

std::unique_ptr<DecodeStep> word_piece(const std::string& prefix, bool clean) {
  return change([=](std::string token, size_t before) {
    if (before > 0 && token.starts_with(prefix)) {
      token.erase(0, prefix.size());
    } else if (before > 0) {
      token.insert(0, " ");
    }
    return clean ? cleaned(std::move(token)) : token;
  });
}

std::unique_ptr<DecodeStep> metaspace(char32_t sign, bool prepended) {
  return change([=](const std::string& token, size_t before) {
    return mapped(token, [=](char32_t c, std::string& result) {
      if (c != sign) {
        append(result, c);
      } else if (before > 0 || !prepended) {
        result += ' ';
      }
    });
  });
}

}  // namespace

TokenDecoder::TokenDecoder(const Field& f) : place_(f.place()) {
  if (!f.is_null()) {
    add(f);
    return;
  }
  steps_.push_back(change([](std::string token, size_t before) {
    return before > 0 ? " " + token : token;
  }));
}

void TokenDecoder::add(const Field& f) {
  f.check_steps(steps_.size());
  const std::string type = f.type();
  if (type == "Sequence") {
    f.only({"decoders"});
    for (const Field& step : f.at("decoders").list()) add(step);
  } else if (type == "ByteLevel") {
    f.only({"add_prefix_space", "trim_offsets", "use_regex"});
    steps_.push_back(std::make_unique<Join>(true));
  } else if (type == "Fuse") {
    f.only({});
    steps_.push_back(std::make_unique<Join>(false));
  } else if (type == "ByteFallback") {
    f.only({});
    steps_.push_back(std::make_unique<ByteFallback>());
  } else if (type == "Metaspace") {
    f.only({"replacement", "prepend_scheme", "add_prefix_space", "split",
            "str_rep"});
    const bool prefix = f.at("add_prefix_space").flag_or(true);
    const std::string scheme =
        f.at("prepend_scheme").text_or(prefix ? "always" : "never");
    steps_.push_back(
        metaspace(f.at("replacement").character(), scheme != "never"));
  } else if (type == "WordPiece") {
    f.only({"prefix", "cleanup"});
    steps_.push_back(word_piece(f.at("prefix").text_or("##"),
                                f.at("cleanup").flag_or(true)));
  } else if (type == "Strip") {
    f.only({"content", "start", "stop"});
    std::string sign;
    append(sign, f.at("content").character());
    steps_.push_back(std::make_unique<Strip>(sign, f.at("start").number(),
                                             f.at("stop").number()));
  } else if (type == "Replace") {
    f.only({"pattern", "content"});
    steps_.push_back(
        change([pattern = f.at("pattern").pattern(),
                by = f.at("content").text()](const std::string& token, size_t) {
          return pattern.replace(token, by);
        }));
  } else if (type == "BPEDecoder") {
    f.only({"suffix"});
    const Field suffix = f.at("suffix");
    steps_.push_back(std::make_unique<BpeDecoder>(
        Regex::literal(suffix.text_or("</w>"), suffix.place())));
  } else {
    f.at("type").refuse(
        "ByteLevel, Metaspace, WordPiece, ByteFallback, Fuse, Strip, Replace, "
        "BPEDecoder and Sequence");
  }
}

TokenDecoder TokenDecoder::fresh() const {
  TokenDecoder copy(place_);
  for (const auto& step : steps_) copy.steps_.push_back(step->fresh());
  return copy;
}

void TokenDecoder::run(size_t i, Chunk chunk, std::string& text) {
  // Step 0 gets the token itself, which is input and does not count.
  if (i > 0) effort_.count(chunk.text.size(), place_);
  if (i == steps_.size()) {
    text += chunk.text;
    return;
  }
  const auto next = [&](Chunk c) { run(i + 1, std::move(c), text); };
  // A Sink stores a reference in itself, but would allocate memory for a copy
  // of `next`.
  steps_[i]->push(std::move(chunk), std::cref(next));
}

std::string TokenDecoder::push(std::string token) {
  effort_.widen(token.size());
  const Effort::Scope scope(effort_);
  std::string text;
  run(0, {std::move(token), true, true}, text);
  return text;
}

std::string TokenDecoder::finish() {
  const Effort::Scope scope(effort_);
  std::string text;
  for (size_t i = 0; i < steps_.size(); i++)
    steps_[i]->finish([&](Chunk c) { run(i + 1, std::move(c), text); });
  return text;
}

}  // namespace dtensor::nn::text
