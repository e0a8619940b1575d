// SPDX-License-Identifier: Apache-2.0
// Each product is compared, bit for bit, with a scalar program that follows the
// definition.
#include "dtensor/ops/kernels/cpu/leaf_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace dtensor::kernels::cpu {
namespace {

// A matrix in memory of just its size.
template <class T>
struct Matrix {
  int64_t rows, cols, row, col;
  std::vector<T> values;

  // Row-major, column-major, padded rows, or strides in both dimensions.
  Matrix(int64_t rows, int64_t cols, int layout = 0) : rows(rows), cols(cols) {
    row = layout == 0 ? cols : layout == 1 ? 1 : layout == 2 ? cols + 3 : 2;
    col = layout == 0 || layout == 2 ? 1 : layout == 1 ? rows : 2 * rows + 1;
    if (rows > 0 && cols > 0)
      values.resize(
          static_cast<size_t>((rows - 1) * row + (cols - 1) * col + 1));
  }
  // Numbers of many magnitudes around `scale`, and zeros of both signs.
  Matrix random(unsigned seed, double scale = 1) && {
    std::mt19937 bits(seed);
    for (T& x : values) {
      const uint32_t r = bits();
      const double y = std::ldexp(static_cast<double>(r >> 8),
                                  static_cast<int>(r % 13) - 30);
      x = static_cast<T>(r % 61 == 0 ? 0 : y * scale) *
          (r & 128 ? T(-1) : T(1));
    }
    return std::move(*this);
  }
  T& at(int64_t i, int64_t j) {
    return values[static_cast<size_t>(i * row + j * col)];
  }
  Mat<T> mat() { return {values.data(), row, col}; }
  Mat<const T> read() const { return {values.data(), row, col}; }
};

template <class T>
T leaf(Mat<const T> a, Mat<const T> b, int64_t i, int64_t j, int64_t begin,
       int64_t end) {
  const T* x = a.p + i * a.row + begin * a.col;
  const T* y = b.p + begin * b.row + j * b.col;
  T sum = 0;
  for (int64_t k = begin; k < end; ++k, x += a.col, y += b.row)
    sum = std::fma(*x, *y, sum);
  return sum;
}
// An element of the product, or `before` plus it.
template <class T>
T product(Mat<const T> a, Mat<const T> b, int64_t i, int64_t j, int64_t k,
          std::optional<T> before) {
  Exact sum;
  std::optional<T> in_turn = before;
  for (int64_t p = 0; p < k || p == 0; p += 128) {
    const T x = leaf(a, b, i, j, p, std::min(k, p + 128));
    sum.add(x);
    in_turn = in_turn ? *in_turn + x : x;
  }
  if (std::is_same_v<T, double> || k <= 128) return *in_turn;
  const T rounded = static_cast<T>(sum.value());
  return before ? *before + rounded : rounded;
}
template <class T>
bool same(T x, T y) {
  return std::memcmp(&x, &y, sizeof(T)) == 0;
}

struct Case {
  int64_t m, n, k;
  int a = 0, b = 0, c = 0;  // layouts
  bool accumulate = false;
  double scale = 1;
};
std::ostream& operator<<(std::ostream& out, const Case& t) {
  return out << t.m << "x" << t.n << "x" << t.k << ", layouts " << t.a << t.b
             << t.c << ", accumulate " << t.accumulate << ", scale " << t.scale;
}

// Operands of S, or of T that are rounded to S.
template <class T, class S>
void expect_defined(const Case& t) {
  auto a = Matrix<T>(t.m, t.k, t.a).random(1, t.scale);
  auto b = Matrix<T>(t.k, t.n, t.b).random(2);
  auto c = Matrix<T>(t.m, t.n, t.c).random(3, t.scale);
  auto want = c;
  std::vector<S> halves[2];
  for (auto& [half, x] : {std::tie(halves[0], a), std::tie(halves[1], b)})
    for (T& v : x.values) v = static_cast<T>(half.emplace_back(S(v)));
  leaf_gemm<S>(t.m, t.n, t.k, {halves[0].data(), a.row, a.col},
               {halves[1].data(), b.row, b.col}, c.mat(), t.accumulate);
  for (int64_t i = 0; i < t.m; ++i)
    for (int64_t j = 0; j < t.n; ++j) {
      T& x = want.at(i, j);
      x = product(a.read(), b.read(), i, j, t.k,
                  t.accumulate ? std::optional(x) : std::nullopt);
      ASSERT_TRUE(same(c.at(i, j), x))
          << c.at(i, j) << " instead of " << x << " at " << i << ", " << j
          << " of " << sizeof(T) << " bytes, " << t;
    }
  // Nor does it write between the elements.
  ASSERT_TRUE(std::ranges::equal(c.values, want.values, same<T>)) << t;
}
void expect_all_defined(const Case& t) {
  expect_defined<float, float>(t);
  expect_defined<double, double>(t);
  expect_defined<float, bf16>(t);
  expect_defined<float, f16>(t);
}

TEST(LeafGemmTest, AllNumbersOfRowsAndColumns) {
  for (int64_t size = 1; size <= 70; ++size) {
    const int layout = static_cast<int>(size % 4);
    expect_all_defined({size, 37, 130, layout % 2, layout / 2});
    expect_all_defined({37, size, 130, layout % 2, layout / 2});
    expect_all_defined({19, 35, size, layout % 2, layout / 2});
    expect_all_defined({size, size, 2 * size + 1, layout / 2, layout % 2});
    if (HasFatalFailure()) return;
  }
}

TEST(LeafGemmTest, NumbersOfLeaves) {
  for (int64_t k : {0, 1, 127, 128, 129, 255, 256, 257, 640, 1023, 1024, 1153,
                    2047, 2048, 2049, 4096, 4225, 11008})
    for (int64_t m : {1, 5, 29})
      for (bool accumulate : {false, true}) {
        expect_all_defined({m, 33, k, 0, 1, 0, accumulate});
        expect_all_defined({m, 17, k, 0, 0, 0, accumulate});
        if (HasFatalFailure()) return;
      }
}

TEST(LeafGemmTest, AllLayouts) {
  const int64_t sizes[][3] = {{31, 65, 300}, {3, 70, 129}, {70, 3, 129},
                              {40, 64, 48},  {14, 32, 16}, {1, 1, 500}};
  for (const auto& s : sizes)
    for (int a = 0; a < 4; ++a)
      for (int b = 0; b < 4; ++b)
        for (int c = 0; c < 4; ++c) {
          expect_all_defined({s[0], s[1], s[2], a, b, c, (a + b + c) % 2 == 0});
          if (HasFatalFailure()) return;
        }
}

TEST(LeafGemmTest, SeveralBlocks) {
  expect_defined<float, float>({1100, 40, 1100});
  expect_defined<float, float>({530, 34, 2100, 1, 0, 0, true});
  expect_defined<float, float>({16, 2100, 260, 0, 1});
}

TEST(LeafGemmTest, NumbersOfAllMagnitudes) {
  for (double scale : {0x1p-70, 0x1p40, 0x1p100, 0x1p110})
    for (int64_t k : {260, 640, 2300})
      expect_defined<float, float>({29, 35, k, 0, 1, 0, k == 640, scale});
}

TEST(LeafGemmTest, DenormalNumbersAreKept) {
  for (int64_t k : {40, 300})
    expect_defined<float, float>({33, 40, k, 0, 1, 0, true, 0x1p-135});
  expect_defined<double, double>({33, 40, 300, 0, 1, 0, true, 0x1p-1060});
}

TEST(LeafGemmTest, RowsAloneAndInOtherThreads) {
  const auto a = Matrix<float>(64, 1500).random(1);
  const auto b = Matrix<float>(1500, 70, 1).random(2);
  Matrix<float> all(64, 70), parts(64, 70);
  leaf_gemm<float>(64, 70, 1500, a.read(), b.read(), all.mat(), false);
  for (int64_t rows : {1, 4, 16, 32}) {
    std::vector<std::jthread> threads;
    for (int64_t i = 0; i < 64; i += rows)
      threads.emplace_back([&, i] {
        leaf_gemm<float>(rows, 70, 1500, {&a.values[size_t(i) * 1500], 1500, 1},
                         b.read(), {&parts.at(i, 0), 70, 1}, false);
      });
    threads.clear();
    EXPECT_EQ(parts.values, all.values) << rows;
  }
}

// --- Exact sums --------------------------------------------------------------

// Adds the leaves in a scalar program, the last first.
void add_leaves(int64_t m, int64_t n, int64_t k, Mat<const float> a,
                Mat<const float> b, Mat<Exact> c) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t g = (k + 127) / 128 - 1; g >= 0; --g)
        c.p[i * c.row + j * c.col].add(static_cast<double>(
            leaf(a, b, i, j, g * 128, std::min(k, g * 128 + 128))));
}

