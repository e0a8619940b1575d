// SPDX-License-Identifier: Apache-2.0
// GPU matrix products that libraries do not take, such as those of integers.
#include "dtensor/ops/kernels/gemm.h"

#include <type_traits>
#include <utility>

#include "dtensor/ops/kernels/folded_gemm.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/walk.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::each;
using portable::Row;
using portable::rows;
using portable::Sum;
using portable::Walk;

// A thread computes kTile x kTile elements of c, with sums in registers. These
// elements are ceil(m / kTile) rows and ceil(n / kTile) columns apart, so that
// threads that are neighbours along n read b and write c side by side.
constexpr int kTile = 4;
// This many products are summed before their sum is added to the total: the
// error of a long sum grows with the number of its terms.
constexpr int64_t kPiece = 128;

constexpr int64_t tiles(int64_t n) { return (n + kTile - 1) / kTile; }

template <class S, class C>
struct Product {
  using T = portable::compute_t<S>;

  Walk<3> batches;  // strides in c, a, b
  Walk<2> sums;     // strides of the summed batch dimensions in a, b
  int64_t m, n, k, a_m, a_k, b_k, b_n, c_m, c_n;
  const S* a;
  const S* b;
  C* c;
  bool accumulate;

  DT_HD static T product(S x, S y) {
    return portable::widened(x) * portable::widened(y);
  }
  DT_HD void put(C* to, T sum) const {
    *to = portable::rounded<C>(accumulate ? portable::widened(*to) + sum : sum);
  }

  DT_HD void tile(int64_t i) const {
    const int64_t down = tiles(m), across = tiles(n), column = i % across,
                  row = i / across % down;
    int64_t at[3], more[2], a_at[kTile], b_at[kTile];
    batches.at(i / across / down, at);
    // Beyond the end, the thread's first row (or column) is computed again.
    for (int r = 0; r < kTile; ++r) {
      const int64_t to = row + r * down;
      a_at[r] = (to < m ? to : row) * a_m;
    }
    for (int r = 0; r < kTile; ++r) {
      const int64_t to = column + r * across;
      b_at[r] = (to < n ? to : column) * b_n;
    }
    T sum[kTile][kTile] = {};
    for (int64_t s = 0; s < sums.count(); ++s) {
      sums.at(s, more);
      const S* from_a = a + at[1] + more[0];
      const S* from_b = b + at[2] + more[1];
      for (int64_t begin = 0; begin < k; begin += kPiece) {
        const int64_t end = begin + kPiece < k ? begin + kPiece : k;
        T piece[kTile][kTile] = {};
        for (int64_t p = begin; p < end; ++p) {
          S x[kTile], y[kTile];
          for (int r = 0; r < kTile; ++r) {
            x[r] = from_a[p * a_k + a_at[r]];
            y[r] = from_b[p * b_k + b_at[r]];
          }
          for (int r = 0; r < kTile; ++r)
            for (int q = 0; q < kTile; ++q) piece[r][q] += product(x[r], y[q]);
        }
        for (int r = 0; r < kTile; ++r)
          for (int q = 0; q < kTile; ++q) sum[r][q] += piece[r][q];
      }
    }
    for (int r = 0; r < kTile; ++r)
      for (int q = 0; q < kTile; ++q) {
        const int64_t to_m = row + r * down, to_n = column + q * across;
        if (to_m < m && to_n < n)
          put(c + at[0] + to_m * c_m + to_n * c_n, sum[r][q]);
      }
  }

  // Computes one element of c, with a row of lanes.
  DT_HD void element(Row& row, int64_t i) const {
    const int64_t column = i % n, r = i / n % m;
    int64_t at[3], more[2];
    batches.at(i / n / m, at);
    T sum = 0;
    for (int64_t s = 0; s < sums.count(); ++s) {
      sums.at(s, more);
      const S* from_a = a + at[1] + more[0] + r * a_m;
      const S* from_b = b + at[2] + more[1] + column * b_n;
      sum += row.reduce(k, T(0), Sum(), [&](int64_t p) {
        return product(from_a[p * a_k], from_b[p * b_k]);
      });
    }
    row.each(1, [&](int64_t) { put(c + at[0] + r * c_m + column * c_n, sum); });
  }
};

template <class S, class C>
Product<S, C> product_of(const FoldedGemm& f) {
  Shape kept, summed, strides[3], sum_strides[2];
  for (int i = 0; i < f.nb; ++i) {
    const GemmBatch& d = f.batch[i];
    if (d.c == 0) {
      summed.push_back(d.n);
      sum_strides[0].push_back(d.a);
      sum_strides[1].push_back(d.b);
    } else {
      kept.push_back(d.n);
      strides[0].push_back(d.c);
      strides[1].push_back(d.a);
      strides[2].push_back(d.b);
    }
  }
  const Gemm& g = f.g;
  return {{kept, {strides[0], strides[1], strides[2]}},
          {summed, {sum_strides[0], sum_strides[1]}},
          g.m,
          g.n,
          g.k,
          g.a_m,
          g.a_k,
          g.b_k,
          g.b_n,
          g.c_m,
          g.c_n,
          static_cast<const S*>(g.a),
          static_cast<const S*>(g.b),
          static_cast<C*>(g.c),
          g.accumulate};
}

template <class S, class C>
void multiply(Stream s, const FoldedGemm& f) {
  const Product<S, C> p = product_of<S, C>(f);
  const int64_t matrices = p.batches.count(), elements = matrices * p.m * p.n;
  // For few long sums, tiles would give too few threads.
  if (elements <= 1 << 13 && p.k >= 512)
    rows(
        s, elements, p.k, DT_BODY(Row & row, int64_t i) { p.element(row, i); });
  else
    each(
        s, matrices * tiles(p.m) * tiles(p.n),
        DT_BODY(int64_t i) { p.tile(i); });
}

// c' = b' a', for a c with contiguous columns instead of rows.
Gemm transposed(Gemm g) {
  std::swap(g.m, g.n);
  std::swap(g.a, g.b);
  std::swap(g.a_batch_strides, g.b_batch_strides);
  std::swap(g.a_m, g.b_n);
  std::swap(g.a_k, g.b_k);
  std::swap(g.c_m, g.c_n);
  return g;
}

void multiply(Stream s, const Gemm& g) {
  const DType in = g.type, out = g.c_type;
  const FoldedGemm f(g.c_m == 1 && g.c_n != 1 ? transposed(g) : g);
  // Integers are computed as unsigned, so that they wrap around.
  const auto run = [&]<class S, class C>() {
    if (!f.empty) multiply<S, C>(s, f);
  };
  if (in == DType::kI32 && out == in)
    return run.template operator()<uint32_t, uint32_t>();
  if (in == DType::kI64 && out == in)
    return run.template operator()<uint64_t, uint64_t>();
  visit_float(in, "gemm", [&]<class S>() {
    if (out == in) return run.template operator()<S, S>();
    if constexpr (portable::is_half<S>)
      if (out == DType::kF32) return run.template operator()<S, float>();
    no_kernel("gemm", out);
  });
}

}  // namespace

DT_KERNEL(Gemm)
void run(Stream s, const Gemm& g) {
  multiply(s, g);
  if (g.epilogue.kind != Epilogue::kNone)
    defined_kernels().run(s, FinishGemm{g});
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
