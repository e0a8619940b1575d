// SPDX-License-Identifier: Apache-2.0
// Exact sums of many floats at a time. Private to ops/kernels.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "dtensor/ops/kernels/cpu/dots.h"
#include "dtensor/ops/kernels/cpu/gemm.h"
#include "dtensor/placement/exact.h"

namespace dtensor::kernels::cpu {

// The exact sums of a tile of up to kRows rows of kWidth columns each.
template <int64_t kRows>
class ExactTile {
  using V = Vec<double>;
  using I = typename Raw<double>::mask;

 public:
  static constexpr int64_t kWidth = 4 * V::n, kTile = kRows * kWidth;

  // Reads rows of c.
  void load_from(Mat<const Exact> c, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < kWidth; i += V::n) {
        const Exact* const from = c.p + r * c.row + i * c.col;
        const int64_t at = r * kWidth + i, left = columns - i;
        V high(0), low(0);
        if (c.col == 1 && left >= V::n) {
          const V x = load(&from->high), y = load(&from[V::n / 2].high);
          high = shuffled(x, y, 2 * lane_numbers<double>());
          low = shuffled(x, y, 2 * lane_numbers<double>() + 1);
        } else {
          // A column beyond the last gets any sum that fits its zeros.
          for (int64_t q = 0; q < V::n; ++q) {
            const Exact x = q < left ? from[q * c.col] : Exact(1);
            high.v[q] = x.high, low.v[q] = x.low;
          }
        }
        store(high_ + at, high);
        store(low_ + at, low);
      }
  }
  void store_to(Mat<Exact> c, int64_t rows, int64_t columns) const {
    const I half = lane_numbers<double>() / 2,
            second = lane_numbers<double>() % 2 * V::n;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < columns; i += V::n) {
        Exact* const to = c.p + r * c.row + i * c.col;
        const int64_t at = r * kWidth + i, left = columns - i;
        const V high = load(high_ + at), low = load(low_ + at);
        if (c.col == 1 && left >= V::n) {
          store(&to->high, shuffled(high, low, half + second));
          store(&to[V::n / 2].high,
                shuffled(high, low, half + second + V::n / 2));
        } else {
          for (int64_t q = 0; q < std::min(V::n, left); ++q)
            to[q * c.col].high = high.v[q], to[q * c.col].low = low.v[q];
        }
      }
  }

  // Writes the sums of the first rows, rounded to floats. Each is of fewer than
  // 2^25 numbers.
  void round(int64_t rows, float* to) const {
    for (int64_t at = 0; at < rows * kWidth; at += V::n) {
      const V high = load(high_ + at), low = load(low_ + at);
      const V sum = (high - empty(high)) + (low - empty(low));
      // An infinity, or NaN, is its own value.
      const I finite = (bits(high) & kExponent) != kExponent;
      narrowed(select(finite, sum, high), to + at);
    }
  }

  // Adds `count` tiles of numbers to the sums of the first rows. If `fresh`,
  // these are sums of nothing, whatever was there.
  void add(int64_t count, bool fresh, int64_t rows, const float* numbers) {
    while (count > 0) {
      const int64_t n = count >= 8 ? 8 : count >= 4 ? 4 : 1;
      if (n == 8)
        fresh ? add<8, true>(rows, numbers) : add<8, false>(rows, numbers);
      else if (n == 4)
        fresh ? add<4, true>(rows, numbers) : add<4, false>(rows, numbers);
      else
        fresh ? add<1, true>(rows, numbers) : add<1, false>(rows, numbers);
      count -= n, numbers += n * kTile, fresh = false;
    }
  }

 private:
  template <int64_t count, bool fresh>
  void add(int64_t rows, const float* numbers) {
    for (int64_t at = 0; at < rows * kWidth; at += kWidth) {
      alignas(64) float largest[kWidth];
      for (int64_t i = 0; i < kWidth; i += Vec<float>::n) {
        using Bits = typename Raw<float>::mask;
        Bits most{};  // numbers that are not negative compare as integers do
#pragma GCC unroll 8
        for (int64_t q = 0; q < count; ++q) {
          const auto x = (Bits)abs(load(numbers + q * kTile + at + i)).v;
          most = x > most ? x : most;
        }
        store(largest + i, Vec<float>((typename Raw<float>::type)most));
      }
      V all[4], high[4], low[4];
      I below = lanes<double>(-1), finite = below;
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        all[i] = widened(largest + i * V::n);
        high[i] = fresh ? V(0) : load(high_ + at + i * V::n);
        low[i] = fresh ? V(0) : load(low_ + at + i * V::n);
        below &= bits(all[i]) - bits(limit(high[i]));
        finite &= bits(all[i]) - bits(V(0x1p960));
      }
      const float* const from = numbers + at;
      if (!fresh && all_negative(below)) [[likely]] {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i)
          deposit<count>(from + i * V::n, high[i], low[i]);
      } else if (all_negative(finite)) [[likely]] {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          if constexpr (fresh)
            set_words(all[i], high[i], low[i]);
          else
            raise(all[i], high[i], low[i]);
          V sums[2] = {high[i], low[i]};
          deposit<count>(from + i * V::n, sums[0], sums[1]);
          // Zeros make no sum.
          const I some = fresh ? all[i] != V(0) : high[i] != V(0);
          high[i] = select(some, sums[0], fresh ? V(0) : high[i]);
          low[i] = select(some, sums[1], fresh ? V(0) : low[i]);
        }
      } else {
        for (int64_t i = 0; i < kWidth; ++i) {
          Exact sum;
          if (!fresh) sum.high = high_[at + i], sum.low = low_[at + i];
          for (int64_t q = 0; q < count; ++q) sum.add(from[q * kTile + i]);
          high_[at + i] = sum.high, low_[at + i] = sum.low;
        }
        continue;
      }
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        store(high_ + at + i * V::n, high[i]);
        store(low_ + at + i * V::n, low[i]);
      }
    }
  }

  static I bits(V x) { return (I)x.v; }
  static V of_bits(I x) { return (typename V::R)x; }
  static V widened(const float* x) {
#if defined(__AVX512F__)  // GCC converts the parts one after the other
    return (typename V::R)_mm512_cvtps_pd(_mm256_loadu_ps(x));
#else
    using Half = float __attribute__((vector_size(kVecBytes / 2)));
    Half half;
    std::memcpy(&half, x, sizeof(half));
    return __builtin_convertvector(half, typename V::R);
#endif
  }
  static void narrowed(V x, float* to) {
#if defined(__AVX512F__)
    _mm256_storeu_ps(to, _mm512_cvtpd_ps((__m512d)x.v));
#else
    for (int64_t i = 0; i < V::n; ++i) to[i] = static_cast<float>(x.v[i]);
#endif
  }
  static bool all_negative(I x) {
#if defined(__AVX512DQ__)
    return _mm512_movepi64_mask((__m512i)x) == 0xff;
#else
    int64_t all = -1;
    for (int64_t i = 0; i < V::n; ++i) all &= x[i];
    return all < 0;
#endif
  }

  // As in Exact.
  static V power(V word) { return of_bits(bits(word) & kExponent); }
  static V limit(V word) { return power(word) * V(0x1p-27); }
  static V empty(V word) { return power(word) * V(1.5); }
  // Adds `count` numbers that fit the bins of two words. To add a number to an
  // empty word rounds it to a multiple of the grid, which the last bits of the
  // result hold. These add up as integers, so no number waits for another one.
  template <int64_t count>
  static void deposit(const float* numbers, V& high, V& low) {
    const V no_high = empty(high), no_low = empty(low);
    I highs{}, both{};
#pragma GCC unroll 8
    for (int64_t q = 0; q < count; ++q) {
      const V x = of_bits(bits(widened(numbers + q * kTile)) | 1);
      highs += bits(x + no_high);
      both += bits(x + no_low);
    }
    highs -= count * bits(no_high);
    both -= count * bits(no_low);
    high = of_bits(bits(high) + highs);
    low = of_bits(bits(low) + both - (highs << Exact::kWidth));
  }
  // Sets empty words for the bins that x needs. 0 <= x < 2^960.
  static void set_words(V x, V& high, V& low) {
    // The number of bins above the lowest, as in Exact::raise().
    constexpr int64_t kBias = 1023;
    I bin = (bits(x) >> 52) - (kBias + 24 + Exact::kWidth * Exact::kLowest);
    bin = bin > 0 ? bin : I{};
    // A division, exact for all these numbers.
    bin = (bin + (Exact::kWidth - 1)) * ((1 << 16) / Exact::kWidth + 1) >> 16;
    const I exponent =
        bin * Exact::kWidth + (kBias + 52 + Exact::kWidth * Exact::kLowest);
    high = of_bits(exponent << 52 | int64_t{1} << 51);
    low = of_bits((exponent - Exact::kWidth) << 52 | int64_t{1} << 51);
  }
  // Raises sums to the bins that x needs. 0 <= x < 2^960.
  static void raise(V x, V& high, V& low) {
    V new_high, new_low;
    set_words(x, new_high, new_low);
    const I raised = (x >= limit(high)) & (x != V(0));
    const I next = ((bits(high) ^ bits(new_low)) & kExponent) == 0;
    low = select(raised, select(next, high, new_low), low);
    high = select(raised, new_high, high);
  }

  static constexpr int64_t kExponent = int64_t{0x7ff} << 52;
  alignas(64) double high_[kTile];
  alignas(64) double low_[kTile];
};

}  // namespace dtensor::kernels::cpu
