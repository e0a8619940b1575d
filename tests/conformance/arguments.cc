// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/arguments.h"

#include <limits>

#include "dtensor/placement/error.h"

namespace dtensor::conformance {
namespace {

using nlohmann::json;

bool names_tensor(const json& v) {
  return v.is_object() && v.contains("tensor");
}

std::optional<double> as_number(const json& v) {
  if (v.is_number()) return v.get<double>();
  if (v.is_boolean()) return v.get<bool>() ? 1.0 : 0.0;
  if (!v.is_object() || !v.contains("float")) return std::nullopt;
  const std::string text = v["float"];
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (text == "inf") return kInfinity;
  if (text == "-inf") return -kInfinity;
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

const json* Arguments::find(size_t at, std::string_view name) const {
  if (at < case_.args.size()) {
    read_.insert(at);
    return case_.args[at].is_null() ? nullptr : &case_.args[at];
  }
  auto it =
      name.empty() ? case_.kwargs.end() : case_.kwargs.find(std::string(name));
  if (it == case_.kwargs.end()) return nullptr;
  read_names_.emplace(name);
  return it->is_null() ? nullptr : &*it;
}

const json& Arguments::need(size_t at, std::string_view name,
                            std::string_view what) const {
  const json* v = find(at, name);
  DT_CHECK(v, "conformance", "{} has no argument {} \"{}\", {}", case_.id, at,
           name, what);
  return *v;
}

bool Arguments::has(size_t at, std::string_view name) const {
  return find(at, name) != nullptr;
}
bool Arguments::is_tensor(size_t at, std::string_view name) const {
  const json* v = find(at, name);
  return v && names_tensor(*v);
}
bool Arguments::is_list(size_t at, std::string_view name) const {
  const json* v = find(at, name);
  return v && v->is_array();
}
bool Arguments::is_text(size_t at, std::string_view name) const {
  const json* v = find(at, name);
  return v && v->is_string();
}

const json& Arguments::raw(size_t at, std::string_view name) const {
  return need(at, name, "anything");
}

DistTensor Arguments::to_tensor(const json& v) const {
  DT_CHECK(names_tensor(v), "conformance", "{}: {} is no tensor", case_.id,
           v.dump());
  return tensors_.at(v["tensor"].get<std::string>());
}

DistTensor Arguments::tensor(size_t at, std::string_view name) const {
  return to_tensor(need(at, name, "a tensor"));
}

double Arguments::number(size_t at, std::string_view name) const {
  const json& v = need(at, name, "a number");
  const auto x = as_number(v);
  DT_CHECK(x, "conformance", "{}: {} is no number", case_.id, v.dump());
  return *x;
}
double Arguments::number(size_t at, std::string_view name,
                         double otherwise) const {
  return find(at, name) ? number(at, name) : otherwise;
}

int64_t Arguments::integer(size_t at, std::string_view name) const {
  const json& v = need(at, name, "an integer");
  if (names_tensor(v)) throw NotHere("an index that is a tensor");
  DT_CHECK(v.is_number_integer() || v.is_boolean(), "conformance",
           "{}: {} is no integer", case_.id, v.dump());
  return v.is_boolean() ? v.get<bool>() : v.get<int64_t>();
}
int64_t Arguments::integer(size_t at, std::string_view name,
                           int64_t otherwise) const {
  return find(at, name) ? integer(at, name) : otherwise;
}

bool Arguments::flag(size_t at, std::string_view name, bool otherwise) const {
  return integer(at, name, otherwise) != 0;
}

std::string Arguments::text(size_t at, std::string_view name,
                            std::string_view otherwise) const {
  const json* v = find(at, name);
  return v ? v->get<std::string>() : std::string(otherwise);
}

DType Arguments::dtype(size_t at, std::string_view name,
                       DType otherwise) const {
  const json* v = find(at, name);
  return v ? parse_dtype(v->at("dtype").get<std::string>()) : otherwise;
}

std::vector<int64_t> Arguments::integers(size_t at,
                                         std::string_view name) const {
  const json& v = need(at, name, "integers");
  if (names_tensor(v)) throw NotHere("indices that are a tensor");
  if (v.is_array()) return v.get<std::vector<int64_t>>();
  return {integer(at, name)};
}
std::vector<int64_t> Arguments::integers(size_t at, std::string_view name,
                                         std::vector<int64_t> otherwise) const {
  return has(at, name) ? integers(at, name) : std::move(otherwise);
}

std::vector<int> Arguments::dims(size_t at, std::string_view name) const {
  if (!find(at, name)) return {};
  const auto list = integers(at, name);
  return {list.begin(), list.end()};
}

std::vector<DistTensor> Arguments::tensors(size_t at,
                                           std::string_view name) const {
  std::vector<DistTensor> list;
  if (is_tensor(at))
    for (; at < count(); ++at) list.push_back(tensor(at));
  else
    for (const json& v : need(at, name, "tensors"))
      list.push_back(to_tensor(v));
  return list;
}

Shape Arguments::shape(size_t at) const {
  Shape s;
  if (is_list(at)) {
    for (int64_t n : integers(at)) s.push_back(n);
  } else {
    for (; at < count(); ++at) s.push_back(integer(at));
  }
  return s;
}

std::vector<std::string> Arguments::unread() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < case_.args.size(); ++i)
    if (!read_.contains(i) && !case_.args[i].is_null())
      names.push_back(fmt::format("argument {}", i));
  for (const auto& [name, v] : case_.kwargs.items())
    if (!read_names_.contains(name) && !v.is_null()) names.push_back(name);
  return names;
}

}  // namespace dtensor::conformance
