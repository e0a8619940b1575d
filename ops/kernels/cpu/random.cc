#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "dtensor/ops/kernels/cpu/cpu_kernels.h"
#include "dtensor/ops/kernels/cpu/loops.h"
#include "dtensor/ops/kernels/philox.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

constexpr double kTwoPi = 6.283185307179586476925286766559;

// The number of blocks drawn at a time.
constexpr int64_t kBlocks = kChunk / 4;

using U64v = uint64_t __attribute__((vector_size(kVecBytes)));

// The words of n consecutive blocks, as philox_block() gives them, computed a
// register of blocks at a time. `words` has room for n rounded up to whole
// registers.
void draw_words(uint64_t seed, uint64_t stream_id, uint64_t first, int64_t n,
                uint32_t* words) {
  constexpr int64_t w = kVecBytes / 8;
  const uint64_t low = 0xffffffffu;
  U64v lane;
  for (int64_t i = 0; i < w; ++i) lane[i] = static_cast<uint64_t>(i);
  for (int64_t b = 0; b < n; b += w) {
    const U64v counter = lane + (first + static_cast<uint64_t>(b));
    U64v c0 = counter & low, c1 = counter >> 32;
    U64v c2 = U64v{} + (stream_id & low), c3 = U64v{} + (stream_id >> 32);
    uint64_t k0 = seed & low, k1 = seed >> 32;
    for (int round = 0; round < 10; ++round) {
      const U64v p0 = c0 * 0xD2511F53u, p1 = c2 * 0xCD9E8D57u;
      c0 = (p1 >> 32) ^ c1 ^ k0;
      c1 = p1 & low;
      c2 = (p0 >> 32) ^ c3 ^ k1;
      c3 = p0 & low;
      k0 = (k0 + 0x9E3779B9u) & low;
      k1 = (k1 + 0xBB67AE85u) & low;
    }
    uint64_t t[4][w];
    std::memcpy(t[0], &c0, sizeof(c0));
    std::memcpy(t[1], &c1, sizeof(c1));
    std::memcpy(t[2], &c2, sizeof(c2));
    std::memcpy(t[3], &c3, sizeof(c3));
    for (int64_t i = 0; i < w; ++i)
      for (int j = 0; j < 4; ++j)
        words[4 * (b + i) + j] = static_cast<uint32_t>(t[j][i]);
  }
}

// The types below make values of whole blocks. from(words, n, out) sets out to
// those of n blocks, kPerBlock for each: four 32-bit words, or two 64-bit
// words.
uint64_t wide(const uint32_t* w, int64_t i) {
  return w[2 * i] | uint64_t{w[2 * i + 1]} << 32;
}

template <class S>
struct Uniform {
  using T = compute_t<S>;
  static constexpr int kPerBlock = std::is_same_v<S, double> ? 2 : 4;
  T low, range;
  Uniform(double p0, double p1)
      : low(static_cast<T>(p0)), range(static_cast<T>(p1 - p0)) {}
  void from(const uint32_t* w, int64_t n, S* out) const {
    for (int64_t i = 0; i < n * kPerBlock; ++i) {
      T u;
      if constexpr (std::is_same_v<S, double>)
        u = static_cast<double>(wide(w, i) >> 11) * 0x1p-53;
      else if constexpr (std::is_same_v<S, bf16>)
        u = static_cast<float>(w[i] >> 24) * 0x1p-8f;
      else if constexpr (std::is_same_v<S, f16>)
        u = static_cast<float>(w[i] >> 21) * 0x1p-11f;
      else
        u = static_cast<float>(w[i] >> 8) * 0x1p-24f;
      out[i] = static_cast<S>(std::fma(u, range, low));
    }
  }
};

