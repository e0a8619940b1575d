// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "dtensor/placement/error.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using enum DType;
constexpr DType kAll[] = {kF32, kF64, kBF16, kF16, kI32, kI64, kBool, kI8};

TEST(DTypeTest, NamesReadBack) {
  const char* names[] = {"f32", "f64", "bf16", "f16",
                         "i32", "i64", "bool", "i8"};
  static_assert(std::size(kAll) == kNumDTypes);
  for (int i = 0; i < kNumDTypes; ++i) {
    EXPECT_EQ(name(kAll[i]), names[i]);
    EXPECT_EQ(parse_dtype(names[i]), kAll[i]);
  }
}

TEST(DTypeTest, OtherTextIsAnError) {
  for (const char* text : {"", "F32", "f32 ", " f32", "f3", "f322", "float"})
    EXPECT_THROW(parse_dtype(text), Error) << "'" << text << "'";
  EXPECT_EQ(testing::error_of([&] { parse_dtype("fp16"); }),
            "[dtype] there is no type 'fp16'; write f32, f64, bf16, f16, i32, "
            "i64, bool or i8");
}

TEST(DTypeTest, SizeIsThatOfTheCppType) {
  for (DType t : kAll)
    visit_stored(t, [&]<class T>() {
      EXPECT_EQ(size_of(t), static_cast<int64_t>(sizeof(T))) << name(t);
    });
}

TEST(DTypeTest, FloatsAreFloats) {
  EXPECT_TRUE(is_float(kF32));
  EXPECT_TRUE(is_float(kF64));
  EXPECT_TRUE(is_float(kBF16));
  EXPECT_TRUE(is_float(kF16));
  EXPECT_FALSE(is_float(kI32));
  EXPECT_FALSE(is_float(kI64));
  EXPECT_FALSE(is_float(kBool));
  EXPECT_FALSE(is_float(kI8));
  for (DType t : kAll) {
    EXPECT_EQ(is_half_float(t), t == kBF16 || t == kF16) << name(t);
    visit_stored(t,
                 [&]<class T>() { EXPECT_EQ(is_half<T>, is_half_float(t)); });
  }
}

TEST(DTypeTest, VisitCallsWithTheType) {
  for (DType t : kAll)
    EXPECT_EQ(visit_stored(t, []<class T>() { return dtype_of<T>; }), t)
        << name(t);
  EXPECT_TRUE(
      (visit(kF32, []<class T>() { return std::is_same_v<T, float>; })));
  EXPECT_TRUE(
      (visit(kF64, []<class T>() { return std::is_same_v<T, double>; })));
  EXPECT_TRUE(
      (visit(kBF16, []<class T>() { return std::is_same_v<T, bf16>; })));
  EXPECT_TRUE((visit(kF16, []<class T>() { return std::is_same_v<T, f16>; })));
  EXPECT_TRUE(
      (visit(kBool, []<class T>() { return std::is_same_v<T, bool>; })));
}

TEST(DTypeTest, I8HasNoArithmetic) {
  const std::string want =
      "[dtype] i8 holds weights and has no arithmetic; write cast(x, "
      "DType::kF32)";
  EXPECT_EQ(testing::error_of([] { visit(kI8, []<class T>() {}); }), want);
  EXPECT_EQ(promote(kI8, kI8), kI8);
  for (DType t : kAll)
    if (t != kI8) {
      EXPECT_EQ(testing::error_of([&] { promote(t, kI8); }), want) << name(t);
      EXPECT_EQ(testing::error_of([&] { promote(kI8, t); }), want) << name(t);
    }
}

TEST(DTypeTest, VisitReturnsAReference) {
  int x = 0;
  visit(kI32, [&]<class T>() -> int& { return x; }) = 3;
  EXPECT_EQ(x, 3);
}

// torch.promote_types of the same pairs.
TEST(PromoteTest, EveryPair) {
  constexpr int kOthers = kNumDTypes - 1;  // i8 is the last
  constexpr DType want[kOthers][kOthers] = {
      // f32, f64, bf16, f16, i32, i64, bool
      {kF32, kF64, kF32, kF32, kF32, kF32, kF32},      // f32
      {kF64, kF64, kF64, kF64, kF64, kF64, kF64},      // f64
      {kF32, kF64, kBF16, kF32, kBF16, kBF16, kBF16},  // bf16
      {kF32, kF64, kF32, kF16, kF16, kF16, kF16},      // f16
      {kF32, kF64, kBF16, kF16, kI32, kI64, kI32},     // i32
      {kF32, kF64, kBF16, kF16, kI64, kI64, kI64},     // i64
      {kF32, kF64, kBF16, kF16, kI32, kI64, kBool},    // bool
  };
  for (int a = 0; a < kOthers; ++a)
    for (int b = 0; b < kOthers; ++b)
      EXPECT_EQ(promote(kAll[a], kAll[b]), want[a][b])
          << name(kAll[a]) << " with " << name(kAll[b]);
}

