// SPDX-License-Identifier: Apache-2.0
// A sum of floats that does not depend on their order.
//
// The method is that of binned sums (Demmel, Ahrens and Nguyen, "Efficient
// Reproducible Floating Point Summation and BLAS", UC Berkeley EECS-2016-121),
// with two bins. Bin i is the grid of all multiples of 2^(26 i). A number x
// needs the lowest bin i for which |x| < 2^(26 i + 25). The sum keeps the
// highest bin that some number has needed, `high`, and the one below it, `low`:
// of each number, `high` has the nearest multiple of its grid, and `low` the
// nearest multiple of its own grid to what is then left. All of these are
// integers times a power of two, so they add up exactly, in any order. A number
// loses at most 2^-26 of the largest one; a single float loses nothing.
//
// A word holds an integer k of its grid as the double (1.5 * 2^52 + k) *
// 2^(26 i): its exponent tells the bin, and adding a double to it rounds that
// double to the grid. Up to 2^25 numbers can be added. If many more are, the
// value is NaN.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace dtensor {

// A sum of numbers. If all its bytes are zero, it is a sum of nothing: 0.
struct Exact {
  double high = 0, low = 0;

  Exact() = default;
  explicit Exact(double x) { add(x); }

  // Adds a number. From 2^960 on, it counts as infinite.
  void add(double x) {
    if (!(std::abs(x) < limit(high)) && !raise(x)) return;
    deposit(x);
  }
  // Adds the numbers that `o` is the sum of.
  void add(Exact o) {
    if (o.high == 0) return;
    if (high == 0) {
      *this = o;
    } else if (!std::isfinite(high) || !std::isfinite(o.high)) {
      high += o.high;
    } else {
      raise_to(o.bin());
      o.raise_to(bin());
      high += o.high - empty(o.high);
      low += o.low - empty(o.low);
    }
  }
  // The sum, rounded to a double.
  double value() const {
    if (high == 0 || !std::isfinite(high)) return high;
    if (!holds_word(high) || !holds_word(low))
      return std::numeric_limits<double>::quiet_NaN();
    return (high - empty(high)) + (low - empty(low));
  }

  static constexpr int kWidth = 26;  // bits from one bin to the next
  // The lowest bin holds all floats below 2^-157; doubles have no lower one.
  static constexpr int kLowest = -7;
  // Writes the values of n sums, rounded to floats.
  static void values(const Exact* sums, int64_t n, float* to) {
    constexpr int64_t kBlock = 16;
    for (int64_t i = 0; i < n; i += kBlock, sums += kBlock, to += kBlock) {
      const int64_t m = n - i < kBlock ? n - i : kBlock;
      // Neighbours mostly have the same bins, so that one check does for all.
      uint64_t differ = 0;
      for (int64_t j = 0; j < m; ++j)
        differ |= (std::bit_cast<uint64_t>(sums[j].high) ^
                   std::bit_cast<uint64_t>(sums[0].high)) |
                  (std::bit_cast<uint64_t>(sums[j].low) ^
                   std::bit_cast<uint64_t>(sums[0].low));
      const bool plain = sums[0].high != 0 && std::isfinite(sums[0].high) &&
                         holds_word(sums[0].high) && holds_word(sums[0].low);
      if (plain && !(differ & kExponent)) {
        const double high = empty(sums[0].high), low = empty(sums[0].low);
        for (int64_t j = 0; j < m; ++j)
          to[j] =
              static_cast<float>((sums[j].high - high) + (sums[j].low - low));
      } else {
        for (int64_t j = 0; j < m; ++j)
          to[j] = static_cast<float>(sums[j].value());
      }
    }
  }