// Box-Muller: a pair of words gives the cosine for the even index and the sine
// for the odd one. In f64; for f32 with libmvec's functions, whose error of 4
// ulp of f64 is far below half an ulp of f32.
template <class S>
struct Normal {
  static constexpr int kPerBlock = std::is_same_v<S, double> ? 2 : 4;
  double mean, deviation;
  Normal(double p0, double p1) : mean(p0), deviation(p1) {}
  void from(const uint32_t* w, int64_t n, S* out) const {
    if constexpr (std::is_same_v<S, double>) {
      for (int64_t i = 0; i < n; ++i) {
        const double u =
            (static_cast<double>(wide(w, 2 * i) >> 11) + 1) * 0x1p-53;
        const double angle =
            static_cast<double>(wide(w, 2 * i + 1) >> 11) * 0x1p-53 * kTwoPi;
        const double r = std::sqrt(-2 * std::log(u));
        out[2 * i] = mean + deviation * (r * std::cos(angle));
        out[2 * i + 1] = mean + deviation * (r * std::sin(angle));
      }
    } else {
      using V = Vec<double>;
      for (int64_t i = 0; i < 2 * n; i += V::n) {
        const int64_t pairs = std::min(V::n, 2 * n - i);
        double u[V::n], angle[V::n], even[V::n], odd[V::n];
        for (int64_t j = 0; j < V::n; ++j) {
          const int64_t at = 2 * (i + std::min(j, pairs - 1));
          u[j] = (static_cast<double>(w[at]) + 1) * 0x1p-32;
          angle[j] = static_cast<double>(w[at + 1]) * 0x1p-32 * kTwoPi;
        }
        const V r = sqrt(V(-2) * log(load(u))) * V(deviation), a = load(angle);
        store(even, V(mean) + r * cos(a));
        store(odd, V(mean) + r * sin(a));
        for (int64_t j = 0; j < pairs; ++j) {
          out[2 * (i + j)] = S(static_cast<float>(even[j]));
          out[2 * (i + j) + 1] = S(static_cast<float>(odd[j]));
        }
      }
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
  void from(const uint32_t* w, int64_t n, S* out) const {
    for (int64_t i = 0; i < n * kPerBlock; ++i) {
      const bool one = w[i] < below;
      if constexpr (is_half<S>)
        out[i] = S(one ? 1.0f : 0.0f);
      else
        out[i] = static_cast<S>(one);
    }
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
  void from(const uint32_t* w, int64_t n, S* out) const {
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
  void from(const uint32_t* w, int64_t n, S* out) const {
    for (int64_t i = 0; i < n * kPerBlock; ++i)
      out[i] =
          kPerBlock == 2 ? static_cast<S>(wide(w, i)) : static_cast<S>(w[i]);
  }
};

template <class S, class Value>
void fill_box(const RandomBox& a, const Value& value, S* out) {
  constexpr int64_t per = Value::kPerBlock;
  const uint64_t seed = a.key.at ? a.key.at[0] : a.key.seed,
                 stream_id = a.key.at ? a.key.at[1] : a.key.stream;
  const Shape index_strides = contiguous_strides(a.global);
  int64_t first = 0;
  for (int i = 0; i < a.lo.size(); ++i) first += a.lo[i] * index_strides[i];
  const Walk<2> walk(a.size, {&index_strides, &a.out_strides});
  const int64_t n = walk.inner();
  const int64_t step = walk.inner_stride(0), stride = walk.inner_stride(1);
  uint32_t words[4 * kBlocks + 64];
  S values[4 * kBlocks];
  int64_t have = 0, have_end = 0;  // the indices in `values`
  walk.rows([&](const int64_t(&o)[2]) {
    int64_t i = first + o[0];
    S* to = out + o[1];
    for (int64_t left = n; left > 0;) {
      if (i < have || i >= have_end) {
        // As many blocks as this run needs.
        const int64_t block = i / per;
        const int64_t last = step == 1 ? (i + left - 1) / per : block;
        const int64_t count = std::min(kBlocks, last - block + 1);
        draw_words(seed, stream_id, static_cast<uint64_t>(block), count, words);
        value.from(words, count, values);
        have = block * per;
        have_end = have + count * per;
      }
      const int64_t m = step == 1 ? std::min(left, have_end - i) : int64_t{1};
      for (int64_t j = 0; j < m; ++j) to[j * stride] = values[i - have + j];
      to += m * stride;
      i += m * step;
      left -= m;
    }
  });
}

}  // namespace

void CpuKernels::run(Stream, const RandomBox& a) const {
  visit(a.type, [&]<class S>() {
    auto draw = [&]<class Value>() {
      fill_box(a, Value(a.p0, a.p1), static_cast<S*>(a.out));
    };
    if (a.distribution == Distribution::kBernoulli)
      return draw.template operator()<Bernoulli<S>>();
    if constexpr (is_float(dtype_of<S>)) {
      if (a.distribution == Distribution::kUniform)
        return draw.template operator()<Uniform<S>>();
      if (a.distribution == Distribution::kNormal)
        return draw.template operator()<Normal<S>>();
    } else if constexpr (!std::is_same_v<S, bool>) {
      if (a.distribution == Distribution::kInteger)
        return draw.template operator()<Integer<S>>();
      if (a.distribution == Distribution::kBits)
        return draw.template operator()<Bits<S>>();
    }
    fail("random", "does not draw {} from this distribution", name(a.type));
  });
}

}  // namespace dtensor::kernels