float from_bits(uint32_t u) { return std::bit_cast<float>(u); }
float round_trip(float f) { return static_cast<float>(bf16(f)); }

TEST(BF16Test, StartsAtZero) {
  EXPECT_EQ(bf16().bits, 0);
  EXPECT_EQ(static_cast<float>(bf16()), 0.0f);
}

TEST(BF16Test, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    float f = from_bits(b << 16);
    if (std::isnan(f)) continue;
    ASSERT_EQ(bf16(f).bits, b);
  }
}

TEST(BF16Test, TiesGoToEven) {
  EXPECT_EQ(round_trip(1 + 0x1p-8f), 1.0f);
  EXPECT_EQ(round_trip(1 + 3 * 0x1p-8f), 1 + 0x1p-6f);
  EXPECT_EQ(round_trip(-1 - 0x1p-8f), -1.0f);
  EXPECT_EQ(round_trip(-1 - 3 * 0x1p-8f), -1 - 0x1p-6f);
  // Just beside a tie the nearer one wins.
  EXPECT_EQ(round_trip(1 + 0x1p-8f + 0x1p-23f), 1 + 0x1p-7f);
  EXPECT_EQ(round_trip(1 + 3 * 0x1p-8f - 0x1p-23f), 1 + 0x1p-7f);
}

// By the definition: a number is rounded to the nearer of its two neighbours,
// or, between equally near ones, to the even one. Infinity follows the largest.
TEST(BF16Test, RoundsToNearest) {
  auto value = [](uint32_t b) {  // of a positive bf16; infinity as 2^128
    return b == 0x7f80 ? 0x1p128 : double{from_bits(b << 16)};
  };
  for (uint32_t sign : {0u, 0x8000u})
    for (uint32_t b = 0; b < 0x7f80; ++b)
      for (uint32_t low : {1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
        double x = from_bits(b << 16 | low);
        double down = x - value(b), up = value(b + 1) - x;
        uint32_t want = down < up || (down == up && b % 2 == 0) ? b : b + 1;
        float f = from_bits((sign | b) << 16 | low);
        ASSERT_EQ(bf16(f).bits, sign | want) << f;
      }
}

TEST(BF16Test, OverflowsToInfinity) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(round_trip(std::numeric_limits<float>::max()), kInf);
  EXPECT_EQ(round_trip(std::numeric_limits<float>::lowest()), -kInf);
  EXPECT_EQ(round_trip(kInf), kInf);
  EXPECT_EQ(round_trip(-kInf), -kInf);
}

