// Element types, and bf16 as a value type.
#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace dtensor {

enum class DType : uint8_t { kF32, kF64, kBF16, kI32, kI64, kBool };
inline constexpr int kNumDTypes = 6;

// "f32", "f64", "bf16", "i32", "i64", "bool".
std::string_view name(DType);
// The inverse of name(); throws Error for any other text.
DType parse_dtype(std::string_view text);

// Bytes of one element.
constexpr int64_t size_of(DType t) {
  constexpr int64_t size[] = {4, 8, 2, 4, 8, 1};
  return size[static_cast<int>(t)];
}
constexpr bool is_float(DType t) { return t <= DType::kBF16; }

// The type that two operands meet at, as in PyTorch: a float beats an integer
// beats bool; the wider one within a kind; bf16 with f32 is f32.
DType promote(DType a, DType b);

// The same for operands of different weight, as in PyTorch: what weighs more
// gives the type, unless what weighs less is of a higher kind (float over
// integer over bool). bf16[4] with f32[] is bf16; i32[4] with f32[] is f32.
enum class Weight : uint8_t {
  kNumber,  // a plain number: f32, i64 or bool for its kind
  kScalar,  // a tensor without dimensions
  kTensor
};
DType promote(DType a, Weight of_a, DType b, Weight of_b);

// Brain float: the upper half of a float, rounded to nearest even.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  constexpr explicit bf16(float f) {
    const uint32_t u = std::bit_cast<uint32_t>(f);
    const uint32_t quiet = (u >> 16) | 0x40,  // a quiet NaN stays one
        rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
    bits = static_cast<uint16_t>(f != f ? quiet : rounded);
  }
  constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

template <class T>
struct dtype_of_t;
template <>
struct dtype_of_t<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct dtype_of_t<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct dtype_of_t<bf16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct dtype_of_t<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct dtype_of_t<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct dtype_of_t<bool> {
  static constexpr DType value = DType::kBool;
};
template <class T>
inline constexpr DType dtype_of = dtype_of_t<T>::value;

// fn.template operator()<T>() for the C++ type T of `t`.
template <class Fn>
decltype(auto) visit(DType t, Fn&& fn) {
  switch (t) {
    case DType::kF32:
      return fn.template operator()<float>();
    case DType::kF64:
      return fn.template operator()<double>();
    case DType::kBF16:
      return fn.template operator()<bf16>();
    case DType::kI32:
      return fn.template operator()<int32_t>();
    case DType::kI64:
      return fn.template operator()<int64_t>();
    case DType::kBool:
      break;
  }
  return fn.template operator()<bool>();
}

}  // namespace dtensor
