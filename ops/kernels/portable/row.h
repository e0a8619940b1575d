// SPDX-License-Identifier: Apache-2.0
// Code that the kernels on rows share.
#pragma once
#include <cstdint>

#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/operands.h"
#include "dtensor/ops/kernels/portable/executor.h"

namespace dtensor::kernels {

inline namespace DT_PORTABLE {

// The largest of some ids, and ~ of the smallest (see CeRange). Wider combines
// two of them.
struct Ends {
  int64_t largest = portable::lowest<int64_t>(), inverted = largest;
  static DT_HD Ends of(int64_t id) { return {id, ~id}; }
  DT_HD void write(int64_t* to) const { to[0] = largest, to[1] = inverted; }
};
struct Wider {
  DT_HD Ends operator()(const Ends& a, const Ends& b) const {
    return {portable::Max()(a.largest, b.largest),
            portable::Max()(a.inverted, b.inverted)};
  }
};

// exp(x) of one x <= 0, bit by bit the same as for the elements of a softmax.
template <class C>
DT_HD C exp_softmax(C x) {
#ifdef __CUDACC__
  return fn::exp(x);
#else
  return simd::exp_softmax(simd::Vec<C>(x)).v[0];
#endif
}

// A row of a matrix whose rows lie side by side (Matrix::inner): its elements
// are `step` apart. `at` reads an element. On a GPU, one thread computes a
// Column. On the host, a Column is as many neighbouring rows as a register has
// elements, and `at` reads a register. It has some of the functions of Row.
template <class At>
struct Column {
  int64_t step;
  At at;
  DT_HD void by_leaves(bool) {}
  template <class S>
  DT_HD auto get(const S* p) {
    return at(p);
  }
  template <class S>
  DT_HD void put(S* p, auto v) {
    at.put(p, v);
  }
  template <class Out, class F, class... In>
  DT_HD void map(int64_t n, Out* out, F f, const In*... in) {
    for (int64_t j = 0; j < n * step; j += step) put(out + j, f(at(in + j)...));
  }
  // Adds sums of 32 elements each, which rounds less than one long sum.
  template <class F, class In, class... More>
  DT_HD auto sum(int64_t n, F f, const In* in, const More*... more) {
    decltype(at(in)) all(0);
    for (int64_t j = 0; j < n * step;) {
      decltype(all) part(0);
      for (int i = 0; i < 32 && j < n * step; ++i, j += step)
        part = part + f(at(in + j), at(more + j)...);
      all = all + part;
    }
    return all;
  }
  template <class S>
  DT_HD auto max(int64_t n, const S* x) {
    using fn::max;
    decltype(at(x)) all(portable::lowest<portable::compute_t<S>>());
    for (int64_t j = 0; j < n * step; j += step) all = max(at(x + j), all);
    return all;
  }
};

#ifdef __CUDACC__
struct AtOne {
  int64_t i;
  template <class S>
  DT_HD auto operator()(const S* p) const {
    return portable::widened(p[i]);
  }
  template <class S>
  DT_HD void put(S* p, portable::compute_t<S> v) const {
    p[i] = portable::rounded<S>(v);
  }
};
#endif

// Calls body(row, r) for each row r of x, if x.inner is 1. Otherwise calls
// body(column, r) for each Column of each matrix r [n, inner] of x.
template <class S, class Body>
void lines(Stream s, const Matrix& x, Body body, int64_t fast_bytes = 0) {
  const int64_t inner = x.inner;
  if (inner == 1) return portable::rows(s, x.rows, x.n, body, fast_bytes);
#ifdef __CUDACC__
  portable::each(
      s, x.rows, DT_BODY(int64_t i) {
        Column<AtOne> row{inner, {i % inner}};
        body(row, i / inner);
      });
#else
  for (int64_t r = 0; r < x.rows / inner; ++r)
    simd::each_register<portable::compute_t<S>>(inner, [&](auto at) {
      Column<decltype(at)> row{inner, at};
      body(row, r);
    });
#endif
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
