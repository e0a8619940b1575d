// SPDX-License-Identifier: Apache-2.0
#include "dtensor/device/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "dtensor/device/combine.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// x = x op y
void combine(ReduceOp op, DType dtype, const Shape& shape, void* x,
             const void* y) {
  const Shape strides = contiguous_strides(shape);
  const Operand operands[] = {{x, strides}, {y, strides}};
  reduce_strided(op, dtype, shape, x, strides, operands, 2);
}

// Calls fn(dst element, src element) for every element of the box.
template <class Fn>
void walk(const Shape& shape, const Shape& ds, const Shape& ss, Fn fn) {
  const int64_t n = numel(shape);
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i, d = 0, s = 0;
    for (int k = shape.size() - 1; k >= 0; --k) {
      d += rest % shape[k] * ds[k];
      s += rest % shape[k] * ss[k];
      rest /= shape[k];
    }
    fn(d, s);
  }
}

void check_copy(int64_t item, const Shape& shape, const Shape& ds,
                const Shape& ss, int64_t from = 0) {
  const size_t bytes = 40000;
  std::vector<unsigned char> src(bytes * 2), dst(bytes * 2, 0xee);
  for (size_t i = 0; i < src.size(); ++i)
    src[i] = static_cast<unsigned char>(i * 131 + i / 251);
  std::vector<unsigned char> want = dst;
  walk(shape, ds, ss, [&](int64_t d, int64_t s) {
    std::memcpy(want.data() + d * item, src.data() + (from + s) * item,
                static_cast<size_t>(item));
  });
  const int64_t copied =
      copy_strided(item, shape, dst.data(), ds, src.data() + from * item, ss);
  EXPECT_EQ(copied, numel(shape) * item);
  EXPECT_TRUE(dst == want) << item << " bytes, " << to_string(shape) << " to "
                           << to_string(ds) << " from " << to_string(ss);
}

TEST(CopyTest, RunsOfEveryLength) {
  for (int64_t n = 0; n < 340; ++n) {
    check_copy(1, {n}, {1}, {1});
    check_copy(1, {5, n}, {350, 1}, {341, 1});
    check_copy(4, {3, n}, {350, 1}, {n, 1});
  }
}

TEST(CopyTest, Transposes) {
  for (int64_t item : {1, 2, 4, 8, 12, 16})
    for (int64_t rows : {1, 3, 4, 16, 17, 40})
      for (int64_t columns : {1, 2, 3, 4, 16, 33, 37}) {
        check_copy(item, {rows, columns}, {columns, 1}, {1, rows});
        check_copy(item, {rows, columns}, {columns + 3, 1}, {1, rows + 1});
        check_copy(item, {rows, columns}, {1, rows}, {columns, 1});
      }
  check_copy(4, {3, 20, 5, 18}, {1800, 90, 18, 1}, {1800, 1, 20, 100});
  check_copy(2, {6, 7, 8}, {56, 8, 1}, {1, 6, 42});
}

TEST(CopyTest, BackwardsOfEveryLength) {
  for (int64_t item : {1, 2, 4, 8, 16})
    for (int64_t n : {1, 2, 15, 16, 17, 31, 64, 100, 129}) {
      check_copy(item, {n}, {1}, {-1}, n - 1);
      check_copy(item, {3, n}, {n, 1}, {n + 2, -1}, n);
    }
}

TEST(CopyTest, OddStrides) {
  check_copy(4, {5, 6}, {6, 1}, {0, 0});        // one element, everywhere
  check_copy(4, {5, 6}, {12, 2}, {1, 0});       // a column, repeated
  check_copy(8, {5, 6}, {6, 1}, {-6, -1}, 29);  // backwards
  check_copy(4, {2, 1, 3}, {3, 77, 1}, {4, -9, 1});
  check_copy(4, {}, {}, {});
  check_copy(16, {}, {}, {});
  check_copy(4, {3, 0, 2}, {2, 2, 1}, {2, 2, 1});
  // More dimensions than a tensor can have.
  const std::vector<int64_t> two(12, 2);
  std::vector<int64_t> ds, ss;
  for (int i = 0; i < 12; ++i) {
    ds.push_back(int64_t{1} << (11 - i));
    ss.push_back(int64_t{1} << i);
  }
  std::vector<int32_t> src(4096), dst(4096);
  for (int i = 0; i < 4096; ++i) src[static_cast<size_t>(i)] = i;
  EXPECT_EQ(copy_strided(4, two, dst.data(), ds, src.data(), ss), 4096 * 4);
  for (uint32_t i = 0; i < 4096; ++i) {
    uint32_t reversed = 0;
    for (int b = 0; b < 12; ++b) reversed |= (i >> b & 1) << (11 - b);
    ASSERT_EQ(dst[i], static_cast<int32_t>(reversed));
  }
}

