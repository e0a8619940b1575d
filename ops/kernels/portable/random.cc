// SPDX-License-Identifier: Apache-2.0
// Random numbers: each block of Philox (philox.h) serves several indices.
#include "dtensor/ops/kernels/random.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/philox.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/walk.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

constexpr double kTwoPi = 6.283185307179586476925286766559;

// Uniform and the types below it have a function from(). It makes the values of
// n blocks: kPerBlock for each block, from its four 32-bit words, or from its
// two 64-bit words, which wide() returns.
DT_HD inline uint64_t wide(const uint32_t* w, int64_t i) {
  return w[2 * i] | uint64_t{w[2 * i + 1]} << 32;
}
template <class S>
inline constexpr int kFloatsPerBlock = sizeof(S) == 8 ? 2 : 4;

// The largest number of this type below x.
template <class S>
S below(double x) {
  using C = portable::compute_t<S>;
  using Bits = std::conditional_t<
      sizeof(S) == 8, uint64_t,
      std::conditional_t<sizeof(S) == 4, uint32_t, uint16_t>>;
  const S near = portable::rounded<S>(static_cast<C>(x));
  const C value = static_cast<C>(near);
  if (static_cast<double>(value) < x) return near;
  const auto bits = std::bit_cast<Bits>(near);
  constexpr Bits kLeast = Bits{1} << (8 * sizeof(S) - 1) | 1;  // below 0
  return std::bit_cast<S>(static_cast<Bits>(value > 0   ? bits - 1
                                            : value < 0 ? bits + 1
                                                        : kLeast));
}

template <class S>
struct Uniform {
  using C = portable::compute_t<S>;
  static constexpr int kPerBlock = kFloatsPerBlock<S>;
  C low, range, last;
  Uniform(double p0, double p1)
      : low(static_cast<C>(p0)),
        range(static_cast<C>(p1 - p0)),
        last(p1 > p0 ? static_cast<C>(below<S>(p1)) : low) {}
  DT_HD void from(const uint32_t* w, int64_t n, S* out) const {
    DT_UNROLL(kPerBlock)
    for (int64_t i = 0; i < n * kPerBlock; ++i) {
      C u;
      if constexpr (std::is_same_v<S, double>)
        u = static_cast<double>(wide(w, i) >> 11) * 0x1p-53;
      else if constexpr (std::is_same_v<S, float>)
        u = static_cast<float>(w[i] >> 8) * 0x1p-24f;
      else if constexpr (std::is_same_v<S, f16>)
        u = static_cast<float>(w[i] >> 21) * 0x1p-11f;
      else
        u = static_cast<float>(w[i] >> 24) * 0x1p-8f;
      const C x = std::fma(u, range, low);
      out[i] = portable::rounded<S>(x < last ? x : last);
    }
  }
};

// Box-Muller, in f64: a pair of words gives the cosine for the even index and
// the sine for the odd one.
template <class S>
struct Normal {
  static constexpr int kPerBlock = kFloatsPerBlock<S>;
  double mean, deviation;
  Normal(double p0, double p1) : mean(p0), deviation(p1) {}

  DT_HD static double uniform(const uint32_t* w, int64_t i) {
    if constexpr (std::is_same_v<S, double>)
      return (static_cast<double>(wide(w, i) >> 11) + 1) * 0x1p-53;
    else
      return (static_cast<double>(w[i]) + 1) * 0x1p-32;
  }
  DT_HD static double angle(const uint32_t* w, int64_t i) {
    if constexpr (std::is_same_v<S, double>)
      return static_cast<double>(wide(w, i) >> 11) * 0x1p-53 * kTwoPi;
    else
      return static_cast<double>(w[i]) * 0x1p-32 * kTwoPi;
  }
  // V is double, or a register of them.
  template <class V>
  DT_HD portable::Two<V> pair(V u, V angle) const {
    using fn::cos;
    using fn::log;
    using fn::sin;
    using fn::sqrt;
    const V radius = sqrt(V(-2) * log(u));
    if constexpr (std::is_same_v<S, double>) {
      return {V(mean) + V(deviation) * (radius * cos(angle)),
              V(mean) + V(deviation) * (radius * sin(angle))};
    } else {
      const V r = radius * V(deviation);
      return {V(mean) + r * cos(angle), V(mean) + r * sin(angle)};
    }
  }
  DT_HD static S rounded(double x) {
    return portable::rounded<S>(static_cast<portable::compute_t<S>>(x));
  }
  DT_HD void from(const uint32_t* w, int64_t n, S* out) const {
    DT_UNROLL(kPerBlock)
    for (int64_t i = 0; i < n * kPerBlock; i += 2) {
      const portable::Two<double> both = pair(uniform(w, i), angle(w, i + 1));
      out[i] = rounded(both.first);
      out[i + 1] = rounded(both.second);
    }
  }
};

