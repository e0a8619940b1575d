// SPDX-License-Identifier: Apache-2.0
// A batch of matrix products, expressed by as few products as possible. Private
// to ops/kernels.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/kernels/reduce.h"

namespace dtensor::kernels {

// A batch dimension, with its strides in a, b and c.
struct GemmBatch {
  int64_t n, a, b, c;
};

// A Gemm with the smallest possible batch: batch dimensions that continue the
// strides of m, n or k are merged into these. Those that are left are in
// `batch`; g.batch still has all of them, and is not used.
struct FoldedGemm {
  Gemm g;
  GemmBatch batch[kMaxDims];
  int nb = 0;
  bool empty = false;      // c has no elements
  int64_t leaves_per = 0;  // if not 0, leaves also end at multiples of this k

  explicit FoldedGemm(const Gemm& in) : g(in) {
    for (int i = 0; i < g.batch.size(); ++i) {
      const GemmBatch d = {g.batch[i], g.a_batch_strides[i],
                           g.b_batch_strides[i], g.c_batch_strides[i]};
      if (d.n == 0) {
        // The empty sum over this dimension is 0, as for k = 0.
        if (d.c == 0)
          g.k = 0;
        else
          empty = true;
        continue;
      }
      if (d.n == 1) continue;
      GemmBatch& last = batch[std::max(nb - 1, 0)];
      if (nb > 0 && last.a == d.a * d.n && last.b == d.b * d.n &&
          last.c == d.c * d.n)
        last = {last.n * d.n, d.a, d.b, d.c};
      else
        batch[nb++] = d;
    }
    if (empty || g.m == 0 || g.n == 0) {
      empty = true;
      return;
    }
    for (int i = nb - 1; i >= 0;) {
      if (fold(batch[i])) {
        std::copy(batch + i + 1, batch + nb, batch + i);
        i = --nb - 1;
      } else {
        --i;
      }
    }
  }

 private:
  // Merges a batch dimension (size dn, strides d1 and d2) into one of the
  // dimensions m, n and k (size n, strides s1 and s2) if it continues that
  // dimension's strides. Returns whether it did.
  static bool join(int64_t& n, int64_t& s1, int64_t& s2, int64_t dn, int64_t d1,
                   int64_t d2) {
    if (n == 1) {
      s1 = d1;
      s2 = d2;
    } else if (d1 != n * s1 || d2 != n * s2) {
      return false;
    }
    n *= dn;
    return true;
  }
  bool fold(const GemmBatch& d) {
    if (d.c == 0) {
      const int64_t k = g.k;
      if (g.by_leaves &&
          (g.c_type != DType::kExact || k == 1 || !g.leaf_ends.empty()))
        return false;
      if (!join(g.k, g.a_k, g.b_k, d.n, d.a, d.b)) return false;
      // Leaves stay what they are in a longer sum of leaves.
      if (leaves_per == 0 && g.by_leaves && k % g.kLeaf != 0) leaves_per = k;
      return true;
    }
    if (d.b == 0 && join(g.m, g.a_m, g.c_m, d.n, d.a, d.c)) return true;
    return d.a == 0 && join(g.n, g.b_n, g.c_n, d.n, d.b, d.c);
  }
};

// The Reduce that computes the sum of Epilogue::kSumB.
inline Reduce sum_of_b(const Gemm& g) {
  Reduce r{.type = g.type, .in = g.b, .out = g.epilogue.b_sum};
  for (int i = 0; i < g.batch.size(); ++i) {
    if (g.c_batch_strides[i] != 0) continue;
    r.shape.push_back(g.batch[i]);
    r.strides.push_back(g.b_batch_strides[i]);
  }
  r.shape.push_back(g.k);
  r.strides.push_back(g.b_k);
  r.dims = (uint32_t{1} << r.shape.size()) - 1;  // all but n
  r.shape.push_back(g.n);
  r.strides.push_back(g.b_n);
  return r;
}

// Calls fn(a, b, c, first) for each product of a batch. a, b and c are the
// offsets of its matrices. `first` is true if no earlier product has this c.
template <class Fn>
void for_each_product(std::span<const GemmBatch> batch, Fn&& fn) {
  int64_t index[kMaxDims] = {}, a = 0, b = 0, c = 0;
  const int dims = static_cast<int>(batch.size());
  for (;;) {
    bool first = true;
    for (int i = 0; i < dims; ++i)
      if (batch[static_cast<size_t>(i)].c == 0 && index[i] > 0) first = false;
    fn(a, b, c, first);
    int d = dims - 1;
    for (; d >= 0; --d) {
      const GemmBatch& x = batch[static_cast<size_t>(d)];
      a += x.a;
      b += x.b;
      c += x.c;
      if (++index[d] < x.n) break;
      a -= x.a * x.n;
      b -= x.b * x.n;
      c -= x.c * x.n;
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace dtensor::kernels