TEST(CopyTest, RandomStrides) {
  std::mt19937 rng(3);
  for (int round = 0; round < 600; ++round) {
    Shape shape, ds, ss;
    const int ndim = static_cast<int>(rng() % 5);
    for (int d = 0; d < ndim; ++d)
      shape.push_back(static_cast<int64_t>(rng() % 7));
    for (Shape* s : {&ds, &ss}) {
      *s = Shape::filled(ndim, 0);
      std::vector<int> order;
      for (int d = 0; d < ndim; ++d) order.push_back(d);
      std::shuffle(order.begin(), order.end(), rng);
      int64_t next = 1;
      for (int d : order) {
        (*s)[d] = next;
        next *= std::max<int64_t>(shape[d], 1) + (rng() % 4 == 0);
      }
    }
    check_copy(int64_t{1} << rng() % 4, shape, ds, ss);
  }
}

template <class D, class S>
std::vector<D> cast(std::vector<S> src) {
  std::vector<D> dst(src.size());
  const Shape n{static_cast<int64_t>(src.size())};
  cast_strided(n, dtype_of<D>, dst.data(), Shape{1}, dtype_of<S>, src.data(),
               Shape{1});
  return dst;
}

TEST(CastTest, BetweenTypes) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  using I32 = std::numeric_limits<int32_t>;
  using I64 = std::numeric_limits<int64_t>;
  EXPECT_EQ((cast<int32_t, float>({1.9f, -1.9f, inf, -inf, nan, 2147483648.f,
                                   -2147483648.f, 2147483520.f})),
            (std::vector<int32_t>{1, -1, I32::max(), I32::min(), 0, I32::max(),
                                  I32::min(), 2147483520}));
  EXPECT_EQ(
      (cast<int64_t, double>({1e300, -1e300, nan, 9e18})),
      (std::vector<int64_t>{I64::max(), I64::min(), 0, 9000000000000000000}));
  EXPECT_EQ((cast<double, int32_t>({3, -4})), (std::vector<double>{3, -4}));
  EXPECT_EQ((cast<int32_t, int64_t>({5, -6})), (std::vector<int32_t>{5, -6}));
  EXPECT_EQ((cast<float, double>({0.1})), (std::vector<float>{0.1f}));
  EXPECT_EQ((cast<bf16, float>({1.f / 3}))[0].bits, bf16(1.f / 3).bits);
  EXPECT_EQ((cast<int32_t, bf16>({bf16(-7.5f)})), (std::vector<int32_t>{-7}));
  EXPECT_EQ((cast<double, bf16>({bf16(0.5f)})), (std::vector<double>{0.5}));
  EXPECT_EQ((cast<f16, float>({1.f / 3}))[0].bits, f16(1.f / 3).bits);
  EXPECT_EQ((cast<f16, double>({1e300}))[0].bits, 0x7c00);
  EXPECT_EQ((cast<f16, int64_t>({-70000, 2049}))[0].bits, 0xfc00);
  EXPECT_EQ((cast<f16, int64_t>({-70000, 2049}))[1].bits, 0x6800);
  EXPECT_EQ((cast<f16, bf16>({bf16(1e9f)}))[0].bits, 0x7c00);
  EXPECT_EQ((cast<bf16, f16>({f16(65504)}))[0].bits, bf16(65536).bits);
  EXPECT_EQ((cast<int32_t, f16>({f16(-7.5f), f16(inf)})),
            (std::vector<int32_t>{-7, I32::max()}));
  EXPECT_EQ((cast<double, f16>({f16(0.5f)})), (std::vector<double>{0.5}));
  EXPECT_EQ((cast<int8_t, float>({-1.9f, 127.5f, 200, -inf, nan})),
            (std::vector<int8_t>{-1, 127, 127, -128, 0}));
  EXPECT_EQ((cast<int8_t, bf16>({bf16(-3.5f)})), (std::vector<int8_t>{-3}));
  EXPECT_EQ((cast<bf16, int8_t>({-127}))[0].bits, bf16(-127.f).bits);
  EXPECT_EQ((cast<int8_t, int32_t>({-7, 300})), (std::vector<int8_t>{-7, 44}));
  // std::vector<bool> has no data().
  const float x[] = {0, 0.5f, -0.f, nan};
  bool b[4];
  cast_strided(Shape{4}, DType::kBool, b, Shape{1}, DType::kF32, x, Shape{1});
  EXPECT_EQ(b[0] + 2 * b[1] + 4 * b[2] + 8 * b[3], 2 + 8);
  int64_t back[4];
  cast_strided(Shape{4}, DType::kI64, back, Shape{1}, DType::kBool, b,
               Shape{1});
  EXPECT_EQ(back[1], 1);
}

