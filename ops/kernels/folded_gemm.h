// A product of matrices in as few products as it takes. Private to ops/kernels.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "dtensor/ops/kernels/gemm.h"

namespace dtensor::kernels {

// A batch dimension, with its strides in a, b and c.
struct GemmBatch {
  int64_t n, a, b, c;
};

// A Gemm whose batch is as small as it gets: dimensions that continue m, n or k
// are part of it. What is left of the batch is in `batch`, not in g.
struct FoldedGemm {
  Gemm g;
  GemmBatch batch[kMaxDims];
  int nb = 0;
  bool empty = false;  // c has no elements

  explicit FoldedGemm(const Gemm& in) : g(in) {
    for (int i = 0; i < g.batch.size(); ++i) {
      const GemmBatch d = {g.batch[i], g.a_batch_strides[i],
                           g.b_batch_strides[i], g.c_batch_strides[i]};
      if (d.n == 0) {
        // A summed dimension of size 0 leaves an empty sum, as k = 0 does.
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
  // The factor (size, strides in two operands) takes the dimension in if it
  // continues it.
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
    if (d.c == 0) return join(g.k, g.a_k, g.b_k, d.n, d.a, d.b);
    if (d.b == 0 && join(g.m, g.a_m, g.c_m, d.n, d.a, d.c)) return true;
    return d.a == 0 && join(g.n, g.b_n, g.c_n, d.n, d.b, d.c);
  }
};

// The b of Epilogue::kSumB as what is reduced.
struct SummedB {
  Shape shape, strides;
  uint32_t dims;  // all but n
  explicit SummedB(const Gemm& g) {
    for (int i = 0; i < g.batch.size(); ++i) {
      if (g.c_batch_strides[i] != 0) continue;
      shape.push_back(g.batch[i]);
      strides.push_back(g.b_batch_strides[i]);
    }
    shape.push_back(g.k);
    strides.push_back(g.b_k);
    dims = (uint32_t{1} << shape.size()) - 1;
    shape.push_back(g.n);
    strides.push_back(g.b_n);
  }
};

// The c of Epilogue::kGeluTanhBackward as what is reduced.
struct SummedC {
  Shape shape, strides;
  uint32_t dims;  // all but n
  explicit SummedC(const Gemm& g) : shape(g.batch), strides(g.c_batch_strides) {
    shape.push_back(g.m);
    strides.push_back(g.c_m);
    dims = (uint32_t{1} << shape.size()) - 1;
    shape.push_back(g.n);
    strides.push_back(g.c_n);
  }
};

// Is c contiguous, m rows of n?
inline bool is_contiguous(const Gemm& g) {
  return g.batch.empty() && (g.c_n == 1 || g.n == 1) &&
         (g.c_m == g.n || g.m == 1);
}

// fn(a, b, c, first) for each product of a batch: where its matrices begin, and
// whether it is the first for that place in c.
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
