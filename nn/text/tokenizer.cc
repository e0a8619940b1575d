// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/text/tokenizer.h"

#include <charconv>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "dtensor/nn/text/added_tokens.h"
#include "dtensor/nn/text/effort.h"
#include "dtensor/nn/text/field.h"
#include "dtensor/nn/text/model.h"
#include "dtensor/nn/text/normalizer.h"
#include "dtensor/nn/text/pre_tokenizer.h"
#include "dtensor/nn/text/token_decoder.h"
#include "dtensor/nn/text/unicode.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {

using namespace text;  // NOLINT: this file is its face
using nlohmann::json;

namespace {

// The ids of pieces that were seen before. The hash of a piece chooses its
// slot. The last piece in a slot replaces the one before it, which bounds the
// memory.
class WordCache {
 public:
  struct Slot {
    std::string piece;
    std::vector<int32_t> ids;
  };
  static constexpr size_t kLongest = 64;  // bytes of a piece

  Slot& slot(std::string_view piece) {
    return slots_[std::hash<std::string_view>()(piece) % slots_.size()];
  }

 private:
  std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << 14);
};

// Lends a cache to each call. Keeps at most kMost caches that calls have given
// back.
class CachePool {
 public:
  std::unique_ptr<WordCache> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<WordCache>();
    auto cache = std::move(free_.back());
    free_.pop_back();
    return cache;
  }
  void give(std::unique_ptr<WordCache> cache) {
    const std::lock_guard lock(mutex_);
    if (free_.size() < kMost) free_.push_back(std::move(cache));
  }

 private:
  static constexpr size_t kMost = 8;
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> free_;
};

// The tokens that the post-processor puts before and after a text.
struct Around {
  std::vector<int64_t> before, after;
};

int64_t id_of(const Field& f) {
  if (!is_id(f.number())) f.refuse("an id from 0 to below 2^22");
  return f.number();
}

void add_template(const Field& f, Around& around) {
  f.only({"single", "pair", "special_tokens"});
  std::vector<int64_t> before, after;
  bool text = false;
  for (const Field& part : f.at("single").list()) {
    part.only({"SpecialToken", "Sequence"});
    const Field special = part.at("SpecialToken");
    if (special.is_null()) {
      if (text || part.at("Sequence").at("id").text() != "A")
        part.refuse("the sequence A once");
      text = true;
      continue;
    }
    const Field ids =
        f.at("special_tokens").at(special.at("id").text()).at("ids");
    for (const Field& id : ids.list()) {
      Effort::write(sizeof(int64_t), f.place());
      (text ? after : before).push_back(id_of(id));
    }
  }
  if (!text) f.at("single").refuse("a template with the sequence A");
  around.before.insert(around.before.begin(), before.begin(), before.end());
  around.after.insert(around.after.end(), after.begin(), after.end());
}

void add_post_processor(const Field& f, Around& around) {
  if (f.is_null()) return;
  const std::string type = f.type();
  if (type == "Sequence") {
    f.only({"processors"});
    for (const Field& step : f.at("processors").list())
      add_post_processor(step, around);
  } else if (type == "TemplateProcessing") {
    add_template(f, around);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    f.only({"sep", "cls", "trim_offsets", "add_prefix_space"});
    const auto id = [&](const char* name) {
      const auto pair = f.at(name).list();
      if (pair.size() != 2) f.at(name).refuse("[token, id]");
      return id_of(pair[1]);
    };
    around.before.insert(around.before.begin(), id("cls"));
    around.after.push_back(id("sep"));
  } else if (type != "ByteLevel") {  // which only changes offsets
    f.at("type").refuse(
        "TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing and "
        "Sequence");
  }
}

AddedToken read_added_token(const Field& f, int64_t id) {
  f.only({"__type", "id", "content", "special", "single_word", "lstrip",
          "rstrip", "normalized"});
  const bool special = f.at("special").flag_or(false);
  return {.id = id,
          .content = f.at("content").text(),
          .special = special,
          .single_word = f.at("single_word").flag_or(false),
          .lstrip = f.at("lstrip").flag_or(false),
          .rstrip = f.at("rstrip").flag_or(false),
          .normalized = f.at("normalized").flag_or(!special)};
}

}  // namespace

