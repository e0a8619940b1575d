// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/attrs.h"

#include <algorithm>
#include <charconv>

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

template <class T>
void read_number(T& x, std::string_view text, std::string_view where) {
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, x);
  DT_CHECK(
      problem == std::errc() && stop == end, where, "'{}' is not a {}", text,
      std::is_integral_v<T> ? "whole number of 64 bits; write one, like 4"
                            : "real number of 64 bits; write one, like 0.5");
}

std::string list_of(const Fields& fields) {
  std::string text;
  for (size_t i = 0; i < fields.size(); ++i)
    text += (i ? ", " : "") + std::string(fields[i].name);
  return text;
}

}  // namespace

uint64_t Attrs::hash() const {
  const uint64_t h = reinterpret_cast<uint64_t>(like.get());
  return fold_into(h, true);
}

std::vector<std::string_view> Attrs::names() const {
  std::vector<std::string_view> all;
  for (size_t i = 0; type_ && i < type_->fields->size(); ++i)
    all.push_back((*type_->fields)[i].name);
  return all;
}

std::string Attrs::to_string() const {
  std::string text;
  for (size_t i = 0; type_ && i < type_->fields->size(); ++i)
    text += fmt::format("{}{}={}", i ? ", " : "", (*type_->fields)[i].name,
                        type_->print(bytes_, i));
  return text;
}

void Attrs::set(std::string_view name, std::string_view text,
                std::string_view where) {
  DT_CHECK(type_, where,
           "the operator has no arguments, so '{}' cannot be set; leave it out",
           name);
  for (size_t i = 0; i < type_->fields->size(); ++i)
    if ((*type_->fields)[i].name == name)
      return type_->read(bytes_, i, text, where);
  fail(where, "there is no argument '{}'; write one of {}", name,
       list_of(*type_->fields));
}

void Attrs::wrong_type(const Type& asked) const {
  fail("attributes",
       "the operator reads the attributes {}, but {} were given; pass a struct "
       "of the type that it reads",
       list_of(*asked.fields), type_ ? list_of(*type_->fields) : "none");
}

std::string Attrs::print(int64_t x) { return std::to_string(x); }
std::string Attrs::print(double x) { return fmt::format("{}", x); }
std::string Attrs::print(bool x) { return x ? "true" : "false"; }
std::string Attrs::print(DType x) { return std::string(name(x)); }
std::string Attrs::print(const Shape& s) {
  std::string text;
  for (int d = 0; d < s.size(); ++d)
    text += (d ? "x" : "") + std::to_string(s[d]);
  return text;
}

void Attrs::read(int64_t& x, std::string_view text, std::string_view where) {
  read_number(x, text, where);
}
void Attrs::read(double& x, std::string_view text, std::string_view where) {
  read_number(x, text, where);
}
void Attrs::read(bool& x, std::string_view text, std::string_view where) {
  x = text == "true" || text == "1";
  DT_CHECK(x || text == "false" || text == "0", where,
           "'{}' is neither true nor false; write one of them", text);
}
void Attrs::read(DType& x, std::string_view text, std::string_view) {
  x = parse_dtype(text);
}
void Triple::push_back(int64_t x) {
  DT_CHECK(n_ < 3, "attrs", "a fourth number, {}, was added to a list of three",
           x);
  DT_CHECK(x == static_cast<int32_t>(x), "attrs",
           "{} is out of range; write a number of at most 32 bits", x);
  x_[static_cast<size_t>(n_++)] = static_cast<int32_t>(x);
}

void Attrs::read(Triple& x, std::string_view text, std::string_view where) {
  const Shape s = parse_shape(text, where);
  DT_CHECK(s.size() <= 3 && std::all_of(s.begin(), s.end(),
                                        [](int64_t n) {
                                          return n == static_cast<int32_t>(n);
                                        }),
           where,
           "'{}' does not fit; write at most three numbers of 32 bits, such as "
           "2x1",
           text);
  x = Triple(s);
}

void Attrs::read(Shape& x, std::string_view text, std::string_view where) {
  x = parse_shape(text, where);
}

}  // namespace dtensor