TEST(CastTest, Strided) {
  std::vector<int32_t> src(12);
  for (int i = 0; i < 12; ++i) src[static_cast<size_t>(i)] = i;
  std::vector<float> dst(24, -1);
  cast_strided(Shape{4, 3}, DType::kF32, dst.data(), Shape{6, 2}, DType::kI32,
               src.data(), Shape{1, 4});
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(dst[i * 6 + j * 2], static_cast<float>(j * 4 + i));
      EXPECT_EQ(dst[i * 6 + j * 2 + 1], -1);
    }
  std::vector<int32_t> same(12);
  cast_strided(Shape{12}, DType::kI32, same.data(), Shape{1}, DType::kI32,
               src.data(), Shape{1});
  EXPECT_EQ(same, src);
}

// Combining a value with identity(), as fill() writes it, does not change it.
TEST(FillTest, Identities) {
  using enum ReduceOp;
  for (int t = 0; t < kNumDTypes; ++t)
    for (ReduceOp op : {kSum, kMax, kMin, kProd, kAny, kAll}) {
      const DType dtype = static_cast<DType>(t);
      try {
        check_reducible(op, dtype, "t");
      } catch (const Error&) {
        continue;
      }
      visit(dtype, [&]<class T>() {
        for (double v : {0., 1., 2.}) {
          T x, e;
          fill(dtype, 1, &x, v);
          fill(dtype, 1, &e, identity(op));
          const T before = x;
          combine(op, dtype, {}, &x, &e);
          EXPECT_EQ(std::memcmp(&x, &before, sizeof(T)), 0)
              << name(op) << " of " << name(dtype);
        }
      });
    }
}

