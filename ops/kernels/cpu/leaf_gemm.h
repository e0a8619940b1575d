// SPDX-License-Identifier: Apache-2.0
// Matrix products with defined bits: each element is a function of its row of a
// and its column of b alone. It does not depend on the other rows and columns,
// on strides, or on the width of the CPU's vectors. Private to ops/kernels.
#pragma once
#include <cstdint>
#include <iterator>
#include <span>

#include "dtensor/device/values.h"
#include "dtensor/ops/kernels/cpu/gemm.h"
#include "dtensor/placement/exact.h"

namespace dtensor::kernels::cpu {

// A leaf is the sum of this many consecutive products a[m,k] b[k,n], counted
// from k = 0; the last leaf may have fewer. The sum begins with 0 and is a
// chain of fused multiply-adds in T, in the order of k: sum = fma(a, b, sum).
inline constexpr int64_t kLeaf = 128;

// The leaves of k products: leaf g is the products [begin(g), end(g)).
struct Leaves {
  int64_t k;
  // Where each leaf ends, ascending, the last at k; each has 1 to kLeaf
  // products. Empty: every leaf but the last has kLeaf.
  std::span<const int64_t> ends = {};

  int64_t count() const {
    return ends.empty() ? (k + kLeaf - 1) / kLeaf : std::ssize(ends);
  }
  int64_t begin(int64_t g) const {
    return ends.empty() ? g * kLeaf : g == 0 ? 0 : ends[size_t(g - 1)];
  }
  int64_t end(int64_t g) const { return g + 1 == count() ? k : begin(g + 1); }
};

// c[m,n] = the sum of all leaves, or c += this sum with `accumulate`. Without
// leaves, it is 0. Leaves of float are added exactly (placement/exact.h), and
// the sum is rounded; those of double are added in turn. bf16 and f16 are
// widened to float first.
template <class S>
void leaf_gemm(int64_t m, int64_t n, int64_t k, Mat<const S> a, Mat<const S> b,
               Mat<portable::compute_t<S>> c, bool accumulate);

// c[m,n] = the exact sum of each leaf's value, or c += with `accumulate`.
template <class S>
void leaf_gemm_exact(int64_t m, int64_t n, const Leaves&, Mat<const S> a,
                     Mat<const S> b, Mat<Exact> c, bool accumulate = true);

}  // namespace dtensor::kernels::cpu
