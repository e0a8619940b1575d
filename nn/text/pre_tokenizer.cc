// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "dtensor/nn/text/effort.h"
#include "dtensor/nn/text/normalizer.h"
#include "dtensor/nn/text/unicode.h"

namespace dtensor::nn::text {
namespace {

// GPT-2's pattern for words.
constexpr std::string_view kWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kPunctuation = R"([!-/:-@\[-`{-~\p{P}])";
constexpr std::string_view kSpace = R"(\s)";

Regex known(std::string_view pattern) { return {pattern, "pre_tokenizer"}; }

// Replaces each piece's text by change(piece), if that has a value.
template <class Change>
auto each(Change change, const std::string& place) {
  return [change, place](Pieces& pieces) {
    for (Piece& piece : pieces.list) {
      auto text = change(piece);
      if (!text) continue;
      Effort::write(text->size(), place);
      piece.text = pieces.owned.emplace_back(*std::move(text));
    }
  };
}

}  // namespace

PreTokenizer::PreTokenizer(const Field& f) : place_(f.place()) {
  if (!f.is_null()) add(f);
}

void PreTokenizer::operator()(Pieces& pieces) const {
  for (const Step& step : steps_) step(pieces);
}

PreTokenizer::Keep PreTokenizer::keep(const Field& f) {
  const std::string text = f.text_or("Isolated");
  if (text == "Removed") return Keep::kRemoved;
  if (text == "Isolated") return Keep::kIsolated;
  if (text == "MergedWithPrevious") return Keep::kPrevious;
  if (text == "MergedWithNext") return Keep::kNext;
  if (text == "Contiguous") return Keep::kContiguous;
  f.refuse(
      "Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous");
}

void PreTokenizer::add_split(const Regex& regex, Keep keep, bool invert) {
  struct Part {
    Range range;
    bool match;
  };
  const auto split = [=](std::string_view text, std::vector<Part>& parts) {
    parts.clear();
    bool after_match = false;
    const auto part = [&](size_t begin, size_t end, bool match) {
      if (begin == end && !match) return;
      match = match != invert;
      const bool joins =
          !parts.empty() &&
          ((keep == Keep::kContiguous && match == after_match) ||
           (keep == Keep::kPrevious && match && !after_match) ||
           (keep == Keep::kNext && !match && parts.back().match));
      // A match that kNext has joined with the part after it is not joined with
      // a further part.
      if (joins) {
        parts.back() = {{parts.back().range.begin, end}, false};
      } else if (!match || keep != Keep::kRemoved) {
        parts.push_back({{begin, end}, match});
      }
      after_match = match;
    };
    size_t at = 0;
    regex.each(text, [&](Range match) {
      part(at, match.begin, false);
      part(match.begin, match.end, true);
      at = match.end;
    });
    part(at, text.size(), false);
  };
  steps_.push_back([split](Pieces& pieces) {
    std::vector<Piece> result;
    std::vector<Part> parts;
    for (const Piece& piece : pieces.list) {
      split(piece.text, parts);
      for (const auto& [range, match] : parts)
        if (range.begin < range.end)
          result.push_back(
              {piece.text.substr(range.begin, range.end - range.begin),
               piece.first && range.begin == 0});
    }
    pieces.list = std::move(result);
  });
}

void PreTokenizer::add_byte_level(const Field& f) {
  f.only({"add_prefix_space", "trim_offsets", "use_regex"});
  if (f.at("add_prefix_space").flag_or(true))
    steps_.push_back(each(
        [](const Piece& piece) -> std::optional<std::string> {
          if (piece.text.starts_with(' ')) return std::nullopt;
          return " " + std::string(piece.text);
        },
        place_));
  if (f.at("use_regex").flag_or(true))
    add_split(known(kWords), Keep::kIsolated);
  ends_with_bytes_ = true;
}

void PreTokenizer::add_metaspace(const Field& f) {
  f.only({"replacement", "prepend_scheme", "add_prefix_space", "split",
          "str_rep"});
  std::string sign;
  append(sign, f.at("replacement").character());
  const Field scheme = f.at("prepend_scheme");
  const std::string when = scheme.text_or(
      f.at("add_prefix_space").flag_or(true) ? "always" : "never");
  if (when != "always" && when != "first" && when != "never")
    scheme.refuse("always, first and never");
  const Regex space = Regex::literal(" ", place_);
  steps_.push_back(each(
      [=](const Piece& piece) {
        std::string text = space.replace(piece.text, sign);
        const bool wanted =
            when == "always" || (when == "first" && piece.first);
        if (wanted && !text.starts_with(sign)) text.insert(0, sign);
        return std::optional(std::move(text));
      },
      place_));
  if (f.at("split").flag_or(true))
    add_split(Regex::literal(sign, place_), Keep::kNext);
}

void PreTokenizer::add(const Field& f) {
  f.check_steps(steps_.size());
  const std::string type = f.type();
  // If a step follows ByteLevel, that step needs the bytes as characters.
  if (std::exchange(ends_with_bytes_, false))
    steps_.push_back(each(
        [](const Piece& piece) {
          return std::optional(bytes_as_characters(piece.text));
        },
        place_));
  if (type == "Sequence") {
    f.only({"pretokenizers"});
    for (const Field& step : f.at("pretokenizers").list()) add(step);
  } else if (type == "ByteLevel") {
    add_byte_level(f);
  } else if (type == "Metaspace") {
    add_metaspace(f);
  } else if (type == "Split") {
    f.only({"pattern", "behavior", "invert"});
    add_split(f.at("pattern").pattern(), keep(f.at("behavior")),
              f.at("invert").flag_or(false));
  } else if (type == "BertPreTokenizer") {
    f.only({});
    add_split(known(kSpace), Keep::kRemoved);
    add_split(known(kPunctuation), Keep::kIsolated);
  } else if (type == "Whitespace") {
    f.only({});
    add_split(known(fmt::format("[{0}]+|[^{0}\\s]+", kRustWord)),
              Keep::kRemoved, true);
  } else if (type == "WhitespaceSplit") {
    f.only({});
    add_split(known(kSpace), Keep::kRemoved);
  } else if (type == "Punctuation") {
    f.only({"behavior"});
    add_split(known(kPunctuation), keep(f.at("behavior")));
  } else if (type == "Digits") {
    f.only({"individual_digits"});
    const bool each_digit = f.at("individual_digits").flag_or(false);
    add_split(known(R"(\p{N})"),
              each_digit ? Keep::kIsolated : Keep::kContiguous);
  } else {
    f.at("type").refuse(
        "ByteLevel, Split, Metaspace, BertPreTokenizer, Whitespace, "
        "WhitespaceSplit, Punctuation, Digits and Sequence");
  }
}

}  // namespace dtensor::nn::text