// `before`: adds to sums of other numbers, of all magnitudes.
void expect_exact(const Case& t, bool before = false) {
  const auto a = Matrix<float>(t.m, t.k, t.a).random(1, t.scale);
  const auto b = Matrix<float>(t.k, t.n, t.b).random(2);
  Matrix<Exact> c(t.m, t.n, t.c);
  if (before)
    for (size_t i = 0; i < c.values.size(); i += 2)
      c.values[i].add(std::ldexp(1.25, static_cast<int>(i % 199) - 99));
  auto want = c;
  if (!before) {
    for (int64_t i = 0; i < t.m; ++i)
      for (int64_t j = 0; j < t.n; ++j) c.at(i, j) = Exact(7);
  }
  add_leaves(t.m, t.n, t.k, a.read(), b.read(), want.mat());
  leaf_gemm_exact(t.m, t.n, {t.k}, a.read(), b.read(), c.mat(), before);
  for (size_t i = 0; i < c.values.size(); ++i)
    ASSERT_TRUE(same(c.values[i], want.values[i]))
        << c.values[i].value() << " instead of " << want.values[i].value()
        << " at " << i << " of " << t << ", before " << before;
}

TEST(LeafGemmExactTest, AddsEachLeaf) {
  for (int64_t size = 1; size <= 70; ++size) {
    const int layout = static_cast<int>(size % 4);
    expect_exact({size, 37, 130, layout % 2, layout / 2}, size % 3 == 0);
    expect_exact({37, size, 258, layout % 2, layout / 2}, size % 3 == 1);
    if (HasFatalFailure()) return;
  }
  for (int64_t k : {0, 1, 127, 128, 129, 640, 1100, 2049, 4225})
    for (int layout = 0; layout < 4; ++layout)
      for (double scale : {1.0, 0x1p-70, 0x1p-135, 0x1p60}) {
        expect_exact({29, 35, k, layout, 3 - layout, layout, false, scale},
                     layout % 2 == 0);
        if (HasFatalFailure()) return;
      }
}