template <class S>
struct Bernoulli {
  static constexpr int kPerBlock = 4;
  uint64_t below;
  Bernoulli(double p0, double)
      : below(p0 > 0 ? p0 >= 1 ? uint64_t{1} << 32
                               : static_cast<uint64_t>(p0 * 0x1p32)
                     : 0) {}
  DT_HD void from(const uint32_t* w, int64_t n, S* out) const {
    DT_UNROLL(kPerBlock)
    for (int64_t i = 0; i < n * kPerBlock; ++i)
      out[i] = portable::rounded<S>(
          static_cast<portable::compute_t<S>>(w[i] < below));
  }
};

template <class S>
struct Integer {
  static constexpr int kPerBlock = 2;
  int64_t low;
  uint64_t range;
  Integer(double p0, double p1)
      : low(static_cast<int64_t>(p0)),
        range(static_cast<uint64_t>(static_cast<int64_t>(p1)) -
              static_cast<uint64_t>(static_cast<int64_t>(p0))) {}
  DT_HD void from(const uint32_t* w, int64_t n, S* out) const {
    DT_UNROLL(kPerBlock)
    for (int64_t i = 0; i < n * kPerBlock; ++i) {
      const auto product = static_cast<unsigned __int128>(wide(w, i)) * range;
      out[i] = static_cast<S>(static_cast<uint64_t>(low) +
                              static_cast<uint64_t>(product >> 64));
    }
  }
};

template <class S>
struct Bits {
  static constexpr int kPerBlock = 16 / sizeof(S);
  Bits(double, double) {}
  DT_HD void from(const uint32_t* w, int64_t n, S* out) const {
    DT_UNROLL(kPerBlock)
    for (int64_t i = 0; i < n * kPerBlock; ++i)
      out[i] = static_cast<S>(kPerBlock == 2 ? wide(w, i) : w[i]);
  }
};

// The box as runs of `n` consecutive indices in the shape `global`. The box
// begins at index `first`. Array 0 of the walk has the runs' distances from
// there, and array 1 their positions in the output.
struct Box {
  RandomKey key;
  portable::Walk<2> walk;
  int64_t first = 0, n, out_step;

  explicit Box(const RandomBox& a) : Box(a, contiguous_strides(a.global)) {}
  Box(const RandomBox& a, const Shape& strides)
      : key(a.key),
        walk(a.size, {strides, a.out_strides}),
        n(walk.inner_step(0) == 1 ? walk.inner() : 1),
        out_step(walk.inner_step(1)) {
    for (int i = 0; i < a.lo.size(); ++i) first += a.lo[i] * strides[i];
  }

  // The most blocks that a run needs: one more if it starts inside a block.
  int64_t blocks(int64_t per) const { return n == 1 ? 1 : (n - 1) / per + 2; }
  DT_HD uint64_t seed() const { return key.at ? key.at[0] : key.seed; }
  DT_HD uint64_t stream() const { return key.at ? key.at[1] : key.stream; }
};

#ifdef __CUDACC__

template <class S, class Make>
void fill_box(Stream s, const Box& b, Make make, S* out) {
  constexpr int per = Make::kPerBlock;
  const int64_t blocks = b.blocks(per);
  portable::each(
      s, b.walk.count() / b.n * blocks, DT_BODY(int64_t i) {
        int64_t at[2];
        const int64_t run = i < blocks ? 0 : i / blocks;
        b.walk.at(run * b.n, at);
        const int64_t begin = b.first + at[0], end = begin + b.n;
        const int64_t block = begin / per + i - run * blocks,
                      index = block * per;
        if (index >= end) return;
        const Philox4 words =
            philox_block(b.seed(), b.stream(), static_cast<uint64_t>(block));
        portable::Pack<S, per> values;
        make.from(words.x, 1, values.v);
        S* to = out + at[1] + (index - begin) * b.out_step;
        if (b.out_step == 1 && index >= begin && index + per <= end &&
            portable::aligned(to, per)) {
          portable::store(to, values);
          return;
        }
        DT_UNROLL(per)
        for (int j = 0; j < per; ++j)
          if (index + j >= begin && index + j < end)
            to[j * b.out_step] = values.v[j];
      });
}

#else

// The most blocks that are drawn at a time.
constexpr int64_t kBlocks = 128;

using U64v = uint64_t __attribute__((vector_size(simd::kVecBytes)));
constexpr int64_t kLanes = simd::kVecBytes / 8;