  // sums[i].add(x[i]) for i < n.
  static void add_each(Exact* sums, const float* x, int64_t n) {
    constexpr int64_t kBlock = 16;
    for (int64_t i = 0; i < n; i += kBlock, sums += kBlock, x += kBlock) {
      const int64_t m = n - i < kBlock ? n - i : kBlock;
      // Mostly, all numbers fit the bins that their sums have.
      int64_t fit = -1;
      for (int64_t j = 0; j < m; ++j)
        fit &= std::bit_cast<int64_t>(std::abs(double{x[j]})) -
               std::bit_cast<int64_t>(limit(sums[j].high));
      if (fit < 0) {
        for (int64_t j = 0; j < m; ++j) sums[j].deposit(double{x[j]});
      } else {
        for (int64_t j = 0; j < m; ++j) sums[j].add(double{x[j]});
      }
    }
  }
  // sums[i].add(more[i]) for i < n.
  static void add_each(Exact* sums, const Exact* more, int64_t n) {
    constexpr int64_t kBlock = 8;
    for (int64_t i = 0; i < n; i += kBlock, sums += kBlock, more += kBlock) {
      const int64_t m = n - i < kBlock ? n - i : kBlock;
      // If both have the same bins, their words add up, those of nothing too.
      uint64_t differ = 0, infinite = 0;
      for (int64_t j = 0; j < m; ++j) {
        const auto a = std::bit_cast<uint64_t>(sums[j].high),
                   b = std::bit_cast<uint64_t>(more[j].high);
        differ |= (a ^ b) | (std::bit_cast<uint64_t>(sums[j].low) ^
                             std::bit_cast<uint64_t>(more[j].low));
        infinite |= (a & kExponent) == kExponent;
      }
      if (!(differ & kExponent) && !infinite) {
        for (int64_t j = 0; j < m; ++j) {
          sums[j].high += more[j].high - empty(more[j].high);
          sums[j].low += more[j].low - empty(more[j].low);
        }
      } else {
        for (int64_t j = 0; j < m; ++j) sums[j].add(more[j]);
      }
    }
  }

 private:
  static constexpr int kHighest = 36;
  static constexpr uint64_t kExponent = uint64_t{0x7ff} << 52;
  static constexpr int kBias = 1023;

  static int exponent(double x) {
    return static_cast<int>((std::bit_cast<uint64_t>(x) & kExponent) >> 52) -
           kBias;
  }
  // 2^52 times the spacing of the word's grid.
  static double power(double word) {
    return std::bit_cast<double>(std::bit_cast<uint64_t>(word) & kExponent);
  }
  static double empty(double word) { return 1.5 * power(word); }
  // A number of at least this magnitude needs a higher bin than the word's.
  static double limit(double word) { return power(word) * 0x1p-27; }
  // Adds a number that fits the bins.
  void deposit(double x) {
    // The last bit keeps x off the middle between two multiples of a grid: how
    // that is rounded would depend on the sum so far.
    x = std::bit_cast<double>(std::bit_cast<uint64_t>(x) | 1);
    deposit(low, x - deposit(high, x));
  }
  // Adds the multiple of the word's grid that is nearest to x, and returns it.
  static double deposit(double& word, double x) {
    const double before = word;
    word += x;
    return word - before;
  }
  static double empty_word(int bin) {
    return std::bit_cast<double>(
        (static_cast<uint64_t>(kBias + 52 + kWidth * bin) << 52) |
        (uint64_t{1} << 51));
  }
  static bool holds_word(double word) {
    return (exponent(word) - 52 - kWidth * (kLowest - 1)) % kWidth == 0;
  }
  int bin() const { return (exponent(high) - 52) / kWidth; }

  void raise_to(int to) {
    if (high != 0 && bin() >= to) return;
    low = high != 0 && bin() == to - 1 ? high : empty_word(to - 1);
    high = empty_word(to);
  }
  // Raises the sum to the bin that x needs. Returns false if x has no bin and
  // is added already.
  bool raise(double x) {
    if (x == 0) return false;
    if (!(std::abs(x) < 0x1p960)) {
      high += std::isnan(x)
                  ? x
                  : std::copysign(std::numeric_limits<double>::infinity(), x);
      return false;
    }
    // The least bin with exponent(x) < kWidth * bin + 25.
    const int above = exponent(x) - 24 - kWidth * kLowest;
    raise_to(above <= 0 ? kLowest : kLowest + (above + kWidth - 1) / kWidth);
    return true;
  }
};

}  // namespace dtensor
