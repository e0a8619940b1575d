// SPDX-License-Identifier: Apache-2.0
// Iteration over strided arrays of one shape in a kernel: the host computes the
// loops, and each thread the position of its element.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>
#include <utility>

#include "dtensor/device/device.h"
#include "dtensor/device/nest.h"
#include "dtensor/ops/kernels/portable/divisor.h"
#include "dtensor/ops/kernels/portable/executor.h"
#include "dtensor/ops/kernels/portable/pack.h"

namespace dtensor::portable {
inline namespace DT_PORTABLE {

// `A` arrays of one shape. Array 0 is the destination, and elements are
// numbered in the order of its memory. At most kMaxLoops dimensions. Kernels
// get a copy of the Walk.
template <int A>
class Walk {
 public:
  // Strides in elements.
  Walk(Sizes shape, const std::array<Sizes, A>& strides) {
    for (size_t i = 0; i < shape.size(); ++i) {
      n_[i] = shape[i];
      for (size_t a = 0; a < A; ++a) step_[i][a] = strides[a][i];
    }
    loops_ = simplify_loops(static_cast<int>(shape.size()), n_, &step_[0][0],
                            std::integral_constant<int, A>());
    count_ = 1;
    for (int l = 0; l < loops_; ++l) count_ *= n_[l];
    narrow_ = !kManyPasses && count_ <= INT32_MAX;
    if (narrow_)
      for (int l = 1; l < loops_; ++l)
        by_[l] = Divisor(static_cast<uint32_t>(n_[l]));
  }

  // The number of elements, which may be 0.
  DT_HD int64_t count() const { return count_; }
  // The innermost loop, over consecutive elements: its length, and the step of
  // array a in it.
  DT_HD int64_t inner() const { return n_[loops_ - 1]; }
  DT_HD int64_t inner_step(int a) const { return step_[loops_ - 1][a]; }

  // The offset of element i in each array. REQUIRES: 0 <= i < count().
  DT_HD void at(int64_t i, int64_t (&offset)[A]) const {
    for (int a = 0; a < A; ++a) offset[a] = 0;
    if (narrow_) {
      auto left = static_cast<uint32_t>(i);
      DT_UNROLL(1)
      for (int l = loops_ - 1; l > 0; --l) {
        const uint32_t outer = by_[l].quotient(left);
        go(l, left - outer * static_cast<uint32_t>(n_[l]), offset);
        left = outer;
      }
      go(0, left, offset);
    } else {
      DT_UNROLL(1)
      for (int l = loops_ - 1; l > 0; --l) {
        const int64_t outer = i / n_[l];
        go(l, i - outer * n_[l], offset);
        i = outer;
      }
      go(0, i, offset);
    }
  }

  // Calls f(offsets) for the start of each run along the innermost loop, in
  // order. Only for the host.
  template <class F>
  void runs(F&& f) const {
    if (count_ == 0) return;
    int64_t offset[A] = {}, round[kMaxLoops];
    for (int l = 0; l < loops_; ++l) round[l] = 0;
    for (;;) {
      f(offset);
      int l = loops_ - 2;
      for (; l >= 0; --l) {
        go(l, 1, offset);
        if (++round[l] < n_[l]) break;
        go(l, -n_[l], offset);
        round[l] = 0;
      }
      if (l < 0) return;
    }
  }

  // Whether array `a`, which begins at p, can be read `width` elements at a
  // time, from any multiple of `width` on: these elements are contiguous and
  // aligned, or all the same element.
  template <class T>
  bool packs(int a, const T* p, int width) const {
    const int64_t step = inner_step(a);
    bool all = (step == 1 && aligned(p, width)) || (step == 0 && a > 0);
    all &= loops_ == 1 || inner() % width == 0;
    for (int l = 0; step == 1 && l + 1 < loops_; ++l)
      all &= step_[l][a] % width == 0;
    return all;
  }

 private:
  DT_HD void go(int loop, int64_t rounds, int64_t (&offset)[A]) const {
    for (int a = 0; a < A; ++a) offset[a] += rounds * step_[loop][a];
  }

  int loops_;
  bool narrow_;  // on a GPU: element numbers fit 31 bits, so by_[1...] are set
  int64_t count_;
  int64_t n_[kMaxLoops];
  Divisor by_[kMaxLoops];
  int64_t step_[kMaxLoops][A];
};

// The body of map() below: index i stands for a pack of W elements, or, after
// all packs, for one of the remaining elements. There are one or two outputs of
// the same layout.
template <int W, int outputs, class Out, class F, class... In>
struct MapWalk {
  static constexpr int A = 1 + sizeof...(In);
  Walk<A> walk;
  F f;
  Out* out[outputs];
  const void* in[A];  // has a spare entry, because an array of 0 is not allowed
  int64_t packs;

  DT_HD void operator()(int64_t i) const {
    run(i, std::make_integer_sequence<int, A - 1>());
  }

 private:
  template <int... k>
  DT_HD void run(int64_t i, std::integer_sequence<int, k...>) const {
    int64_t at[A];
    walk.at(i < packs ? i * W : i + packs * (W - 1), at);
    if constexpr (W > 1) {
      if (i < packs) return pack<W>(at[0], get<In>(k, at)...);
    }
    pack<1>(at[0], Pack<In, 1>{{*operand<In>(k, at)}}...);
  }
  template <class T>
  DT_HD const T* operand(int k, const int64_t (&at)[A]) const {
    return static_cast<const T*>(in[k]) + at[k + 1];
  }
  template <class T>
  DT_HD Pack<T, W> get(int k, const int64_t (&at)[A]) const {
    const T* p = operand<T>(k, at);
    if (walk.inner_step(k + 1) != 0) return load<W>(p);
    Pack<T, W> same;
    for (int w = 0; w < W; ++w) same.v[w] = *p;
    return same;
  }
  template <int N>
  DT_HD void pack(int64_t at, const Pack<In, N>&... x) const {
    Pack<Out, N> first;
    [[maybe_unused]] Pack<Out, N> second;
    DT_UNROLL(N)
    for (int w = 0; w < N; ++w) {
      if constexpr (outputs == 1) {
        first.v[w] = static_cast<Out>(f(x.v[w]...));
      } else {
        const Two<Out> both = f(x.v[w]...);
        first.v[w] = both.first;
        second.v[w] = both.second;
      }
    }
    store(out[0] + at, first);
    if constexpr (outputs == 2) store(out[1] + at, second);
  }
};

// The number of packs of W elements with which MapWalk begins.
template <int W, int outputs, class Out, class... In>
int64_t packs_of(const Walk<1 + sizeof...(In)>& walk,
                 Out* const (&out)[outputs], const In*... in) {
  int a = 0;
  bool together = W > 1;
  for (Out* p : out) together &= walk.packs(0, p, W);
  ((together &= walk.packs(++a, in, W)), ...);
  return together ? walk.count() / W : 0;
}

template <int W, int outputs, class Out, class F, class... In>
void map_outputs(Stream s, const Walk<1 + sizeof...(In)>& walk,
                 Out* const (&out)[outputs], F f, const In*... in) {
  using Body = MapWalk<W, outputs, Out, F, In...>;
  const int64_t packs = packs_of<W>(walk, out, in...);
  Body body{walk, f, {}, {in..., nullptr}, packs};
  std::copy_n(out, outputs, body.out);
  each(s, walk.count() - packs * (W - 1), body);
}

// map_packs() below, for one thread. Pieces of strided inputs are copied to
// contiguous arrays, so that the compiler vectorizes the loop that calls f.
// `out` is contiguous.
template <class Out, class F, class... In, int... k>
void map_runs(const Walk<1 + sizeof...(In)>& walk, Out* out, F f,
              std::integer_sequence<int, k...>, const In*... in) {
  const int64_t n = walk.inner();
  std::tuple<Piece<In>...> pieces;
  walk.runs([&](const auto& at) {
    for (int64_t i = 0; i < n; i += Piece<Out>::kMost) {
      const int64_t m = std::min(Piece<Out>::kMost, n - i);
      Out* to = out + at[0] + i;
      [&](const In*... x) {
#pragma GCC ivdep
        for (int64_t j = 0; j < m; ++j) to[j] = f(x[j]...);
      }(std::get<k>(pieces).of(in + at[k + 1] + i * walk.inner_step(k + 1),
                               walk.inner_step(k + 1), m)...);
    }
  });
}

// out = f(in...) for each element of a walk over `out` and the inputs. `out`
// may be one of the inputs if its item size and strides are the same. On a GPU,
// W elements are moved at a time if all strides and addresses allow it, else
// one. On the host, `out` has to be contiguous.
template <int W, class Out, class F, class... In>
void map_packs(Stream s, const Walk<1 + sizeof...(In)>& walk, Out* out, F f,
               const In*... in) {
  if constexpr (kManyPasses) {
    map_runs(walk, out, f, std::make_integer_sequence<int, sizeof...(In)>(),
             in...);
  } else {
    Out* const all[] = {out};
    map_outputs<W>(s, walk, all, f, in...);
  }
}

// As map_packs(), with up to 16 bytes at a time.
template <class Out, class F, class... In>
void map(Stream s, const Walk<1 + sizeof...(In)>& walk, Out* out, F f,
         const In*... in) {
  map_packs<kPack<Out, In...>>(s, walk, out, f, in...);
}

// As map(), for an f that returns Two<Out>; `second` has the layout of `first`.
template <class Out, class F, class... In>
void map_two(Stream s, const Walk<1 + sizeof...(In)>& walk, Out* first,
             Out* second, F f, const In*... in) {
  Out* const all[] = {first, second};
  map_outputs<kPack<Out, In...>>(s, walk, all, f, in...);
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::portable
