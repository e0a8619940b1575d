// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/text/field.h"

#include <algorithm>
#include <fstream>

#include "dtensor/nn/text/unicode.h"

namespace dtensor::nn::text {

using nlohmann::json;

json read_json(const std::string& path) {
  std::ifstream file(path);
  DT_CHECK(file.good(), "tokenizer", "cannot read {}", path);
  try {
    return json::parse(file);
  } catch (const json::exception& e) {
    fail("tokenizer", "{} is not JSON: {}", path, e.what());
  }
}

Field Field::at(const std::string& name) const {
  static const json kNull;
  const bool whole_file = place_.ends_with(": ");
  std::string place = place_ + (whole_file ? "" : ".") + name;
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
  return regex.is_null() ? Regex::literal(at("String").text())
                         : Regex(regex.text(), place_);
}

void Field::only(std::initializer_list<std::string_view> names) const {
  if (!value_->is_object()) refuse("an object");
  for (const auto& [name, value] : value_->items())
    DT_CHECK(name == "type" || std::ranges::count(names, name), "tokenizer",
             "{}.{} is {}, but this library does not know that member", place_,
             name, value.dump());
}

void Field::refuse(std::string_view want) const {
  std::string shown = value_->dump();
  if (shown.size() > 200) {
    shown.resize(200);
    shown += "...";
  }
  fail("tokenizer", "{} is {}, but this library reads only {} there", place_,
       shown, want);
}

}  // namespace dtensor::nn::text
