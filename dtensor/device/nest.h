// The loops over a strided box, for several arrays that are walked together.
#pragma once
#include <array>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "dtensor/device/device.h"

namespace dtensor {

// Built from a shape and the strides of each array; array 0 is the destination.
// simplify() drops loops of length 1, moves the loop with array 0's smallest
// step innermost, and fuses loops where possible. At least one loop remains.
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

  // False if the box is empty.
  bool simplify() {
    int kept = 0;
    for (int i = 0; i < loops_; ++i) {
      if (n(i) == 0) return false;
      if (n(i) == 1) continue;
      // Sort loops by decreasing step of array 0.
      int to = kept++;
      const int64_t rounds = n(i), step = std::abs(at(i, 0));
      std::array<int64_t, 4> few;
      std::vector<int64_t> many;
      int64_t* moved = few.data();
      if (arrays_ > 4) {
        many.resize(static_cast<size_t>(arrays_));
        moved = many.data();
      }
      for (int a = 0; a < arrays_; ++a) moved[a] = at(i, a);
      for (; to > 0 && std::abs(at(to - 1, 0)) < step; --to) move(to - 1, to);
      n_[static_cast<size_t>(to)] = rounds;
      for (int a = 0; a < arrays_; ++a) at(to, a) = moved[a];
    }
    loops_ = kept;
    if (loops_ == 0) {
      n_[0] = 1;
      for (int a = 0; a < arrays_; ++a) at(0, a) = 0;
      loops_ = 1;
      return true;
    }
    int last = 0;
    for (int i = 1; i < loops_; ++i) {
      bool one = true;
      for (int a = 0; a < arrays_ && one; ++a)
        one = at(last, a) == at(i, a) * n(i);
      if (one) {
        n_[static_cast<size_t>(i)] *= n(last);
        move(i, last);
      } else if (++last != i) {
        move(i, last);
      }
    }
    loops_ = last + 1;
    return true;
  }

  int loops() const { return loops_; }
  int64_t n(int loop) const { return n_[static_cast<size_t>(loop)]; }
  int64_t step(int loop, int array) const {  // in bytes
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
  void move(int from, int to) {
    n_[static_cast<size_t>(to)] = n_[static_cast<size_t>(from)];
    for (int a = 0; a < arrays_; ++a) at(to, a) = at(from, a);
  }
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
