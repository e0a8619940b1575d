// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/placement/error.h"
#include "tests/ops/kernels/testing.h"
#include "tests/ops/reference.h"

namespace dtensor::kernels {
namespace {

// Runs the kernel and the reference on the same memory contents, with the
// strides in `g`. Fills in the pointers.
void expect_matches(DType in, DType out, Gemm g, int64_t a_size, int64_t b_size,
                    int64_t c_size, unsigned seed = 1) {
  const bool whole = !is_float(in);
  const Elements a =
      Elements::random(in, a_size, whole ? -9 : -1, whole ? 9 : 1, seed);
  const Elements b =
      Elements::random(in, b_size, whole ? -9 : -1, whole ? 9 : 1, seed + 1);
  Elements c =
      Elements::random(out, c_size, whole ? -9 : -1, whole ? 9 : 1, seed + 2);
  const Elements a64(DType::kF64, a.doubles()), b64(DType::kF64, b.doubles());
  Elements c64(DType::kF64, c.doubles());
  g.a = a64.data();
  g.b = b64.data();
  g.c = c64.data();
  reference::gemm(g);
  g.type = in, g.c_type = out;
  g.a = a.data();
  g.b = b.data();
  g.c = c.data();
  run(g);
  const double k = std::sqrt(static_cast<double>(g.k + 1));
  const double tol = out == DType::kF64    ? 1e-14 * k
                     : out == DType::kF32  ? 1e-6 * k
                     : out == DType::kBF16 ? 1.0 / 128
                     : out == DType::kF16  ? 1.0 / 1024
                                           : 0;
  ASSERT_TRUE(near(c, c64.doubles(), tol))
      << g.m << "x" << g.n << "x" << g.k << " batch " << to_string(g.batch)
      << " a " << g.a_m << "," << g.a_k << " b " << g.b_k << "," << g.b_n
      << " c " << g.c_m << "," << g.c_n << " accumulate " << g.accumulate;
}

constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kBF16,
                            DType::kF16, DType::kI32, DType::kI64};

// Strides of a [rows, cols] matrix: row-major, column-major, padded, neither.
struct MatrixLayout {
  int64_t row, col, size;
};
MatrixLayout matrix(int kind, int64_t rows, int64_t cols) {
  switch (kind) {
    case 0:
      return {cols, 1, rows * cols};
    case 1:
      return {1, rows, rows * cols};
    case 2:
      return {cols + 3, 1, rows * (cols + 3)};
    case 3:
      return {2, 2 * rows + 2, (2 * rows + 2) * cols};
    case 4:
      return {0, 1, cols};  // one row, broadcast
    default:
      return {1, 0, rows};  // one column, broadcast
  }
}

TEST(GemmTest, SizesAndTranspositions) {
  const int64_t sizes[][3] = {
      {1, 1, 1},
      {8, 8, 8},
      {7, 5, 3},
      {1, 33, 17},
      {31, 1, 19},
      {16, 16, 16},
      {13, 300, 1},
      {67, 71, 37},
      {129, 65, 130},
      {1, 1, 5000},
      {3, 1, 1025},
      {40, 40, 0},
      {0, 5, 5},
      {5, 0, 5},
      // Few rows times a matrix that fits the cache, and a larger one.
      {7, 41, 37},
      {3, 703, 385}};
  for (DType t : kTypes)
    for (const auto& s : sizes)
      for (int ka = 0; ka < 4; ++ka)
        for (int kb = 0; kb < 4; ++kb)
          for (int kc = 0; kc < 4; ++kc)
            for (bool accumulate : {false, true}) {
              // Combine all layouts of a, b and c only if the product is cheap.
              if (s[0] * s[1] * s[2] > 100000 && ka && kb && kc) continue;
              Gemm g;
              g.m = s[0];
              g.n = s[1];
              g.k = s[2];
              const MatrixLayout a = matrix(ka, g.m, g.k);
              const MatrixLayout b = matrix(kb, g.k, g.n);
              const MatrixLayout c = matrix(kc, g.m, g.n);
              g.a_m = a.row, g.a_k = a.col;
              g.b_k = b.row, g.b_n = b.col;
              g.c_m = c.row, g.c_n = c.col;
              g.accumulate = accumulate;
              expect_matches(t, t, g, a.size, b.size, c.size);
              if (HasFatalFailure()) return;
              if (is_half_float(t))
                expect_matches(t, DType::kF32, g, a.size, b.size, c.size);
              if (HasFatalFailure()) return;
            }
}

// All numbers of rows that are cut into tiles differently, and some larger
// ones.
TEST(GemmTest, FewRowsTimesATranspose) {
  for (DType t : kFloats)
    for (int64_t m = 1; m <= 35; ++m)
      for (int64_t pad : {0, 3}) {
        Gemm g;
        g.m = m, g.n = 43, g.k = 261;
        g.a_m = g.k + pad, g.a_k = 1;
        g.b_k = 1, g.b_n = g.k + pad;
        g.c_m = g.n + pad, g.c_n = 1;
        expect_matches(t, t, g, m * g.a_m, g.n * g.b_n, m * g.c_m);
        if (HasFatalFailure()) return;
      }
}

TEST(GemmTest, BroadcastWithinAMatrix) {
  for (DType t : kTypes)
    for (int64_t n : {3, 41})
      for (int ka : {4, 5})
        for (int kb : {4, 5}) {
          Gemm g;
          g.m = n + 1, g.n = n + 2, g.k = n;
          const MatrixLayout a = matrix(ka, g.m, g.k), b = matrix(kb, g.k, g.n);
          g.a_m = a.row, g.a_k = a.col, g.b_k = b.row, g.b_n = b.col;
          g.c_m = g.n, g.c_n = 1;
          expect_matches(t, t, g, a.size, b.size, g.m * g.n);
          if (HasFatalFailure()) return;
        }
}

TEST(GemmTest, Batches) {
  for (DType t : kTypes)
    for (int64_t n : {2, 19}) {
      Gemm g;
      g.m = n, g.n = n + 1, g.k = n + 2;
      g.a_m = g.k, g.a_k = 1, g.b_k = g.n, g.b_n = 1, g.c_m = g.n, g.c_n = 1;
      const int64_t a = g.m * g.k, b = g.k * g.n, c = g.m * g.n;
      // All dense.
      g.batch = {2, 3};
      g.a_batch_strides = {3 * a, a};
      g.b_batch_strides = {3 * b, b};
      g.c_batch_strides = {3 * c, c};
      expect_matches(t, t, g, 6 * a, 6 * b, 6 * c);
      // A weight: one product.
      g.b_batch_strides = {0, 0};
      expect_matches(t, t, g, 6 * a, b, 6 * c);
      // a broadcast.
      g.a_batch_strides = {0, 0};
      g.b_batch_strides = {3 * b, b};
      expect_matches(t, t, g, a, 6 * b, 6 * c);
      // Each broadcast over another dimension, the batch transposed in c.
      g.a_batch_strides = {a, 0};
      g.b_batch_strides = {0, b};
      g.c_batch_strides = {c, 2 * c};
      expect_matches(t, t, g, 2 * a, 3 * b, 6 * c);
      // Sums over batch dimensions: one that continues k, one that does not.
      g.a_batch_strides = {3 * a, a};
      g.b_batch_strides = {3 * b, b};
      for (bool accumulate : {false, true}) {
        g.accumulate = accumulate;
        g.c_batch_strides = {0, 0};
        expect_matches(t, t, g, 6 * a, 6 * b, c);
        g.c_batch_strides = {c, 0};
        expect_matches(t, t, g, 6 * a, 6 * b, 2 * c);
        g.c_batch_strides = {0, c};
        expect_matches(t, t, g, 6 * a, 6 * b, 3 * c);
        if (is_half_float(t))
          expect_matches(t, DType::kF32, g, 6 * a, 6 * b, 3 * c);
      }
      if (HasFatalFailure()) return;
    }
}

TEST(GemmTest, FourBatchDimensionsAsAttentionHasThem) {
  // [b, s, h, d] operands walked as batch [b, h].
  const int64_t b = 2, s = 37, h = 3, d = 8;
  for (DType t : kTypes) {
    Gemm g;
    g.batch = {b, 1, h, 1};
    g.m = g.n = s;
    g.k = d;
    g.a_batch_strides = g.b_batch_strides = {s * h * d, 5, d, 9};
    g.a_m = h * d, g.a_k = 1;
    g.b_k = 1, g.b_n = h * d;
    g.c_batch_strides = {h * s * s, 1, s * s, 1};
    g.c_m = s, g.c_n = 1;
    expect_matches(t, t, g, b * s * h * d, b * s * h * d, b * h * s * s);
    if (HasFatalFailure()) return;
  }
}

TEST(GemmTest, TheGradientOfAWeightSumsItsBatchInOneProduct) {
  // dw[k,n] = sum over b, s of x[b,s,k] dy[b,s,n]: the batch continues k.
  const int64_t b = 3, s = 29, k = 23, n = 31;
  for (DType t : kTypes) {
    Gemm g;
    g.batch = {b};
    g.m = k, g.n = n, g.k = s;
    g.a_batch_strides = {s * k}, g.a_m = 1, g.a_k = k;
    g.b_batch_strides = {s * n}, g.b_k = n, g.b_n = 1;
    g.c_batch_strides = {0}, g.c_m = n, g.c_n = 1;
    expect_matches(t, t, g, b * s * k, b * s * n, k * n);
    if (HasFatalFailure()) return;
  }
}

// The kernel packs such a b as a whole, at every call.
TEST(GemmTest, LargeProductsOfBf16) {
  for (const bool wide : {false, true}) {
    Gemm g;
    g.m = 517, g.n = 1031, g.k = 519;
    const MatrixLayout a = matrix(wide, g.m, g.k),
                       b = matrix(wide ? 2 : 0, g.k, g.n);
    g.a_m = a.row, g.a_k = a.col;
    g.b_k = b.row, g.b_n = b.col;
    g.c_m = g.n, g.c_n = 1;
    g.accumulate = wide;
    for (unsigned seed : {1, 5}) {
      expect_matches(DType::kBF16, wide ? DType::kF32 : DType::kBF16, g, a.size,
                     b.size, g.m * g.n, seed);
      if (HasFatalFailure()) return;
    }
  }
}

// c is small and each element sums many products; the batch does not continue
// k.
TEST(GemmTest, LongSumsOverTheBatch) {
  const int64_t m = 3, n = 5, k = 700;
  for (DType t : kTypes)
    for (bool accumulate : {false, true}) {
      Gemm g;
      g.batch = {2, 4};
      g.m = m, g.n = n, g.k = k;
      g.a_batch_strides = {4 * m * k, m * k}, g.a_m = k, g.a_k = 1;
      g.b_batch_strides = {4 * k * n, k * n}, g.b_k = n, g.b_n = 1;
      g.c_batch_strides = {m * n, 0}, g.c_m = 1, g.c_n = m;
      g.accumulate = accumulate;
      expect_matches(t, t, g, 8 * m * k, 8 * k * n, 2 * m * n);
      if (HasFatalFailure()) return;
    }
}

TEST(GemmTest, EmptyBatches) {
  for (DType t : kTypes) {
    Gemm g;
    g.batch = {0};
    g.m = g.n = g.k = 3;
    g.a_batch_strides = g.b_batch_strides = g.c_batch_strides = {9};
    g.a_m = g.b_k = g.c_m = 3, g.a_k = g.b_n = g.c_n = 1;
    expect_matches(t, t, g, 0, 0, 0);
    g.c_batch_strides = {0};  // an empty sum
    expect_matches(t, t, g, 0, 0, 9);
    g.accumulate = true;
    expect_matches(t, t, g, 0, 0, 9);
    if (HasFatalFailure()) return;
  }
}

TEST(GemmTest, NaNAndInfinityReachTheResult) {
  for (DType t : kFloats)
    for (int64_t n : {4, 40}) {
      Elements a(t, n * n, 0), b(t, n * n, 1), c(t, n * n);
      a.set(0, NAN);
      a.set(n, INFINITY);
      Gemm g{.type = t, .c_type = t};
      g.m = g.n = g.k = n;
      g.a_m = g.b_k = g.c_m = n, g.a_k = g.b_n = g.c_n = 1;
      g.a = a.data(), g.b = b.data(), g.c = c.data();
      run(g);
      EXPECT_TRUE(std::isnan(c[0]));
      EXPECT_EQ(c[n], INFINITY);
      EXPECT_EQ(c[2 * n], 0);
    }
}

// --- Epilogues --------------------------------------------------------------

// Compares the kernel's c, aux and sums with the reference's, including the
// elements of padding.
void expect_finished(DType t, Gemm g, int64_t a_size, int64_t b_size,
                     int64_t c_size, bool with_bias = true) {
  const Elements a = Elements::random(t, a_size, -1, 1, 1),
                 b = Elements::random(t, b_size, -1, 1, 2),
                 bias = Elements::random(t, g.n, -2, 2, 3);
  Elements c(t, c_size, 5), aux = Elements::random(t, c_size, -4, 4, 4),
                            sum(t, g.n, 9);
  const Elements a64(DType::kF64, a.doubles()), b64(DType::kF64, b.doubles()),
      bias64(DType::kF64, bias.doubles());
  Elements c64(DType::kF64, c_size, 5), aux64(DType::kF64, aux.doubles()),
      sum64(DType::kF64, g.n, 9);
  const auto point = [&](const Elements& a, const Elements& b,
                         const Elements& bias, Elements& c, Elements& aux,
                         Elements& sum) {
    g.a = a.data(), g.b = b.data(), g.c = c.data();
    g.epilogue.bias = with_bias ? bias.data() : nullptr;
    g.epilogue.aux = aux.data();
    g.epilogue.b_sum = sum.data();
  };
  point(a64, b64, bias64, c64, aux64, sum64);
  reference::gemm(g);
  point(a, b, bias, c, aux, sum);
  g.type = g.c_type = t;
  run(g);
  const double k = std::sqrt(static_cast<double>(g.k + 1));
  const double tol = t == DType::kF64    ? 1e-14 * k
                     : t == DType::kF32  ? 2e-6 * k
                     : t == DType::kBF16 ? 3.0 / 128
                                         : 3.0 / 1024;
  SCOPED_TRACE(testing::Message()
               << "epilogue " << int{g.epilogue.kind} << ", " << g.m << "x"
               << g.n << "x" << g.k << " batch " << to_string(g.batch) << " c "
               << g.c_m << "," << g.c_n);
  ASSERT_TRUE(near(c, c64.doubles(), tol));
  ASSERT_TRUE(near(aux, aux64.doubles(), tol)) << "aux";
  ASSERT_TRUE(near(sum, sum64.doubles(), tol)) << "sum";
}

constexpr Epilogue::Kind kEpilogues[] = {Epilogue::kBias, Epilogue::kGeluTanh,
                                         Epilogue::kSumB};

TEST(EpilogueTest, SizesAndLayouts) {
  const int64_t sizes[][3] = {{1, 1, 1},     {8, 16, 8}, {7, 5, 3}, {3, 600, 2},
                              {33, 65, 130}, {5, 7, 0},  {0, 5, 5}, {5, 0, 5}};
  for (DType t : kFloats)
    for (const auto& s : sizes)
      for (int kc = 0; kc < 4; ++kc)
        for (int kb : {0, 1}) {
          Gemm g;
          g.m = s[0], g.n = s[1], g.k = s[2];
          const MatrixLayout b = matrix(kb, g.k, g.n), c = matrix(kc, g.m, g.n);
          g.a_m = g.k, g.a_k = 1;
          g.b_k = b.row, g.b_n = b.col;
          g.c_m = c.row, g.c_n = c.col;
          for (Epilogue::Kind kind : kEpilogues) {
            g.epilogue.kind = kind;
            expect_finished(t, g, g.m * g.k, b.size, c.size);
            if (HasFatalFailure()) return;
          }
          g.epilogue.kind = Epilogue::kGeluTanh;
          expect_finished(t, g, g.m * g.k, b.size, c.size, false);
          if (HasFatalFailure()) return;
        }
}

TEST(EpilogueTest, Batches) {
  for (DType t : kFloats)
    for (int64_t n : {1, 5}) {
      Gemm g;
      g.m = 4, g.n = n, g.k = 3;
      g.a_m = 3, g.a_k = 1, g.b_k = 1, g.b_n = 3;
      // c is [2, 3, 4, n] with the first two dimensions exchanged; b is one
      // weight.
      g.batch = {2, 3};
      g.a_batch_strides = {36, 12};
      g.b_batch_strides = {0, 0};
      g.c_batch_strides = {4 * n, 8 * n};
      g.c_m = n, g.c_n = 1;
      for (Epilogue::Kind kind : {Epilogue::kBias, Epilogue::kGeluTanh}) {
        g.epilogue.kind = kind;
        expect_finished(t, g, 72, 3 * n, 24 * n);
        if (HasFatalFailure()) return;
      }
      // The gradient of a weight, [3, n] = the sum over [2, 5, 4] of x dy,
      // whose batch does not continue k.
      g = Gemm();
      g.batch = {2, 5};
      g.m = 3, g.n = n, g.k = 4;
      g.a_batch_strides = {60, 12}, g.a_m = 1, g.a_k = 3;
      g.b_batch_strides = {4 * n, 8 * n}, g.b_k = n, g.b_n = 1;
      g.c_batch_strides = {0, 0}, g.c_m = 1, g.c_n = 3;
      g.epilogue.kind = Epilogue::kSumB;
      expect_finished(t, g, 120, 40 * n, 3 * n);
      if (HasFatalFailure()) return;
    }
}

TEST(EpilogueTest, RefusesIntegers) {
  EXPECT_THROW(run(Gemm{.type = DType::kI64,
                        .c_type = DType::kI64,
                        .epilogue = {.kind = Epilogue::kBias}}),
               Error);
}

// Compares a product with a loop. x begins at element of_x, w at element skew.
void expect_int8_linear(DType t, int64_t m, int64_t n, int64_t k, int64_t skew,
                        int64_t of_x, bool with_bias) {
  const DType wide = stat_of(t);
  Elements x = Elements::random(t, m * k + of_x, -1, 1, 1),
           w = Elements::random(DType::kI8, n * k + skew, -127, 128, 2);
  const Elements scale = Elements::random(wide, n, 0.001, 0.01, 3),
                 bias = Elements::random(t, n, -1, 1, 4);
  Elements y(t, m * n, 9);
  run(Int8Linear{.type = t,
                 .m = m,
                 .n = n,
                 .k = k,
                 .x = x.at(of_x),
                 .weight = static_cast<const int8_t*>(w.at(skew)),
                 .scale = scale.data(),
                 .bias = with_bias ? bias.data() : nullptr,
                 .y = y.data()});
  const std::vector<double> xs = x.doubles(), ws = w.doubles();
  std::vector<double> want;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += xs[static_cast<size_t>(of_x + i * k + p)] *
               ws[static_cast<size_t>(skew + j * k + p)];
      want.push_back(sum * scale[j] + (with_bias ? bias[j] : 0));
    }
  const double terms = std::sqrt(static_cast<double>(k + 1)),
               tol = t == DType::kF64   ? 1e-14 * terms
                     : t == DType::kF32 ? 1e-6 * terms
                                        : tolerance(t);
  ASSERT_TRUE(near(y, want, tol)) << name(t) << " " << m << "x" << n << "x" << k
                                  << " from " << skew << ", " << of_x;
}

