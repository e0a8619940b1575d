// SPDX-License-Identifier: Apache-2.0
// Makes an entry of the call table from a function and the names that torch
// gives its parameters:
//
//   t["diagonal"] = call(diagonal, {{}, {"offset", 0}, {"dim1", 0}, {"dim2",
//   1}});
//
// The types of the parameters say how each argument is read.
#pragma once
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtensor/ops/losses.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "tests/conformance/arguments.h"

namespace dtensor::conformance {

// A parameter: torch's name ("" if it is only given by position), and the value
// if a case does not give it. Without a value, each case must give it. For a
// tensor, a null is an undefined DistTensor.
struct Param {
  Param(std::string_view name = "") : name(name), required(true) {}
  Param(std::string_view name, nlohmann::json otherwise)
      : name(name), otherwise(std::move(otherwise)) {}
  std::string name;
  nlohmann::json otherwise;
  bool required = false;
};

inline Reduction to_reduction(const std::string& text) {
  if (text == "none") return Reduction::kNone;
  if (text == "sum") return Reduction::kSum;
  if (text == "batchmean") return Reduction::kBatchMean;
  if (text == "mean") return Reduction::kMean;
  throw NotHere("reduction=" + text);
}

// The argument at position `at`, as a T.
template <class T>
T read(const Arguments& a, size_t at, const Param& p) {
  const bool given = p.required || a.has(at, p.name);
  const auto& otherwise = p.otherwise;
  if constexpr (std::is_same_v<T, DistTensor>) {
    return given ? a.tensor(at, p.name) : DistTensor();
  } else if constexpr (std::is_same_v<T, std::vector<DistTensor>>) {
    return a.tensors(at, p.name);
  } else if constexpr (std::is_same_v<T, bool>) {
    return given ? a.flag(at, p.name, false) : otherwise.template get<bool>();
  } else if constexpr (std::is_same_v<T, Number>) {
    const nlohmann::json& v = given ? a.raw(at, p.name) : otherwise;
    if (v.is_boolean()) return v.get<bool>();
    if (v.is_number_integer()) return v.get<int64_t>();
    return given ? a.number(at, p.name) : v.get<double>();
  } else if constexpr (std::is_same_v<T, Reduction>) {
    return to_reduction(a.text(at, p.name, "mean"));
  } else if constexpr (std::is_same_v<T, std::string_view> ||
                       std::is_same_v<T, std::string>) {
    return given ? a.raw(at, p.name).template get_ref<const std::string&>()
                 : otherwise.template get_ref<const std::string&>();
  } else if constexpr (std::is_floating_point_v<T>) {
    return given ? a.number(at, p.name) : otherwise.template get<T>();
  } else if constexpr (std::is_integral_v<T>) {
    return given ? static_cast<T>(a.integer(at, p.name))
                 : otherwise.template get<T>();
  } else if constexpr (std::is_same_v<T, std::vector<int>>) {
    return given ? a.dims(at, p.name) : otherwise.template get<T>();
  } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    return given ? a.integers(at, p.name) : otherwise.template get<T>();
  } else {  // a std::optional
    if (!given) return std::nullopt;
    return read<typename T::value_type>(a, at, Param(p.name));
  }
}

inline std::vector<DistTensor> as_list(DistTensor y) { return {std::move(y)}; }
inline std::vector<DistTensor> as_list(std::vector<DistTensor> y) { return y; }
inline std::vector<DistTensor> as_list(TopK y) { return {y.values, y.indices}; }
inline std::vector<DistTensor> as_list(std::pair<DistTensor, DistTensor> y) {
  return {y.first, y.second};
}

// A TensorList only refers to its tensors.
template <class P>
using Held =
    std::conditional_t<std::is_same_v<std::remove_cvref_t<P>, TensorList>,
                       std::vector<DistTensor>, std::remove_cvref_t<P>>;

template <class R, class... P>
Call call(R (*f)(P...), std::vector<Param> params) {
  params.resize(sizeof...(P));
  return [f, params](const Arguments& a) {
    return [&]<size_t... i>(std::index_sequence<i...>) {
      // Braces evaluate the arguments in order.
      const std::tuple<Held<P>...> args{read<Held<P>>(a, i, params[i])...};
      return as_list(std::apply(f, args));
    }
    (std::index_sequence_for<P...>());
  };
}
// For a function with overloads: call<DistTensor(const DistTensor&)>(flatten).
template <class F>
requires std::is_function_v<F> Call call(std::type_identity_t<F>* f,
                                         std::vector<Param> params) {
  return call(f, std::move(params));
}

}  // namespace dtensor::conformance
