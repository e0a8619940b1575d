// SPDX-License-Identifier: Apache-2.0
// Loops over one contiguous row, a register at a time.
//
// The loops call f(at) at each position. at(p) returns the register of the row
// that begins at p, at this position, in the compute type. at(p, rest) has
// `rest` in the places beyond the end of the row; at(p) has 0 there.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "dtensor/device/values.h"
#include "dtensor/ops/kernels/portable/vec.h"
#include "dtensor/placement/exact.h"

namespace dtensor::simd {

using portable::Two;

struct AtFull {
  int64_t i;
  template <class S>
  Vec<compute_t<S>> operator()(const S* p, compute_t<S> = 0) const {
    return load(p + i);
  }
  // Writes r to the row that begins at p, at this position.
  template <class S>
  void put(S* p, Vec<compute_t<S>> r) const {
    store(p + i, r);
  }
};
struct AtTail {
  int64_t i, m;
  template <class S>
  Vec<compute_t<S>> operator()(const S* p, compute_t<S> rest = 0) const {
    return load_n(p + i, m, rest);
  }
  template <class S>
  void put(S* p, Vec<compute_t<S>> r) const {
    store_n(p + i, r, m);
  }
};

// Calls f(at) for each register of n elements of type T.
template <class T, class F>
inline void each_register(int64_t n, F&& f) {
  constexpr int64_t w = Vec<T>::n;
  int64_t i = 0;
  for (; i + w <= n; i += w) f(AtFull{i});
  if (i < n) f(AtTail{i, n - i});
}

// out[i] = f(at) for n elements. f may read the row `out`.
template <class S, class F>
inline void each(int64_t n, S* out, F&& f) {
  each_register<compute_t<S>>(n, [&](auto at) { at.put(out, f(at)); });
}

// As each(), for an f that returns a Two.
template <class S, class F>
inline void each_two(int64_t n, S* first, S* second, F&& f) {
  each_register<compute_t<S>>(n, [&](auto at) {
    const auto r = f(at);
    at.put(first, r.first);
    at.put(second, r.second);
  });
}

// Returns f(r...), where r... are the registers of `rows` at this position. f
// may change them: registers of rows that are not const are stored afterwards.
// With `nulls`, a row may be null: it reads as zeros, and is not stored.
template <class T, bool nulls = true, class At, class F, class... R>
inline auto updated(At at, F&& f, R*... rows) {
  const auto back = [&]<class S>(S* p, const Vec<T>& r) {
    if constexpr (!std::is_const_v<S>)
      if (!nulls || p) at.put(p, r);
  };
  return [&](auto... r) {
    const auto result = f(r...);
    (back(rows, r), ...);
    return result;
  }((!nulls || rows ? at(rows) : Vec<T>(0))...);
}

// Returns r with zeros in the places beyond the end of the row.
template <class T>
inline Vec<T> cut(AtFull, Vec<T> r) {
  return r;
}
template <class T>
inline Vec<T> cut(AtTail at, Vec<T> r) {
  return select<T>(lane_numbers<T>() < lanes<T>(at.m), r, Vec<T>(0));
}
template <class At, class T>
inline Two<Vec<T>> cut(At at, const Two<Vec<T>>& r) {
  return {cut(at, r.first), cut(at, r.second)};
}

template <class T>
inline double wide_sum(Vec<T> r) {
  return static_cast<double>(sum(r));
}
template <class T>
inline Two<double> wide_sum(const Two<Vec<T>>& r) {
  return {wide_sum(r.first), wide_sum(r.second)};
}

// Combines f(at), a Vec or a Two, over [begin, end). Beyond the end, f must
// give the operation's identity. Four registers accumulate, to hide latency.
template <class T, class A, class F, class Op>
inline A combine(int64_t begin, int64_t end, A identity, F&& f, Op&& op) {
  constexpr int64_t w = Vec<T>::n;
  A a = identity, b = identity, c = identity, d = identity;
  int64_t i = begin;
  for (; i + 4 * w <= end; i += 4 * w) {
    a = op(a, f(AtFull{i}));
    b = op(b, f(AtFull{i + w}));
    c = op(c, f(AtFull{i + 2 * w}));
    d = op(d, f(AtFull{i + 3 * w}));
  }
  for (; i + w <= end; i += w) a = op(a, f(AtFull{i}));
  if (i < end) b = op(b, f(AtTail{i, end - i}));
  return op(op(a, b), op(c, d));
}

// Long sums are made of sums of this many elements, which are added in f64.
inline constexpr int64_t kPiece = 4096;

// The sum of f(at) over n elements, taken piece by piece (kPiece).
template <class T, class F>
inline auto total(int64_t n, F&& f) {
  using A = decltype(f(AtFull{0}));
  decltype(wide_sum(A{})) r{};
  for (int64_t i = 0; i < n; i += kPiece)
    r = r + wide_sum(combine<T>(
                i, std::min(n, i + kPiece), A{},
                [&](auto at) { return cut(at, f(at)); },
                [](const A& x, const A& y) { return x + y; }));
  return r;
}

// The sum of several leaves. Sums of f64 have no exact sum, and add in turn.
template <class T>
struct LeafSums {
  std::conditional_t<std::is_same_v<T, float>, Exact, double> all{};
  void add(double leaf) {
    if constexpr (std::is_same_v<T, float>)
      all.add(leaf);
    else
      all += leaf;
  }
  double value() const {
    if constexpr (std::is_same_v<T, float>)
      return all.value();
    else
      return all;
  }
};
template <class T>
struct TwoLeafSums {
  LeafSums<T> first, second;
  void add(const Two<double>& leaf) {
    first.add(leaf.first);
    second.add(leaf.second);
  }
  Two<double> value() const { return {first.value(), second.value()}; }
};
template <class T>
LeafSums<T> leaf_sums(Vec<T>);
template <class T>
TwoLeafSums<T> leaf_sums(Two<Vec<T>>);

// As total(), but its bits do not depend on the width of the registers: each
// leaf of 128 elements has 16 lanes, which are then added as halves, and the
// leaves' sums are added exactly.
template <class T, class F>
inline auto leaf_total(int64_t n, F&& f) {
  using A = decltype(f(AtFull{0}));
  constexpr int64_t kLeaf = 128, kLanes = 16, w = Vec<T>::n;
  decltype(leaf_sums(A{})) sums;
  for (int64_t begin = 0; begin < n; begin += kLeaf) {
    const int64_t end = std::min(n, begin + kLeaf);
    A lanes[kLanes / w]{};
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes)
      for (int64_t q = 0; q < kLanes / w; ++q)
        lanes[q] = lanes[q] + f(AtFull{i + q * w});
    for (int64_t q = 0; i < end; i += w, ++q) {
      const AtTail at{i, std::min(w, end - i)};
      lanes[q] = lanes[q] + cut(at, f(at));
    }
    for (int64_t m = kLanes / w / 2; m > 0; m /= 2)
      for (int64_t q = 0; q < m; ++q) lanes[q] = lanes[q] + lanes[q + m];
    sums.add(wide_sum(lanes[0]));
  }
  return sums.value();
}