struct Tokenizer::Parts {
  // `config` and `map` are null if their files do not exist.
  Parts(const Field& file, const Field& config, const Field& map)
      : normalizer(file.at("normalizer")),
        pre_tokenizer(file.at("pre_tokenizer")),
        model(read_model(file.at("model"))),
        decoder(file.at("decoder")) {
    if (const Field tokens = file.at("added_tokens"); !tokens.is_null())
      for (const Field& f : tokens.list())
        add(read_added_token(f, f.at("id").number()), f);
    if (!config.is_null()) add_tokens_of(config.at("added_tokens_decoder"));
    bos = named("bos_token", config, map);
    eos = named("eos_token", config, map);
    add_post_processor(file.at("post_processor"), around);
    for (const auto& all :
         {std::cref(added_ids), std::cref(model->vocabulary())})
      for (const auto& [token, id] : all.get())
        longest = std::max(longest, token.size());
  }

  // Reads {"ID": {token}, ...}. Skips the tokens, usually most of them, that
  // are among "added_tokens" of tokenizer.json.
  void add_tokens_of(const Field& f) {
    if (f.is_null()) return;
    if (!f.value().is_object()) f.refuse("an object");
    std::map<int64_t, AddedToken> tokens;
    for (const auto& [name, value] : f.value().items()) {
      int64_t id = 0;
      const auto [end, error] =
          std::from_chars(name.data(), name.data() + name.size(), id);
      DT_CHECK(error == std::errc() && end == name.data() + name.size(),
               "tokenizer",
               "{} has the member \"{}\", but this library reads only ids as "
               "names there; use another file",
               f.place(), shortened(name, 200));
      tokens.emplace(id, read_added_token(f.at(name), id));
    }
    for (const auto& [id, token] : tokens)
      if (added_ids.id(token.content) < 0) add(token, f);
  }

  void add(const AddedToken& token, const Field& f) {
    added_ids.add(token.content, token.id, f.place());
    if (token.special) special.insert(token.content);
    if (!token.normalized) {
      finder.add(token, token.content);
    } else {
      Draft draft{token.content, false};
      normalizer(draft);
      normal_finder.add(token, draft.text);
      normalized.emplace(token.id, std::move(draft.text));
    }
  }

  std::optional<int64_t> named(const std::string& name, const Field& config,
                               const Field& map) const {
    for (const Field* file : {&config, &map}) {
      if (file->is_null() || file->at(name).is_null()) continue;
      const Field f = file->at(name);
      const std::string text =
          f.value().is_object() ? f.at("content").text() : f.text();
      const auto found = id(text);
      if (!found) f.refuse("a token of the vocabulary");
      return found;
    }
    return std::nullopt;
  }

  std::optional<int64_t> id(std::string_view token) const {
    int32_t id = added_ids.id(token);
    if (id < 0) id = model->vocabulary().id(token);
    return id < 0 ? std::nullopt : std::optional<int64_t>(id);
  }

  // Null if no token has this id.
  const std::string* token(int64_t id) const {
    const auto normal = normalized.find(id);
    if (normal != normalized.end()) return &normal->second;
    const std::string* token = added_ids.token(id);
    return token ? token : model->vocabulary().token(id);
  }

  int64_t count() const {
    int64_t more = 0;
    for (const auto& [token, id] : added_ids)
      more += model->vocabulary().id(token) < 0;
    return static_cast<int64_t>(model->vocabulary().count()) + more;
  }

  void encode(const Draft& draft, WordCache& cache,
              std::vector<int64_t>& ids) const {
    Pieces pieces;
    if (!draft.text.empty()) pieces.list.push_back({draft.text, draft.first});
    pre_tokenizer(pieces);
    std::vector<int32_t> long_ids;
    for (const Piece& piece : pieces.list) {
      const bool cached = piece.text.size() <= WordCache::kLongest;
      const auto encode = [&](std::vector<int32_t>& found) {
        found.clear();
        if (pre_tokenizer.ends_with_bytes()) {
          model->encode(bytes_as_characters(piece.text), found);
        } else {
          model->encode(piece.text, found);
        }
      };
      if (!cached) {
        encode(long_ids);
        ids.insert(ids.end(), long_ids.begin(), long_ids.end());
        continue;
      }
      WordCache::Slot& slot = cache.slot(piece.text);
      if (slot.piece != piece.text) {
        encode(slot.ids);
        slot.piece = piece.text;
      }
      ids.insert(ids.end(), slot.ids.begin(), slot.ids.end());
    }
  }

  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<Model> model;
  TokenDecoder decoder;
  Vocabulary added_ids;
  std::map<int64_t, std::string> normalized;  // id -> normalized content
  std::set<std::string> special;      // by text, which may have several ids
  TokenFinder finder, normal_finder;  // for raw text; for normalized text
  Around around;
  size_t longest = 0;  // bytes of the longest token
  std::optional<int64_t> bos, eos;
  mutable CachePool caches;
};