TEST(FillTest, Strided) {
  std::vector<int64_t> x(12, 1);
  fill_strided(DType::kI64, Shape{3, 2}, x.data(), Shape{4, 2}, 9);
  EXPECT_EQ(x, (std::vector<int64_t>{9, 1, 9, 1, 9, 1, 9, 1, 9, 1, 9, 1}));
  fill(DType::kI64, 2, x.data(), -1e300);
  EXPECT_EQ(x[1], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(x[2], 9);
}

// Reduces any number of sources from the left, with one of them in place.
TEST(ReduceTest, ManySourcesInPlace) {
  for (int64_t k : {1, 2, 3, 4, 5, 9})
    for (int64_t n : {1, 7, 64, 1023, 1024, 2500})
      for (int64_t in_place = -1; in_place < k; ++in_place)
        for (int64_t stride : {1, 2}) {
          std::vector<std::vector<float>> s;
          std::vector<Operand> operands;
          const int64_t strides[] = {stride};
          for (int64_t j = 0; j < k; ++j) {
            s.emplace_back(static_cast<size_t>(n * 2));
            for (size_t i = 0; i < s.back().size(); ++i)
              s.back()[i] = std::sin(static_cast<float>(j * 1000) +
                                     static_cast<float>(i));
          }
          std::vector<float> want(static_cast<size_t>(n)),
              out(static_cast<size_t>(n * 2));
          for (size_t i = 0; i < want.size(); ++i) {
            const size_t at = i * static_cast<size_t>(stride);
            want[i] = s[0][at];
            for (size_t j = 1; j < s.size(); ++j) want[i] += s[j][at];
          }
          for (auto& v : s) operands.push_back({v.data(), strides});
          float* dst = in_place < 0 ? out.data()
                                    : s[static_cast<size_t>(in_place)].data();
          EXPECT_EQ(reduce_strided(ReduceOp::kSum, DType::kF32, Shape{n}, dst,
                                   strides, operands, k),
                    n * 4);
          for (size_t i = 0; i < want.size(); ++i)
            ASSERT_EQ(dst[i * static_cast<size_t>(stride)], want[i])
                << k << " sources of " << n;
        }
}

// So many bytes that they are written past the cache, to and from odd
// addresses.
TEST(StreamingTest, CopiesRuns) {
  constexpr int64_t kRows = 2101, kRow = 4099, kGap = 5, kOff = 3;
  std::vector<char> src(kRows * kRow + kOff),
      dst(kRows * (kRow + kGap) + kOff, 7);
  for (size_t i = 0; i < src.size(); ++i)
    src[i] = static_cast<char>(i * 131 + i / 251);
  std::vector<char> want = dst;
  for (int64_t r = 0; r < kRows; ++r)
    std::memcpy(want.data() + kOff + r * (kRow + kGap), src.data() + r * kRow,
                kRow);
  EXPECT_EQ(copy_strided(1, Shape{kRows, kRow}, dst.data() + kOff,
                         Shape{kRow + kGap, 1}, src.data(), Shape{kRow, 1}),
            kRows * kRow);
  EXPECT_TRUE(dst == want);
}

TEST(StreamingTest, ReducesTheSameBits) {
  for (const int k : {2, 5})
    for (const int64_t n : {int64_t{1000}, int64_t{2'100'001}}) {
      std::vector<std::vector<float>> in(static_cast<size_t>(k));
      for (size_t j = 0; j < in.size(); ++j)
        for (int64_t i = 0; i < n; ++i)
          in[j].push_back(static_cast<float>(i % 1013) /
                          static_cast<float>(j + 3));
      std::vector<float> want(static_cast<size_t>(n));
      for (size_t i = 0; i < want.size(); ++i) {
        want[i] = in[0][i];
        for (size_t j = 1; j < in.size(); ++j) want[i] += in[j][i];
        want[i] /= 7;
      }
      const int64_t unit[] = {1}, shape[] = {n};
      std::vector<Operand> operands;
      std::vector<const char*> srcs;
      for (const auto& x : in) {
        operands.push_back({x.data(), unit});
        srcs.push_back(reinterpret_cast<const char*>(x.data()));
      }
      const auto bytes = static_cast<int64_t>(sizeof(float)) * n;
      std::vector<float> one(want.size() + 1, -1);
      EXPECT_EQ(reduce_strided(ReduceOp::kAvg, DType::kF32, shape,
                               one.data() + 1, unit, operands, 7),
                bytes);
      EXPECT_EQ(one[0], -1);
      EXPECT_TRUE(std::equal(want.begin(), want.end(), one.begin() + 1));
      // Into several places, then also into one that is a source.
      std::vector<float> two(want.size() + 1, -1), three(want.size(), -1);
      char* dsts[] = {reinterpret_cast<char*>(two.data() + 1),
                      reinterpret_cast<char*>(three.data())};
      EXPECT_EQ(reduce_into_all(ReduceOp::kAvg, DType::kF32, n, dsts, srcs, 7),
                bytes);
      EXPECT_EQ(two[0], -1);
      EXPECT_TRUE(std::equal(want.begin(), want.end(), two.begin() + 1));
      EXPECT_TRUE(want == three);
      std::fill(two.begin(), two.end(), -1.f);
      dsts[1] = reinterpret_cast<char*>(in[1].data());
      EXPECT_EQ(reduce_into_all(ReduceOp::kAvg, DType::kF32, n, dsts, srcs, 7),
                bytes);
      EXPECT_EQ(two[0], -1);
      EXPECT_TRUE(std::equal(want.begin(), want.end(), two.begin() + 1));
      EXPECT_TRUE(want == in[1]);
    }
}

// In f32, rounded once: intermediate sums may be too large for f16.
TEST(ReduceTest, HalvesMeetInF32) {
  for (int64_t n : {1, 40, 3000})
    for (int64_t k : {2, 3, 4, 7}) {
      std::vector<std::vector<f16>> s;
      std::vector<Operand> operands;
      const int64_t strides[] = {1};
      for (int64_t j = 0; j < k; ++j) {
        s.emplace_back(static_cast<size_t>(n), f16(60000.f));
        if (j == k - 1)
          for (f16& x : s.back()) x = f16(60000.f - 32);
      }
      for (auto& v : s) operands.push_back({v.data(), strides});
      std::vector<f16> out(static_cast<size_t>(n));
      reduce_strided(ReduceOp::kAvg, DType::kF16, Shape{n}, out.data(), strides,
                     operands, k);
      const float want = 60000.f - 32.f / static_cast<float>(k);
      for (f16 x : out) ASSERT_EQ(x.bits, f16(want).bits) << k;
      // 2048 + 1 is a tie, 2048 + 1 + 1 is none.
      for (auto& v : s) v.assign(v.size(), f16(1));
      s[0].assign(s[0].size(), f16(2048));
      reduce_strided(ReduceOp::kSum, DType::kF16, Shape{n}, out.data(), strides,
                     operands, k);
      for (f16 x : out)
        ASSERT_EQ(x.bits, f16(2048 + static_cast<float>(k - 1)).bits) << k;
    }
}

TEST(ReduceTest, NaNWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
    float x[] = {nan, 1, 2}, y[] = {1, nan, 3};
    combine(op, DType::kF32, {3}, x, y);
    EXPECT_TRUE(std::isnan(x[0]) && std::isnan(x[1]));
    EXPECT_EQ(x[2], op == ReduceOp::kMax ? 3 : 2);
  }
}

TEST(ReduceTest, IntegersWrapAround) {
  int32_t x = std::numeric_limits<int32_t>::max(), one = 1;
  combine(ReduceOp::kSum, DType::kI32, {}, &x, &one);
  EXPECT_EQ(x, std::numeric_limits<int32_t>::min());
}

}  // namespace
}  // namespace dtensor
