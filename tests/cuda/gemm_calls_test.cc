// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cuda/gemm_calls.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/cuda/random_gemm.h"
#include "tests/ops/reference.h"

namespace dtensor::kernels::cuda {
namespace {

// Does what a library for column-major matrices does with a call.
void run_call(const GemmCall& call, const double* left, const double* right,
              double* c, bool accumulate) {
  const auto at = [](const ColumnMajor& x, int64_t i, int64_t j) {
    return x.transposed ? j + i * x.ld : i + j * x.ld;
  };
  const int64_t k = call.left.transposed ? call.left.rows : call.left.cols;
  for (int64_t p = 0; p < call.count; ++p)
    for (int64_t i = 0; i < call.c.rows; ++i)
      for (int64_t j = 0; j < call.c.cols; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l)
          sum += left[p * call.left.next + at(call.left, i, l)] *
                 right[p * call.right.next + at(call.right, l, j)];
        double& to = c[p * call.c.next + at(call.c, i, j)];
        to = accumulate ? to + sum : sum;
      }
}

void run(const GemmCalls& calls, const Gemm& g) {
  const double *a = static_cast<const double*>(g.a),
               *b = static_cast<const double*>(g.b);
  double* c = static_cast<double*>(g.c);
  for_each_product(calls.repeats(), [&](int64_t at_a, int64_t at_b,
                                        int64_t at_c, bool first) {
    const double *left = a + at_a, *right = b + at_b;
    if (calls.swapped) std::swap(left, right);
    run_call(calls.call, left, right, c + at_c, g.accumulate || !first);
  });
}

// The library's conditions for a matrix.
void expect_valid(const ColumnMajor& x) {
  EXPECT_GE(x.rows, 1);
  EXPECT_GE(x.cols, 1);
  EXPECT_GE(x.ld, x.rows);
  EXPECT_GE(x.next, 0);
}

TEST(GemmCallsTest, AreTheProduct) {
  std::mt19937 rng(1);
  int taken = 0, swapped = 0, strided = 0, repeated = 0, summed = 0, shared = 0;
  const int kCases = 4000;
  for (int i = 0; i < kCases; ++i) {
    const RandomGemm random(rng);
    Gemm g = random.g;
    const auto values = [&](int64_t n) {
      std::vector<double> v(static_cast<size_t>(n));
      for (double& x : v) x = static_cast<double>(rng() % 19) - 9;
      return v;
    };
    const std::vector<double> va = values(random.a_size),
                              vb = values(random.b_size);
    std::vector<double> got = values(random.c_size), want = got;
    g.a = va.data(), g.b = vb.data(), g.c = got.data();

    const std::optional<GemmCalls> calls = gemm_calls(FoldedGemm(g));
    if (!calls) continue;
    ++taken;
    swapped += calls->swapped;
    strided += calls->call.count > 1;
    repeated += calls->num_repeated > 0;
    summed += calls->sums;
    shared += calls->call.count > 1 && calls->call.left.next == 0;
    expect_valid(calls->call.left);
    expect_valid(calls->call.right);
    expect_valid(calls->call.c);
    EXPECT_FALSE(calls->call.c.transposed);
    run(*calls, g);
    g.c = want.data();
    reference::gemm(g);
    ASSERT_EQ(got, want) << "case " << i;
  }
  // Each kind of call came up often.
  EXPECT_GT(taken, kCases / 8);
  EXPECT_LT(taken, kCases);
  for (int n : {swapped, strided, repeated, summed, shared})
    EXPECT_GT(n, kCases / 100);
}

// A product of contiguous matrices, each transposed or not, is one call without
// a copy.
TEST(GemmCallsTest, AnyTransposesAreOneCall) {
  for (int i = 0; i < 8; ++i) {
    const bool at = i & 1, bt = i & 2, ct = i & 4;
    Gemm g;
    g.m = 5, g.n = 6, g.k = 7;
    g.a_m = at ? 1 : 7, g.a_k = at ? 5 : 1;
    g.b_k = bt ? 1 : 6, g.b_n = bt ? 7 : 1;
    g.c_m = ct ? 1 : 6, g.c_n = ct ? 5 : 1;
    const auto calls = gemm_calls(FoldedGemm(g));
    ASSERT_TRUE(calls) << i;
    EXPECT_EQ(calls->num_repeated, 0);
    EXPECT_EQ(calls->call.count, 1);
    EXPECT_EQ(calls->swapped, !ct);
    EXPECT_EQ(calls->call.c, (ColumnMajor{ct ? 5 : 6, ct ? 6 : 5, ct ? 5 : 6}));
  }
}

// The heads of [s, h, d] tensors are one call, with a stride from head to head.
// If two batch dimensions do not continue each other, the larger one is in one
// call.
TEST(GemmCallsTest, BatchesAreOneCallWhereOneStrideLeadsThrough) {
  Gemm g;
  g.m = g.n = 10, g.k = 4;
  g.batch = {3};
  g.a_batch_strides = {4}, g.a_m = 12, g.a_k = 1;
  g.b_batch_strides = {4}, g.b_k = 1, g.b_n = 12;
  g.c_batch_strides = {100}, g.c_m = 10, g.c_n = 1;
  auto calls = gemm_calls(FoldedGemm(g));
  ASSERT_TRUE(calls);
  EXPECT_EQ(calls->call.count, 3);
  EXPECT_EQ(calls->call.left.next, 4);
  EXPECT_EQ(calls->num_repeated, 0);

  g.batch = {2, 3};
  g.a_batch_strides = g.b_batch_strides = {120, 4};
  g.c_batch_strides = {300, 100};
  calls = gemm_calls(FoldedGemm(g));
  ASSERT_TRUE(calls);
  EXPECT_EQ(calls->call.count, 3);
  ASSERT_EQ(calls->num_repeated, 1);
  EXPECT_EQ(calls->repeated[0].n, 2);
}

TEST(GemmCallsTest, NothingForWhatTheLibraryCannotTake) {
  Gemm ok;
  ok.m = ok.n = ok.k = 4;
  ok.a_m = ok.b_k = ok.c_m = 4;
  ok.a_k = ok.b_n = ok.c_n = 1;
  EXPECT_TRUE(gemm_calls(FoldedGemm(ok)));
  Gemm g = ok;
  g.a_m = 8, g.a_k = 2;  // no stride of 1
  EXPECT_FALSE(gemm_calls(FoldedGemm(g)));
  g = ok;
  g.b_k = 0;  // one row, for all
  EXPECT_FALSE(gemm_calls(FoldedGemm(g)));
  g = ok;
  g.a_m = -4;  // upside down
  EXPECT_FALSE(gemm_calls(FoldedGemm(g)));
  g = ok;
  g.k = 0;
  EXPECT_FALSE(gemm_calls(FoldedGemm(g)));
  g = ok;
  g.m = 0;
  EXPECT_FALSE(gemm_calls(FoldedGemm(g)));
}

// Epilogues of a contiguous [6, 16] of 16-bit floats, with some changes.
TEST(GemmCallsTest, EpiloguesWhereTheyLieAsTheLibraryWantsThem) {
  alignas(16) static char memory[64];
  const auto takes = [](Epilogue::Kind kind, auto&& change) {
    Gemm g{.type = DType::kBF16, .c_type = DType::kBF16};
    g.m = 6, g.n = 16, g.k = 4;
    g.a_m = 4, g.a_k = 1, g.b_k = 1, g.b_n = 4, g.c_m = 16, g.c_n = 1;
    g.epilogue = {kind, memory, memory + 16, memory + 32};
    change(g);
    const FoldedGemm f(g);
    const auto calls = gemm_calls(f);
    EXPECT_TRUE(calls);
    return calls && takes_epilogue(*calls, f, g);
  };
  const auto nothing = [](Gemm&) {};
  const auto turned = [](Gemm& g) { g.c_m = 1, g.c_n = 6; };
  const auto odd = [](Gemm& g) {
    g.epilogue.bias = memory + 2;
    g.epilogue.b_sum = memory + 2;
  };
  // [3, 6] rows, as if they were more of n.
  const auto folded = [](Gemm& g) {
    g.m = 1, g.n = 1;
    g.batch = {16};
    g.a_batch_strides = {0}, g.b_batch_strides = {4}, g.c_batch_strides = {1};
  };
  for (Epilogue::Kind kind :
       {Epilogue::kBias, Epilogue::kGeluTanh, Epilogue::kSumB}) {
    EXPECT_TRUE(takes(kind, nothing)) << kind;
    EXPECT_EQ(takes(kind, turned), kind == Epilogue::kSumB) << kind;
    EXPECT_FALSE(takes(kind, odd)) << kind;
    EXPECT_FALSE(takes(kind, folded)) << kind;
  }
  EXPECT_TRUE(
      takes(Epilogue::kGeluTanh, [](Gemm& g) { g.epilogue.bias = nullptr; }));
  EXPECT_FALSE(
      takes(Epilogue::kGeluTanh, [](Gemm& g) { g.epilogue.aux = memory + 8; }));
  // Rows of 20 elements are 40 bytes apart.
  const auto padded = [](Gemm& g) { g.c_m = 20; };
  EXPECT_FALSE(takes(Epilogue::kGeluTanh, padded));
  EXPECT_TRUE(takes(Epilogue::kBias, padded));
  // c lacks the batch, which does not continue k either: several products.
  EXPECT_FALSE(takes(Epilogue::kSumB, [](Gemm& g) {
    g.batch = {2};
    g.a_batch_strides = {100}, g.b_batch_strides = {200},
    g.c_batch_strides = {0};
  }));
  // Several products side by side, each of which would sum b.
  EXPECT_FALSE(takes(Epilogue::kSumB, [](Gemm& g) {
    g.batch = {2};
    g.a_batch_strides = {100}, g.b_batch_strides = {0},
    g.c_batch_strides = {200};
  }));
}

}  // namespace
}  // namespace dtensor::kernels::cuda
