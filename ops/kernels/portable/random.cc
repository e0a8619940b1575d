// Random numbers: each block of Philox (philox.h) serves several indices.
#include <algorithm>
#include <cmath>

#include "dtensor/device/portable/walk.h"
#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/philox.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::Pack;

constexpr double kTwoPi = 6.283185307179586476925286766559;

// The types below make the kPerBlock values of a block: from four 32-bit words,
// or two 64-bit words.
DT_HD inline uint64_t wide(const Philox4& w, int i) {
  return w.x[2 * i] | uint64_t{w.x[2 * i + 1]} << 32;
}
template <class S>
inline constexpr int kFloatsPerBlock = sizeof(S) == 8 ? 2 : 4;

template <class S>
struct Uniform {
  using C = portable::compute_t<S>;
  static constexpr int kPerBlock = kFloatsPerBlock<S>;
  C low, range;
  Uniform(double p0, double p1)
      : low(static_cast<C>(p0)), range(static_cast<C>(p1 - p0)) {}
  DT_HD void from(const Philox4& w, S* out) const {
    for (int i = 0; i < kPerBlock; ++i) {
      C u;
      if constexpr (std::is_same_v<S, double>)
        u = static_cast<double>(wide(w, i) >> 11) * 0x1p-53;
      else if constexpr (std::is_same_v<S, float>)
        u = static_cast<float>(w.x[i] >> 8) * 0x1p-24f;
      else if constexpr (std::is_same_v<S, f16>)
        u = static_cast<float>(w.x[i] >> 21) * 0x1p-11f;
      else
        u = static_cast<float>(w.x[i] >> 24) * 0x1p-8f;
      out[i] = portable::rounded<S>(std::fma(u, range, low));
    }
  }
};

// Box-Muller: a pair of words gives the cosine for the even index and the sine
// for the odd one.
template <class S>
struct Normal {
  static constexpr int kPerBlock = kFloatsPerBlock<S>;
  double mean, deviation;
  Normal(double p0, double p1) : mean(p0), deviation(p1) {}
  DT_HD void from(const Philox4& w, S* out) const {
    for (int i = 0; i < kPerBlock; i += 2) {
      double u, turn;
      if constexpr (std::is_same_v<S, double>) {
        u = (static_cast<double>(wide(w, 0) >> 11) + 1) * 0x1p-53;
        turn = static_cast<double>(wide(w, 1) >> 11) * 0x1p-53;
      } else {
        u = (static_cast<double>(w.x[i]) + 1) * 0x1p-32;
        turn = static_cast<double>(w.x[i + 1]) * 0x1p-32;
      }
      const double radius = fn::sqrt(-2 * fn::log(u)), angle = turn * kTwoPi;
      out[i] = scaled(radius * fn::cos(angle));
      out[i + 1] = scaled(radius * fn::sin(angle));
    }
  }
  DT_HD S scaled(double x) const {
    return portable::rounded<S>(
        static_cast<portable::compute_t<S>>(mean + deviation * x));
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
  DT_HD void from(const Philox4& w, S* out) const {
    for (int i = 0; i < kPerBlock; ++i)
      out[i] = portable::rounded<S>(
          static_cast<portable::compute_t<S>>(w.x[i] < below));
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
  DT_HD void from(const Philox4& w, S* out) const {
    for (int i = 0; i < kPerBlock; ++i) {
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
  DT_HD void from(const Philox4& w, S* out) const {
    for (int i = 0; i < kPerBlock; ++i)
      out[i] = static_cast<S>(kPerBlock == 2 ? wide(w, i) : w.x[i]);
  }
};

// The box as runs of `n` consecutive indices. Array 0 of the walk has their
// positions in `global`, and array 1 those in the output.
struct Box {
  RandomKey key;
  portable::Walk<2> walk;
  int64_t first, n, out_step;

  // The most blocks that a run needs: one more if it starts inside a block.
  int64_t blocks(int64_t per) const { return n == 1 ? 1 : (n - 1) / per + 2; }
};
Box box_of(const RandomBox& a) {
  const Shape strides = contiguous_strides(a.global);
  int64_t first = 0;
  for (int i = 0; i < a.lo.size(); ++i) first += a.lo[i] * strides[i];
  const portable::Walk<2> walk(a.size, {strides, a.out_strides});
  const bool runs = walk.inner_step(0) == 1;
  return {a.key, walk, first, runs ? walk.inner() : 1, walk.inner_step(1)};
}

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
        const RandomKey& key = b.key;
        const Philox4 words = philox_block(key.at ? key.at[0] : key.seed,
                                           key.at ? key.at[1] : key.stream,
                                           static_cast<uint64_t>(block));
        Pack<S, per> values;
        make.from(words, values.v);
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

}  // namespace

void PortableKernels::run(Stream s, const RandomBox& a) const {
  const Box box = box_of(a);
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