TEST(LeafGemmExactTest, PartsInAnyOrderGiveTheSameBytes) {
  const int64_t m = 45, n = 67, k = 1500;
  const auto a = Matrix<float>(m, k, 1).random(1);
  const auto b = Matrix<float>(k, n).random(2);
  Matrix<Exact> whole(m, n);
  leaf_gemm_exact(m, n, {k}, a.read(), b.read(), whole.mat());
  const auto part = [&](int64_t begin, int64_t end, Mat<Exact> c) {
    leaf_gemm_exact<float>(m, n, {end - begin},
                           {&a.values[size_t(begin * m)], a.row, a.col},
                           {&b.values[size_t(begin * n)], b.row, b.col}, c);
  };
  // Added to the same sums, or to others that are added then.
  Matrix<Exact> same_sums(m, n), first(m, n), second(m, n);
  part(1280, k, same_sums.mat());
  part(256, 1280, same_sums.mat());
  part(0, 256, same_sums.mat());
  part(896, k, first.mat());
  part(0, 896, second.mat());
  for (size_t i = 0; i < whole.values.size(); ++i) {
    second.values[i].add(first.values[i]);
    ASSERT_TRUE(same(same_sums.values[i], whole.values[i])) << i;
    ASSERT_TRUE(same(second.values[i], whole.values[i])) << i;
  }
}