TEST(BF16Test, KeepsTheSignOfZero) {
  EXPECT_EQ(bf16(-0.0f).bits, 0x8000);
  EXPECT_EQ(bf16(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
}

// A NaN whose payload is only in the lower half must not become infinity, and
// one whose payload is all ones must not overflow into zero.
TEST(BF16Test, NaNStaysNaN) {
  for (uint32_t u : {0x7f800001u, 0x7f80ffffu, 0x7fc00000u, 0x7fffffffu,
                     0xff800001u, 0xffc00000u, 0xffffffffu}) {
    bf16 b(from_bits(u));
    EXPECT_TRUE(std::isnan(static_cast<float>(b))) << std::hex << u;
    EXPECT_EQ(b.bits >> 15, u >> 31) << std::hex << u;  // the sign
    EXPECT_TRUE(b.bits & 0x40) << std::hex << u;        // quiet
  }
}

f16 f16_of(uint32_t bits) {
  f16 h;
  h.bits = static_cast<uint16_t>(bits);
  return h;
}

TEST(F16Test, StartsAtZero) {
  EXPECT_EQ(f16().bits, 0);
  EXPECT_EQ(static_cast<float>(f16()), 0.0f);
}

TEST(F16Test, IsConstant) {
  static_assert(f16(1.5f).bits == 0x3e00);
  static_assert(f16(-0x1p-24f).bits == 0x8001);
  static_assert(f16(65520.0f).bits == 0x7c00);
  static_assert(f16(std::numeric_limits<float>::quiet_NaN()).bits == 0x7e00);
  static_assert(static_cast<float>(f16(0.1f)) == 0.0999755859375f);
}

// By the definition: sign, exponent from -14 on, and 10 bits of fraction.
TEST(F16Test, HasItsValue) {
  for (uint32_t b = 0; b < 0x7c00; ++b) {
    const int exponent = static_cast<int>(b >> 10);
    const int fraction = static_cast<int>(b & 0x3ff);
    const double want = exponent == 0
                            ? std::ldexp(fraction, -24)
                            : std::ldexp(1024 + fraction, exponent - 25);
    ASSERT_EQ(static_cast<float>(f16_of(b)), want) << b;
    ASSERT_EQ(static_cast<float>(f16_of(b | 0x8000)), -want) << b;
  }
  EXPECT_TRUE(std::signbit(static_cast<float>(f16_of(0x8000))));
  EXPECT_EQ(static_cast<float>(f16_of(0x7bff)), 65504.0f);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(static_cast<float>(f16_of(0x7c00)), kInf);
  EXPECT_EQ(static_cast<float>(f16_of(0xfc00)), -kInf);
}

TEST(F16Test, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const float f = static_cast<float>(f16_of(b));
    const bool nan = (b & 0x7fff) > 0x7c00;
    ASSERT_EQ(std::isnan(f), nan) << b;
    // A NaN becomes a quiet one.
    ASSERT_EQ(f16(f).bits, nan ? b | 0x200 : b);
  }
}

// By the definition, as for bf16: numbers between two neighbours, in the middle
// and beside it. Infinity follows the largest value.
TEST(F16Test, RoundsToNearest) {
  auto value = [](uint32_t b) {  // of a positive one; infinity as 2^16
    return b == 0x7c00 ? 0x1p16f : static_cast<float>(f16_of(b));
  };
  for (uint32_t sign : {0u, 0x8000u})
    for (uint32_t b = 0; b < 0x7c00; ++b) {
      const float down = value(b), up = value(b + 1);
      const float middle = down + (up - down) / 2;  // has a bit more: exact
      const uint32_t even = b + b % 2;
      auto rounded = [&](float f) { return f16(sign ? -f : f).bits; };
      ASSERT_EQ(rounded(middle), sign | even) << middle;
      ASSERT_EQ(rounded(std::nextafter(middle, 0.0f)), sign | b) << middle;
      ASSERT_EQ(rounded(std::nextafter(middle, 1e9f)), sign | (b + 1))
          << middle;
      ASSERT_EQ(rounded(std::nextafter(down, 1e9f)), sign | b) << down;
      ASSERT_EQ(rounded(std::nextafter(up, 0.0f)), sign | (b + 1)) << up;
    }
}

TEST(F16Test, OverflowsToInfinity) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(f16(65520.0f).bits, 0x7c00);
  for (float f : {65536.0f, 1e6f, std::numeric_limits<float>::max(), kInf}) {
    EXPECT_EQ(f16(f).bits, 0x7c00) << f;
    EXPECT_EQ(f16(-f).bits, 0xfc00) << f;
  }
}

TEST(F16Test, KeepsTheSignOfZero) {
  EXPECT_EQ(f16(-0.0f).bits, 0x8000);
  EXPECT_EQ(f16(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
  EXPECT_EQ(f16(-0x1p-25f).bits, 0x8000);
  EXPECT_EQ(f16(0x1p-25f + 0x1p-48f).bits, 1);
}

TEST(F16Test, NaNStaysNaN) {
  for (uint32_t u : {0x7f800001u, 0x7f801fffu, 0x7fc00000u, 0x7fffffffu,
                     0xff800001u, 0xffc00000u, 0xffffffffu}) {
    const f16 h(from_bits(u));
    EXPECT_TRUE(std::isnan(static_cast<float>(h))) << std::hex << u;
    EXPECT_EQ(h.bits >> 15, u >> 31) << std::hex << u;  // the sign
    EXPECT_EQ(h.bits & 0x7e00, 0x7e00) << std::hex << u;
  }
}

// Compares with the compiler's own type, if it has one.
#ifdef __FLT16_MAX__
TEST(F16Test, IsTheCompilers) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const float ours = static_cast<float>(f16_of(b));
    const float theirs =
        static_cast<float>(std::bit_cast<_Float16>(f16_of(b).bits));
    if (std::isnan(theirs))
      ASSERT_TRUE(std::isnan(ours)) << b;
    else
      ASSERT_EQ(std::bit_cast<uint32_t>(ours), std::bit_cast<uint32_t>(theirs))
          << b;
  }
  // A step that is prime visits every exponent, and all kinds of low bits.
  for (uint64_t u = 0; u < uint64_t{1} << 32; u += 1009) {
    const float f = from_bits(static_cast<uint32_t>(u));
    if (std::isnan(f)) continue;
    ASSERT_EQ(f16(f).bits, std::bit_cast<uint16_t>(static_cast<_Float16>(f)))
        << f;
  }
}
#endif

}  // namespace
}  // namespace dtensor
