// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/text/normalizer.h"

#include <array>
#include <map>

#include "dtensor/nn/text/charsmap.h"
#include "dtensor/nn/text/effort.h"
#include "dtensor/nn/text/unicode.h"

namespace dtensor::nn::text {
namespace {

// A step that replaces each character by what change() appends, if anything.
template <class Change>
auto each(Change change) {
  return [change](Draft& draft) {
    if (draft.text.empty()) return;
    std::string front;
    size_t at = 0;
    change(next_char(draft.text, at), front);
    draft.first = draft.first && !front.empty();
    draft.text = mapped(draft.text, change);
  };
}

auto without(bool (*dropped)(char32_t)) {
  return each([dropped](char32_t c, std::string& result) {
    if (!dropped(c)) append(result, c);
  });
}

void strip(Draft& draft, bool left, bool right) {
  size_t begin = draft.text.size(), end = 0;
  for (size_t at = 0; at < draft.text.size();) {
    const size_t start = at;
    if (is_white_space(next_char(draft.text, at))) continue;
    begin = std::min(begin, start);
    end = at;
  }
  if (!left) begin = 0;
  if (!right) end = draft.text.size();
  draft.first = draft.first && begin == 0;
  draft.text = begin < end ? draft.text.substr(begin, end - begin) : "";
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void clean(char32_t c, std::string& result) {
  const bool space = is_white_space(c);
  const bool kept = c == '\t' || c == '\n' || c == '\r';
  if (c == 0 || c == 0xFFFD || (!kept && is_other(c))) return;
  append(result, space ? ' ' : c);
}

void apart(char32_t c, std::string& result) {
  if (is_chinese(c)) result += ' ';
  append(result, c);
  if (is_chinese(c)) result += ' ';
}

void lower(Draft& draft) { draft.text = lowercase(draft.text); }

// The characters that stand for bytes: printable bytes stand for themselves,
// and the others are numbered from U+0100 (GPT-2's bytes_to_unicode).
struct ByteTable {
  std::array<std::string, 256> text;
  std::array<int, 0x144> byte;
  ByteTable() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (char32_t b = 0; b < 256; b++) {
      const bool prints =
          (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const char32_t c = prints ? b : next++;
      append(text[b], c);
      byte[c] = static_cast<int>(b);
    }
  }
};

const ByteTable& byte_table() {
  static const ByteTable table;
  return table;
}

}  // namespace

std::string bytes_as_characters(std::string_view bytes) {
  std::string text;
  for (char b : bytes) text += byte_table().text[static_cast<uint8_t>(b)];
  return text;
}

std::string characters_as_bytes(std::string_view text) {
  const auto& byte = byte_table().byte;
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text, at);
    if (c >= byte.size() || byte[c] < 0) return std::string(text);
    bytes += static_cast<char>(byte[c]);
  }
  return bytes;
}

Normalizer::Normalizer(const Field& f) : place_(f.place()) {
  if (!f.is_null()) add(f);
}

void Normalizer::operator()(Draft& draft) const {
  for (const auto& step : steps_) {
    step(draft);
    Effort::write(draft.text.size(), place_);
  }
}

void Normalizer::add(const Field& f) {
  static const std::map<std::string, Form> kForms = {{"NFC", Form::kNfc},
                                                     {"NFD", Form::kNfd},
                                                     {"NFKC", Form::kNfkc},
                                                     {"NFKD", Form::kNfkd}};
  f.check_steps(steps_.size());
  const std::string type = f.type();
  if (const auto form = kForms.find(type); form != kForms.end()) {
    f.only({});
    steps_.push_back([form = form->second](Draft& draft) {
      draft.text = normal_form(draft.text, form);
    });
  } else if (type == "Sequence") {
    f.only({"normalizers"});
    for (const Field& step : f.at("normalizers").list()) add(step);
  } else if (type == "Lowercase") {
    f.only({});
    steps_.push_back(lower);
  } else if (type == "StripAccents") {
    f.only({});
    steps_.push_back(without(is_mark));
  } else if (type == "BertNormalizer") {
    f.only(
        {"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
    const bool lowers = f.at("lowercase").flag_or(true);
    if (f.at("clean_text").flag_or(true)) steps_.push_back(each(clean));
    if (f.at("handle_chinese_chars").flag_or(true))
      steps_.push_back(each(apart));
    if (f.at("strip_accents").flag_or(lowers)) {
      steps_.push_back([](Draft& draft) {
        draft.text = normal_form(draft.text, Form::kNfd);
      });
      steps_.push_back(without(is_nonspacing_mark));
    }
    if (lowers) steps_.push_back(lower);
  } else if (type == "Prepend") {
    f.only({"prepend"});
    steps_.push_back([prefix = f.at("prepend").text()](Draft& draft) {
      if (!draft.text.empty()) draft.text.insert(0, prefix);
    });
  } else if (type == "Replace") {
    f.only({"pattern", "content"});
    steps_.push_back([pattern = f.at("pattern").pattern(),
                      by = f.at("content").text()](Draft& draft) {
      draft.text = pattern.replace(draft.text, by);
    });
  } else if (type == "Strip") {
    f.only({"strip_left", "strip_right"});
    steps_.push_back([left = f.at("strip_left").flag_or(true),
                      right = f.at("strip_right").flag_or(true)](Draft& draft) {
      strip(draft, left, right);
    });
  } else if (type == "Precompiled") {
    f.only({"precompiled_charsmap"});
    steps_.push_back([map = Charsmap(f.at("precompiled_charsmap"))](
                         Draft& draft) { draft.text = map.apply(draft.text); });
  } else if (type == "ByteLevel") {
    f.only({"add_prefix_space", "trim_offsets", "use_regex"});
    steps_.push_back(
        [](Draft& draft) { draft.text = bytes_as_characters(draft.text); });
  } else {
    f.at("type").refuse(
        "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, BertNormalizer, "
        "Prepend, Replace, Strip, Precompiled, ByteLevel and Sequence");
  }
}

}  // namespace dtensor::nn::text