TEST(LeafGemmExactTest, ListedLeaves) {
  const int64_t m = 33, n = 70, k = 5000;
  const auto a = Matrix<float>(m, k, 1).random(1);
  const auto b = Matrix<float>(k, n).random(2);
  std::mt19937 random(3);
  std::vector<int64_t> ends;
  for (int64_t at = 0; at < k;)
    ends.push_back(at = std::min<int64_t>(k, at + 1 + random() % 128));
  Matrix<Exact> c(m, n), want(m, n);
  leaf_gemm_exact(m, n, {k, ends}, a.read(), b.read(), c.mat(), false);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (size_t g = 0; g < ends.size(); ++g)
        want.at(i, j).add(static_cast<double>(
            leaf(a.read(), b.read(), i, j, g ? ends[g - 1] : 0, ends[g])));
  for (size_t i = 0; i < c.values.size(); ++i)
    ASSERT_TRUE(same(c.values[i], want.values[i])) << i;
}

TEST(LeafGemmExactTest, LeavesAtTheLimitsOfBins) {
  const int64_t m = 3, n = 700;
  std::mt19937 random(4);
  for (int64_t leaves : {1, 3, 4, 8, 13, 37}) {
    const int64_t k = leaves * 128;
    auto a = Matrix<float>(m, k), b = Matrix<float>(k, n);
    for (int64_t g = 0; g < leaves; ++g) {
      for (int64_t i = 0; i < m; ++i) a.at(i, g * 128) = 1;
      for (int64_t j = 0; j < n; ++j) {
        // Many of these are in the middle between two multiples of a grid.
        const float x = random() % 4 == 0 ? 0 : random() % 2 ? 1.0f : -1.5f;
        const int spread = j % 3 == 0 ? 1 : 3;
        b.at(g * 128, j) =
            std::ldexp(x, 26 * static_cast<int>(random() % spread) +
                              static_cast<int>(random() % 4) - 2);
      }
    }
    Matrix<Exact> c(m, n), want(m, n);
    for (int again = 0; again < 2; ++again) {
      add_leaves(m, n, k, a.read(), b.read(), want.mat());
      leaf_gemm_exact(m, n, {k}, a.read(), b.read(), c.mat(), again == 1);
      for (size_t i = 0; i < c.values.size(); ++i)
        ASSERT_TRUE(same(c.values[i], want.values[i])) << i << ", " << leaves;
    }
  }
}

TEST(LeafGemmExactTest, InfinitiesNansAndZeros) {
  const int64_t m = 20, n = 40, k = 300;
  auto a = Matrix<float>(m, k).random(1);
  auto b = Matrix<float>(k, n).random(2);
  const float infinity = std::numeric_limits<float>::infinity();
  for (float& x : b.values)
    if (x == 0) x = 1;
  a.at(1, 200) = infinity;
  a.at(2, 3) = std::numeric_limits<float>::quiet_NaN();
  a.at(3, 3) = infinity, a.at(3, 200) = -infinity;
  a.at(4, 7) = 3e38f;  // a leaf overflows
  for (int64_t p = 0; p < k; ++p) a.at(5, p) = 0;
  Matrix<Exact> c(m, n), want(m, n);
  add_leaves(m, n, k, a.read(), b.read(), want.mat());
  leaf_gemm_exact(m, n, {k}, a.read(), b.read(), c.mat());
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const double x = c.at(i, j).value(), y = want.at(i, j).value();
      if (std::isfinite(y))
        ASSERT_TRUE(same(c.at(i, j), want.at(i, j))) << i << ", " << j;
      else
        ASSERT_TRUE(x == y || (x != x && y != y)) << x << " not " << y;
    }
  EXPECT_TRUE(same(c.at(5, 0), Exact()));
  Matrix<float> rounded(m, n);
  leaf_gemm<float>(m, n, k, a.read(), b.read(), rounded.mat(), false);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const float x = rounded.at(i, j), y = float(want.at(i, j).value());
      ASSERT_TRUE(x == y || (x != x && y != y)) << x << " not " << y;
    }
  EXPECT_TRUE(std::isinf(c.at(1, 0).value()));
}

}  // namespace
}  // namespace dtensor::kernels::cpu