Tokenizer Tokenizer::from_pretrained(const std::string& dir) {
  const auto path = [&](const char* name) {
    return (std::filesystem::path(dir) / name).string();
  };
  const auto optional = [&](const char* name) {
    std::error_code ignored;
    return std::filesystem::exists(path(name), ignored) ? read_json(path(name))
                                                        : json();
  };
  const json file = read_json(path("tokenizer.json"));
  Effort effort(std::filesystem::file_size(path("tokenizer.json")));
  const Effort::Scope scope(effort);
  const json config = optional("tokenizer_config.json");
  const json map = optional("special_tokens_map.json");
  const auto field = [&](const json& value, const char* name) {
    return Field(value, path(name) + ": ");
  };
  return Tokenizer(std::make_shared<const Parts>(
      field(file, "tokenizer.json"), field(config, "tokenizer_config.json"),
      field(map, "special_tokens_map.json")));
}

std::vector<int64_t> Tokenizer::encode(std::string_view text,
                                       EncodeOptions options) const {
  Effort effort(text.size());
  const Effort::Scope scope(effort);
  const std::string valid = valid_utf8(text);
  std::vector<int64_t> ids;
  if (options.add_special) ids = parts_->around.before;
  auto cache = parts_->caches.take();
  const auto part = [&](std::string_view all, Range range) {
    return std::string(all.substr(range.begin, range.end - range.begin));
  };
  parts_->finder.split(valid, [&](Range outer, const AddedToken* found) {
    if (found) return ids.push_back(found->id);
    Draft draft{part(valid, outer), outer.begin == 0};
    parts_->normalizer(draft);
    parts_->normal_finder.split(draft.text, [&](Range inner,
                                                const AddedToken* token) {
      if (token) return ids.push_back(token->id);
      parts_->encode({part(draft.text, inner), draft.first && inner.begin == 0},
                     *cache, ids);
    });
  });
  parts_->caches.give(std::move(cache));
  if (options.add_special)
    ids.insert(ids.end(), parts_->around.after.begin(),
               parts_->around.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const int64_t> ids,
                              DecodeOptions options) const {
  TextStream stream(*this, options);
  std::string text;
  for (int64_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

int64_t Tokenizer::vocab_size() const { return parts_->count(); }

size_t Tokenizer::longest_token() const { return parts_->longest; }

const std::string& Tokenizer::token(int64_t id) const {
  const std::string* token = parts_->token(id);
  DT_CHECK(token, "tokenizer",
           "there is no token {}; write the id of one of the {} tokens", id,
           parts_->count());
  return *token;
}

std::optional<int64_t> Tokenizer::id(std::string_view token) const {
  return parts_->id(token);
}

bool Tokenizer::is_special(int64_t id) const {
  return parts_->special.contains(token(id));
}

std::optional<int64_t> Tokenizer::bos() const { return parts_->bos; }

std::optional<int64_t> Tokenizer::eos() const { return parts_->eos; }

struct TextStream::State {
  Tokenizer tokenizer;
  DecodeOptions options;
  TokenDecoder decoder;
};

TextStream::TextStream(Tokenizer t, DecodeOptions options)
    : state_(std::make_unique<State>(t, options, t.parts_->decoder.fresh())) {}
TextStream::TextStream(TextStream&&) noexcept = default;
TextStream& TextStream::operator=(TextStream&&) noexcept = default;
TextStream::~TextStream() = default;

std::string TextStream::push(int64_t id) {
  const Tokenizer::Parts& parts = *state_->tokenizer.parts_;
  const std::string* token = parts.token(id);
  if (!token ||
      (state_->options.skip_special && parts.special.contains(*token)))
    return "";
  return state_->decoder.push(*token);
}

std::string TextStream::finish() { return state_->decoder.finish(); }

}  // namespace dtensor::nn