// Few rows and many, sizes that do not fill registers, more weights than are
// widened at once, and x or w that begins in the middle of a register.
TEST(Int8LinearTest, IsALoop) {
  for (DType t : kFloats)
    for (int64_t m : {1, 2, 3, 4, 5, 8, 9, 16, 17, 33})
      for (const auto& [n, k, skew, of_x] : {std::tuple{1, 1, 0, 0},
                                             {7, 5, 0, 0},
                                             {66, 40, 0, 0},
                                             {131, 64, 0, 0},
                                             {6, 48, 1, 0},
                                             {6, 48, 0, 1},
                                             {9, 2112, 0, 0},
                                             {5, 0, 0, 0},
                                             {0, 5, 0, 0},
                                             {70, 9001, 0, 0}})
        for (bool with_bias : {false, true}) {
          if (k > 9000 && m != 1 && m != 17) continue;
          expect_int8_linear(t, m, n, k, skew, of_x, with_bias);
          if (HasFatalFailure()) return;
        }
}

// A thread keeps the memory for widened weights, so only a new thread shows
// whether it allocates enough. A write past the end damages the heap, and the
// next allocation ends the process.
TEST(Int8LinearTest, NewThreadsTakeMemoryForWideWeights) {
  for (DType t : {DType::kBF16, DType::kF16})
    std::thread([&] {
      expect_int8_linear(t, 33, 700, 64, 0, 0, false);
    }).join();
}

