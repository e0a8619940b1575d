// SPDX-License-Identifier: Apache-2.0
// Element types, and the value types bf16 and f16.
#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace dtensor {

// Floats come first (see is_float()). No file stores these numbers. i8 holds
// weights (see int8_linear() in ops/contraction.h): it can be stored, moved and
// cast, but has no arithmetic.
enum class DType : uint8_t {
  kF32,
  kF64,
  kBF16,
  kF16,
  kI32,
  kI64,
  kBool,
  kI8,
  // Sums of floats that do not depend on their order (exact.h). Gradients have
  // this type until they are reduced, if RunOptions::reproducible is set. It
  // can be moved, added and cast to a float type, but not stored in files.
  kExact
};
// The types that programs name: all but kExact.
inline constexpr int kNumDTypes = 8;

// "f32", "f64", "bf16", "f16", "i32", "i64", "bool", "i8"; "exact" for kExact.
std::string_view name(DType);
// The inverse of name(). Throws Error for any other text.
DType parse_dtype(std::string_view text);

// Bytes of one element.
constexpr int64_t size_of(DType t) {
  constexpr int64_t size[] = {4, 8, 2, 2, 4, 8, 1, 1, 16};
  return size[static_cast<int>(t)];
}
constexpr bool is_float(DType t) { return t <= DType::kF16; }
// Floats of 16 bits. Arithmetic on them is done in f32.
constexpr bool is_half_float(DType t) {
  return t == DType::kBF16 || t == DType::kF16;
}

// The type of a result of two operands, as in PyTorch: a float type wins over
// an integer type, which wins over bool; within a kind, the wider type wins.
// bf16 with f32 is f32, and so is bf16 with f16, because neither holds the
// values of the other. Throws Error for i8 with another type.
DType promote(DType a, DType b);

// promote() for operands of different weight, as in PyTorch: the heavier
// operand decides the type, unless the lighter one is of a higher kind (float
// over integer over bool). bf16[4] with f32[] is bf16; i32[4] with f32[] is
// f32.
enum class Weight : uint8_t {
  kNumber,  // a plain number: f32, i64 or bool by its kind
  kScalar,  // a tensor without dimensions
  kTensor
};
DType promote(DType a, Weight of_a, DType b, Weight of_b);

// bfloat16: the upper half of a float, rounded to nearest even.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  constexpr explicit bf16(float f) {
    const uint32_t u = std::bit_cast<uint32_t>(f);
    const uint32_t quiet = (u >> 16) | 0x40,  // any NaN becomes a quiet one
        rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
    bits = static_cast<uint16_t>(f != f ? quiet : rounded);
  }
  constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

// IEEE half precision: 5 bits of exponent and 10 of fraction, up to 65504,
// rounded to nearest even; values from 65520 on become infinite. Conversions
// work on bits and have no branches, so that loops over them become vector
// code. CUDA code uses the GPU's instructions.
struct f16 {
  uint16_t bits = 0;
  f16() = default;
  // Must be inlined: otherwise loops with several conversions stay scalar.
  [[gnu::always_inline]] constexpr explicit f16(float f) {
#ifdef __CUDA_ARCH__
    if (!std::is_constant_evaluated()) {
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
      return;
    }
#endif
    const uint32_t u = std::bit_cast<uint32_t>(f), a = u & 0x7fffffff;
    // Rebias the exponent from 127 to 15.
    const uint32_t nearest = (a - 0x38000000 + 0xfff + ((a >> 13) & 1)) >> 13,
                   normal = nearest < 0x7c00 ? nearest : 0x7c00;
    // Below 2^-14, values of f16 are multiples of 2^-24, as floats from 0.5 to
    // 1 are. So adding 0.5 rounds to such a multiple.
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(a) + 0.5f) - 0x3f000000;
    const uint32_t nan = 0x7e00 | ((a >> 13) & 0x3ff);  // a quiet one
    const uint32_t magnitude =
        chosen(a > 0x7f800000, nan, chosen(a < 0x38800000, subnormal, normal));
    bits = static_cast<uint16_t>(magnitude | ((u >> 16) & 0x8000));
  }
  [[gnu::always_inline]] constexpr explicit operator float() const {
#ifdef __CUDA_ARCH__
    if (!std::is_constant_evaluated()) {
      float f;
      asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
      return f;
    }
#endif
    const uint32_t a = bits & 0x7fffu, shifted = a << 13;
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(a + 0x3f000000) - 0.5f);
    const uint32_t normal = shifted + (a < 0x7c00 ? 0x38000000 : 0x70000000),
                   quiet = a > 0x7c00 ? 0x400000 : 0,
                   magnitude = chosen(a < 0x400, subnormal, normal | quiet);
    return std::bit_cast<float>(magnitude | (bits & 0x8000u) << 16);
  }

 private:
  static constexpr uint32_t chosen(bool first, uint32_t a, uint32_t b) {
    return b ^ ((a ^ b) & -static_cast<uint32_t>(first));
  }
};

template <class T>
inline constexpr bool is_half =
    std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

template <class T>
constexpr DType find_dtype() {
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  if constexpr (std::is_same_v<T, bf16>) return DType::kBF16;
  if constexpr (std::is_same_v<T, f16>) return DType::kF16;
  if constexpr (std::is_same_v<T, int32_t>) return DType::kI32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::kI64;
  if constexpr (std::is_same_v<T, bool>) return DType::kBool;
  if constexpr (std::is_same_v<T, int8_t>) return DType::kI8;
}
template <class T>
inline constexpr DType dtype_of = find_dtype<T>();

constexpr bool is_differentiable(DType t) {
  return is_float(t) || t == DType::kExact;
}
constexpr bool has_arithmetic(DType t) { return t < DType::kI8; }
// Throws Error: i8 and exact have no arithmetic.
[[noreturn]] void refuse_arithmetic(DType);

// Calls fn.template operator()<T>() for the C++ type T of `t`. Throws Error for
// i8 and exact.
template <class Fn>
decltype(auto) visit(DType t, Fn&& fn) {
  switch (t) {
    case DType::kF32:
      return fn.template operator()<float>();
    case DType::kF64:
      return fn.template operator()<double>();
    case DType::kBF16:
      return fn.template operator()<bf16>();
    case DType::kF16:
      return fn.template operator()<f16>();
    case DType::kI32:
      return fn.template operator()<int32_t>();
    case DType::kI64:
      return fn.template operator()<int64_t>();
    case DType::kBool:
      break;
    case DType::kI8:
    case DType::kExact:
      refuse_arithmetic(t);
  }
  return fn.template operator()<bool>();
}

// As visit(), but also for i8, for code that only moves or converts values.
template <class Fn>
decltype(auto) visit_stored(DType t, Fn&& fn) {
  if (t == DType::kI8) return fn.template operator()<int8_t>();
  return visit(t, fn);
}

}  // namespace dtensor
