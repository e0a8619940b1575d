// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/dtype.h"

#include <utility>

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {
constexpr std::string_view kNames[] = {"f32", "f64",  "bf16", "f16",  "i32",
                                       "i64", "bool", "i8",   "exact"};
}

std::string_view name(DType t) { return kNames[static_cast<int>(t)]; }

DType parse_dtype(std::string_view text) {
  for (int i = 0; i < kNumDTypes; ++i)
    if (kNames[i] == text) return static_cast<DType>(i);
  fail("dtype",
       "there is no type '{}'; write f32, f64, bf16, f16, i32, i64, bool or i8",
       text);
}

void refuse_arithmetic(DType t) {
  fail("dtype", "{} holds {} and has no arithmetic; write cast(x, DType::kF32)",
       name(t), t == DType::kI8 ? "weights" : "sums");
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  for (DType t : {a, b})
    if (!has_arithmetic(t)) refuse_arithmetic(t);
  if (is_float(a) != is_float(b)) return is_float(a) ? a : b;
  if (is_float(a))
    return a == DType::kF64 || b == DType::kF64 ? DType::kF64 : DType::kF32;
  return a == DType::kI64 || b == DType::kI64 ? DType::kI64 : DType::kI32;
}

DType promote(DType a, Weight of_a, DType b, Weight of_b) {
  if (of_a == of_b) return promote(a, b);
  if (of_a < of_b) std::swap(a, b);
  auto kind = [](DType t) {
    return is_float(t) ? 2 : t == DType::kBool ? 0 : 1;
  };
  return kind(b) > kind(a) ? promote(a, b) : a;
}

}  // namespace dtensor
