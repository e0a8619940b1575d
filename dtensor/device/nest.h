// SPDX-License-Identifier: Apache-2.0
// The loops over a strided box, for several arrays that are walked together.
#pragma once
#include <array>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "dtensor/device/device.h"

namespace dtensor {

// Simplifies nested loops; loop 0 is the outermost. Loop i has length n[i], and
// each iteration moves array a by steps[i * arrays + a]; array 0 is the
// destination. Drops loops of length 1, sorts loops so that array 0's steps get
// shorter inwards, and fuses loops where possible. Returns the number of loops
// that remain, at least one. For an empty box, one loop of length 0 remains.
// `arrays`, the number of arrays, is an int or a std::integral_constant.
template <class Arrays>
int simplify_loops(int loops, int64_t* n, int64_t* steps, Arrays arrays) {
  const auto copy = [&](int from, int to) {
    n[to] = n[from];
    for (int a = 0; a < arrays; ++a)
      steps[to * arrays + a] = steps[from * arrays + a];
  };
  const auto swap = [&](int i, int j) {
    std::swap(n[i], n[j]);
    for (int a = 0; a < arrays; ++a)
      std::swap(steps[i * arrays + a], steps[j * arrays + a]);
  };
  // Moves loop `from` behind the first `kept` loops, or fuses it with the last
  // of these if possible. Returns the new number of kept loops.
  const auto add = [&](int from, int kept) {
    bool one = kept > 0;
    if (one)
      for (int a = 0; a < arrays; ++a)
        one &= steps[(kept - 1) * arrays + a] ==
               steps[from * arrays + a] * n[from];
    if (one) n[from] *= n[--kept];
    if (kept != from) copy(from, kept);
    return kept + 1;
  };
  const auto only = [&](int64_t length) {
    n[0] = length;
    for (int a = 0; a < arrays; ++a) steps[a] = 0;
    return 1;
  };
  int kept = 0;
  bool sorted = true;
  for (int i = 0; i < loops; ++i) {
    if (n[i] == 0) return only(0);
    if (n[i] == 1) continue;
    kept = add(i, kept);
    for (int to = kept - 1; to > 0 && std::abs(steps[(to - 1) * arrays]) <
                                          std::abs(steps[to * arrays]);
         --to) {
      swap(to - 1, to);
      sorted = false;
    }
  }
  if (kept == 0) return only(1);
  if (sorted) return kept;
  int fused = 0;
  for (int i = 0; i < kept; ++i) fused = add(i, fused);
  return fused;
}

// Nested loops over a box. The constructor takes the shape; then set() takes
// the strides of each array, and simplify() applies simplify_loops().
class Nest {
 public:
  Nest(Sizes shape, int arrays) : arrays_(arrays) {
    for (int64_t n : shape) n_[static_cast<size_t>(loops_++)] = n;
    if (static_cast<size_t>(arrays) * kMaxLoops > few_.size()) {
      many_.resize(static_cast<size_t>(arrays) * kMaxLoops);
      steps_ = many_.data();
    }
  }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;

  void set(int array, Sizes strides, int64_t item_size) {
    for (int i = 0; i < loops_; ++i)
      at(i, array) = strides[static_cast<size_t>(i)] * item_size;
  }

  // Returns false if the box is empty.
  bool simplify() {
    loops_ = simplify_loops(loops_, n_.data(), steps_, arrays_);
    return n(0) > 0;
  }

  int loops() const { return loops_; }
  int64_t n(int loop) const { return n_[static_cast<size_t>(loop)]; }
  int64_t step(int loop, int array) const {  // in bytes, not elements
    return steps_[loop * arrays_ + array];
  }

  // Moves loop `from` to position `to`; the loops between them shift by one.
  void reorder(int from, int to) {
    for (; from < to; ++from) swap(from, from + 1);
    for (; from > to; --from) swap(from, from - 1);
  }

  // Calls fn() for every iteration of all but the `inner` innermost loops, with
  // base[a] at the current position of array a.
  template <class Fn>
  void each(int inner, char** base, Fn&& fn) const {
    const int outer = loops_ - inner;
    if (outer <= 0) return fn();
    std::array<int64_t, kMaxLoops> i{};
    for (;;) {
      fn();
      int l = outer - 1;
      for (; l >= 0; --l) {
        if (++i[static_cast<size_t>(l)] < n(l)) {
          for (int a = 0; a < arrays_; ++a) base[a] += step(l, a);
          break;
        }
        i[static_cast<size_t>(l)] = 0;
        for (int a = 0; a < arrays_; ++a) base[a] -= step(l, a) * (n(l) - 1);
      }
      if (l < 0) return;
    }
  }

 private:
  int64_t& at(int loop, int array) { return steps_[loop * arrays_ + array]; }
  void swap(int i, int j) {
    std::swap(n_[static_cast<size_t>(i)], n_[static_cast<size_t>(j)]);
    for (int a = 0; a < arrays_; ++a) std::swap(at(i, a), at(j, a));
  }

  int arrays_, loops_ = 0;
  std::array<int64_t, kMaxLoops> n_;
  std::array<int64_t, 4 * kMaxLoops> few_;
  std::vector<int64_t> many_;
  int64_t* steps_ = few_.data();
};

}  // namespace dtensor