TEST(Int8LinearTest, RefusesIntegers) {
  EXPECT_THROW(run(Int8Linear{.type = DType::kI32, .m = 1, .n = 1}), Error);
}

TEST(GemmTest, RefusesWhatItDoesNotHave) {
  Gemm g;
  g.m = g.n = g.k = 1;
  g.type = g.c_type = DType::kBool;
  EXPECT_THROW(run(g), Error);
  g.type = DType::kF32, g.c_type = DType::kF64;
  EXPECT_THROW(run(g), Error);
}

// A product of halves that is summed over its batch is computed in f32 first.
// Its epilogue ran in f32 too, so b's sum was written as f32, beyond its end.

template <class T>
void expect_sum_alone() {
  constexpr int64_t kBatches = 5, kM = 3, kN = 4, kK = 2;
  const std::vector<T> a(kBatches * kM * kK, T(1.f)),
      b(kBatches * kK * kN, T(0.5f));
  std::vector<T> c(kM * kN), sum(3 * kN, T(7.f));
  Gemm g{.type = dtype_of<T>, .c_type = dtype_of<T>};
  g.batch = {kBatches};
  g.m = kM, g.n = kN, g.k = kK;
  g.a = a.data(), g.a_batch_strides = {kM * kK}, g.a_m = 1, g.a_k = kM;
  // With these strides, the batch does not continue k.
  g.b = b.data(), g.b_batch_strides = {kN}, g.b_k = kBatches * kN, g.b_n = 1;
  g.c = c.data(), g.c_batch_strides = {0}, g.c_m = kN, g.c_n = 1;
  g.epilogue.kind = Epilogue::kSumB;
  g.epilogue.b_sum = sum.data() + kN;
  cpu_kernels().run({}, g);
  for (const T x : c) EXPECT_EQ(static_cast<float>(x), kBatches * kK * 0.5f);
  for (int64_t i = 0; i < 3 * kN; ++i)
    EXPECT_EQ(static_cast<float>(sum[static_cast<size_t>(i)]),
              i / kN == 1 ? kBatches * kK * 0.5f : 7.f)
        << i;
}

TEST(GemmEpilogueOfHalves, IsDoneOnce) {
  expect_sum_alone<bf16>();
  expect_sum_alone<f16>();
}

}  // namespace
}  // namespace dtensor::kernels
