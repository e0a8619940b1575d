// SPDX-License-Identifier: Apache-2.0
// Members of tokenizer.json and tokenizer_config.json, with errors that name
// them.
#pragma once
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/nn/text/regex.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn::text {

// Returns a whole file. Throws Error, headed by `where`, if it cannot be read.
std::string read_file(std::string_view where, const std::string& path);
// Reads a file; throws Error if it is not JSON, or if lists and objects nest
// more than 64 deep.
nlohmann::json read_json(const std::string& path);

// A text from a file as errors show it: in UTF-8, and if it has more than
// `most` bytes, cut to at most that many, with "..." at the end.
std::string shortened(std::string_view text, size_t most = 1000);

// A value of a JSON file, with its place for errors: "DIR/tokenizer.json:
// decoder.type". The file's json must outlive it. The functions throw Error if
// the value is not of the kind that they return.
class Field {
 public:
  Field(const nlohmann::json& value, std::string place)
      : value_(&value), place_(std::move(place)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& place() const { return place_; }
  bool is_null() const { return value_->is_null(); }

  // The member with this name; a null value if there is none.
  Field at(const std::string& name) const;
  std::vector<Field> list() const;
  std::string text() const;
  std::string text_or(const std::string& otherwise) const;
  bool flag_or(bool otherwise) const;
  int64_t number() const;
  // The only character of a string.
  char32_t character() const;
  // Reads {"String": ...} or {"Regex": ...}.
  Regex pattern() const;

  std::string type() const { return at("type").text(); }
  // Throws Error if there are members other than "type" and these.
  void only(std::initializer_list<std::string_view> names) const;
  // Throws Error: the library reads only `want` here.
  [[noreturn]] void refuse(std::string_view want) const;
  // For a field that adds a step to a normalizer, pre-tokenizer or decoder,
  // which has `before` steps already. Throws Error if these are 64 or more.
  void check_steps(size_t before) const;

 private:
  const nlohmann::json* value_;
  std::string place_;
};

}  // namespace dtensor::nn::text