// Draws the words of n blocks, a register of blocks at a time: the blocks that
// contain the indices first, first + step, ..., with `per` indices in a block.
// `words` has room for four words per block, with n rounded up to a multiple
// of kLanes.
template <int64_t per>
void draw_words(const Box& b, int64_t first, int64_t step, int64_t n,
                uint32_t* words) {
  constexpr uint64_t kLow = 0xffffffffu;
  const uint64_t seed = b.seed(), stream = b.stream();
  U64v index;
  for (int64_t i = 0; i < kLanes; ++i)
    index[i] = static_cast<uint64_t>(first + i * step);
  for (int64_t at = 0; at < n; at += kLanes) {
    const U64v block = index / static_cast<uint64_t>(per);
    index += static_cast<uint64_t>(kLanes * step);
    const PhiloxWords<U64v> drawn = philox4x32(
        PhiloxWords<U64v>{{block & kLow, block >> 32, U64v{} + (stream & kLow),
                           U64v{} + (stream >> 32)}},
        static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    uint64_t t[4][kLanes];
    std::memcpy(t, drawn.x, sizeof(t));
    for (int64_t i = 0; i < kLanes; ++i)
      for (int j = 0; j < 4; ++j)
        words[4 * (at + i) + j] = static_cast<uint32_t>(t[j][i]);
  }
}

template <class Make, class S>
void make_values(const Make& make, const uint32_t* w, int64_t n, S* out) {
  make.from(w, n, out);
}
// Makes normal values with the functions of vec_math.h, a register of pairs at
// a time. Their error of at most 4 ulp of f64 is far below half an ulp of f32.
template <class S>
requires(!std::is_same_v<S, double>) void make_values(const Normal<S>& make,
                                                      const uint32_t* w,
                                                      int64_t n, S* out) {
  constexpr int64_t kPairs = 2 * kBlocks;
  double u[kPairs], angle[kPairs], even[kPairs], odd[kPairs];
  for (int64_t i = 0; i < 2 * n; ++i) {
    u[i] = make.uniform(w, 2 * i);
    angle[i] = make.angle(w, 2 * i + 1);
  }
  simd::each_two(2 * n, even, odd,
                 [&](auto at) { return make.pair(at(u, 1.0), at(angle)); });
  for (int64_t i = 0; i < 2 * n; ++i) {
    out[2 * i] = make.rounded(even[i]);
    out[2 * i + 1] = make.rounded(odd[i]);
  }
}

// Values are drawn for many blocks at once, and kept for the runs that follow.
// But if a run's indices are not consecutive, a block is drawn for each index.
template <class S, class Make>
void fill_box(Stream, const Box& b, const Make& make, S* out) {
  constexpr int64_t per = Make::kPerBlock;
  const int64_t n = b.walk.inner(), step = b.walk.inner_step(0);
  const bool apart = step != 1;
  uint32_t words[4 * kBlocks + 4 * kLanes];
  S values[4 * kBlocks];
  int64_t have = 0, have_end = 0;  // indices of `values`, unless apart
  b.walk.runs([&](const int64_t(&at)[2]) {
    int64_t i = b.first + at[0];
    S* to = out + at[1];
    for (int64_t left = n; left > 0;) {
      if (apart || i < have || i >= have_end) {
        // As many blocks as the rest of this run needs, but at most kBlocks.
        const int64_t count = std::min(
            kBlocks, apart ? left : (i + left - 1) / per - i / per + 1);
        draw_words<per>(b, i, apart ? step : per, count, words);
        make_values(make, words, count, values);
        have = i / per * per;
        have_end = have + count * per;
      }
      const int64_t m = std::min(left, apart ? kBlocks : have_end - i);
      if (apart)
        for (int64_t j = 0; j < m; ++j)
          to[j * b.out_step] = values[j * per + (i + j * step) % per];
      else
        for (int64_t j = 0; j < m; ++j)
          to[j * b.out_step] = values[i - have + j];
      to += m * b.out_step;
      i += m * step;
      left -= m;
    }
  });
}

#endif

}  // namespace

DT_KERNEL(RandomBox)
void run(Stream s, const RandomBox& a) {
  const Box box(a);
  visit(a.type, [&]<class S>() {
    auto* to = static_cast<S*>(a.out);
    if (a.distribution == Distribution::kBernoulli)
      return fill_box(s, box, Bernoulli<S>(a.p0, a.p1), to);
    if constexpr (portable::is_floating<S>) {
      if (a.distribution == Distribution::kUniform)
        return fill_box(s, box, Uniform<S>(a.p0, a.p1), to);
      if (a.distribution == Distribution::kNormal)
        return fill_box(s, box, Normal<S>(a.p0, a.p1), to);
    } else if constexpr (!std::is_same_v<S, bool>) {
      if (a.distribution == Distribution::kInteger)
        return fill_box(s, box, Integer<S>(a.p0, a.p1), to);
      if (a.distribution == Distribution::kBits)
        return fill_box(s, box, Bits<S>(a.p0, a.p1), to);
    }
    no_kernel("random", a.type);
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
