// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/text/field.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "dtensor/nn/text/unicode.h"

namespace dtensor::nn::text {

using nlohmann::json;

namespace {

constexpr size_t kMostSteps = 64;
constexpr int kDeepest = 64;

// Nesting has a limit because the readers of nested values recurse, and so does
// the JSON library when it writes them.
void check_depth(std::string_view text, const std::string& path) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); i++) {
    const char c = text[i];
    if (in_string && c == '\\')
      i++;
    else if (c == '"')
      in_string = !in_string;
    else if (!in_string && (c == '[' || c == '{'))
      DT_CHECK(++depth <= kDeepest, "tokenizer",
               "{} nests lists and objects more than {} deep; use another file",
               path, kDeepest);
    else if (!in_string && (c == ']' || c == '}'))
      depth--;
  }
}

}  // namespace

std::string read_file(std::string_view where, const std::string& path) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  std::ifstream file(path, std::ios::binary);
  DT_CHECK(file.good() && !folder, where,
           "cannot read {}: {}; make it readable, or name another folder", path,
           std::strerror(folder ? EISDIR : errno));
  return {std::istreambuf_iterator<char>(file), {}};
}

json read_json(const std::string& path) {
  const std::string text = read_file("tokenizer", path);
  check_depth(text, path);
  try {
    return json::parse(text);
  } catch (const json::exception& e) {
    fail("tokenizer",
         "{} cannot be read as JSON: {}; download the file again, or name "
         "another folder",
         path, shortened(e.what()));
  }
}

std::string shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return valid_utf8(text);
  return valid_utf8(text.substr(0, decided_bytes(text.substr(0, most)))) +
         "...";
}

Field Field::at(const std::string& name) const {
  static const json kNull;
  const bool whole_file = place_.ends_with(": ");
  std::string place = place_ + (whole_file ? "" : ".") + shortened(name, 200);
  if (!value_->is_object()) refuse("an object");
  const auto found = value_->find(name);
  return {found == value_->end() ? kNull : *found, std::move(place)};
}

std::vector<Field> Field::list() const {
  if (!value_->is_array()) refuse("a list");
  std::vector<Field> all;
  for (const json& x : *value_)
    all.emplace_back(x, fmt::format("{}[{}]", place_, all.size()));
  return all;
}

std::string Field::text() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get<std::string>();
}

std::string Field::text_or(const std::string& otherwise) const {
  return is_null() ? otherwise : text();
}

bool Field::flag_or(bool otherwise) const {
  if (is_null()) return otherwise;
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

int64_t Field::number() const {
  if (!value_->is_number_integer()) refuse("an integer");
  return value_->get<int64_t>();
}

char32_t Field::character() const {
  const std::string all = text();
  size_t end = 0;
  if (all.empty()) refuse("one character");
  const char32_t c = next_char(all, end);
  if (end != all.size()) refuse("one character");
  return c;
}

Regex Field::pattern() const {
  only({"String", "Regex"});
  const Field regex = at("Regex");
  return regex.is_null() ? Regex::literal(at("String").text(), place_)
                         : Regex(regex.text(), place_);
}

void Field::only(std::initializer_list<std::string_view> names) const {
  if (!value_->is_object()) refuse("an object");
  for (const auto& [name, value] : value_->items())
    DT_CHECK(name == "type" || std::ranges::count(names, name), "tokenizer",
             "{}.{} is {}, which this library does not know; use another file",
             place_, shortened(name, 200), shortened(value.dump(), 200));
}

void Field::refuse(std::string_view want) const {
  fail("tokenizer",
       "{} is {}, but this library reads only {} there; use another file",
       place_.ends_with(": ") ? place_.substr(0, place_.size() - 2) : place_,
       is_null() ? "null or missing" : shortened(value_->dump(), 200), want);
}

void Field::check_steps(size_t before) const {
  DT_CHECK(
      before < kMostSteps, "tokenizer",
      "{} comes after {} steps, but this library takes at most {} (one entry "
      "can be several steps); use a file with fewer",
      place_, before, kMostSteps);
}

}  // namespace dtensor::nn::text