// out[i] = f(at) for n elements; returns the sum of f(at). f may read the row
// `out`.
template <class S, class F>
inline double stored_total(int64_t n, S* out, F&& f) {
  using V = Vec<compute_t<S>>;
  constexpr int64_t w = V::n;
  double r = 0;
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t end = std::min(n, begin + kPiece);
    V a(0), b(0);
    int64_t i = begin;
    for (; i + 2 * w <= end; i += 2 * w) {
      const V first = f(AtFull{i}), second = f(AtFull{i + w});
      store(out + i, first);
      store(out + i + w, second);
      a = a + first;
      b = b + second;
    }
    for (; i < end; i += w) {
      const AtTail at{i, std::min(w, end - i)};
      const V last = f(at);
      store_n(out + i, last, at.m);
      a = a + cut(at, last);
    }
    r += wide_sum(a + b);
  }
  return r;
}

template <class T>
inline constexpr T kLow = -std::numeric_limits<T>::infinity();

template <class S>
inline compute_t<S> row_maximum(int64_t n, const S* x) {
  using T = compute_t<S>;
  const auto larger = [](Vec<T> x, Vec<T> y) { return max(x, y); };
  return fold(combine<T>(
                  0, n, Vec<T>(kLow<T>),
                  [&](auto at) { return at(x, kLow<T>); }, larger),
              larger);
}

}  // namespace dtensor::simd
