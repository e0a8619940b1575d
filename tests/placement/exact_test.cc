// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/exact.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace dtensor {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

bool same_bits(const Exact& a, const Exact& b) {
  return std::memcmp(&a, &b, sizeof(Exact)) == 0;
}

// Floats of like sizes; of sizes that differ; of all sizes; denormals; and
// those at the limits of bins and in the middle between multiples of grids.
float sample(std::mt19937_64& random, int kind) {
  const double m = std::ldexp(static_cast<double>(random() >> 11), -53) - 0.5;
  const auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
  switch (kind) {
    case 0:
      return static_cast<float>(m);
    case 1:
      return static_cast<float>(std::ldexp(m, below(60) - 30));
    case 2:
      return static_cast<float>(std::ldexp(m, below(270) - 145));
    case 3:
      return static_cast<float>(std::ldexp(m, below(20) - 149));
    default:
      return static_cast<float>(std::ldexp(below(2) ? 1.0 : -1.5,
                                           26 * (below(9) - 4) + below(4) - 2));
  }
}

TEST(Exact, HasTheSameBitsInAnyOrderAndInAnyParts) {
  std::mt19937_64 random(1);
  for (int run = 0; run < 1000; ++run) {
    std::vector<float> x(1 + random() % 200);
    for (float& v : x) v = sample(random, run % 5);
    Exact whole;
    for (float v : x) whole.add(v);
    for (int again = 0; again < 5; ++again) {
      std::shuffle(x.begin(), x.end(), random);
      std::vector<Exact> parts(1 + random() % 6);
      for (float v : x) parts[random() % parts.size()].add(v);
      Exact sum;
      for (const Exact& p : parts) sum.add(p);
      ASSERT_TRUE(same_bits(sum, whole)) << "run " << run;
    }
  }
}

TEST(Exact, LosesAtMostTheStatedPartOfEachNumber) {
  std::mt19937_64 random(2);
  for (int run = 0; run < 1000; ++run) {
    std::vector<float> x(1 + random() % 200);
    for (float& v : x) v = sample(random, run % 5);
    Exact sum;
    long double wanted = 0;  // 64 bits
    float largest = 0;
    for (float v : x) {
      sum.add(v);
      wanted += v;
      largest = std::max(largest, std::abs(v));
    }
    const auto n = static_cast<double>(x.size());
    EXPECT_LE(std::abs(static_cast<double>(sum.value() - wanted)),
              n * largest * (0x1p-26 + 0x1p-50));
    EXPECT_EQ(Exact(x[0]).value(), x[0]);
  }
}

TEST(Exact, SumsOfManyAreThoseOfEach) {
  std::mt19937_64 random(5);
  for (int run = 0; run < 200; ++run) {
    std::vector<Exact> sums(random() % 40), more(sums.size());
    for (auto* list : {&sums, &more})
      for (Exact& s : *list)
        for (uint64_t i = random() % 4; i > 0; --i)
          s.add(sample(random, run % 3 ? 0 : static_cast<int>(random() % 5)));
    if (run % 5 == 0 && !sums.empty()) sums[0].add(kInf), more[0].add(kInf);
    std::vector<Exact> want = sums;
    for (size_t i = 0; i < want.size(); ++i) want[i].add(more[i]);
    Exact::add_each(sums.data(), more.data(), std::ssize(sums));
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(same_bits(sums[i], want[i]));
    std::vector<float> numbers(sums.size());
    for (float& x : numbers) x = sample(random, run % 6 ? 0 : run / 6 % 5);
    if (run % 7 == 0 && !sums.empty()) numbers[0] = static_cast<float>(-kInf);
    for (size_t i = 0; i < want.size(); ++i) want[i].add(numbers[i]);
    Exact::add_each(sums.data(), numbers.data(), std::ssize(sums));
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(same_bits(sums[i], want[i]));
  }
}

TEST(Exact, ValuesOfManyAreThoseOfEach) {
  std::mt19937_64 random(4);
  for (int run = 0; run < 200; ++run) {
    std::vector<Exact> sums(random() % 70);
    for (Exact& s : sums)
      for (uint64_t i = random() % 4; i > 0; --i)
        s.add(sample(random, run % 3 ? 0 : static_cast<int>(random() % 5)));
    if (run % 5 == 0 && !sums.empty()) sums[0].add(kInf);
    std::vector<float> got(sums.size());
    Exact::values(sums.data(), std::ssize(sums), got.data());
    for (size_t i = 0; i < sums.size(); ++i)
      EXPECT_EQ(got[i], static_cast<float>(sums[i].value()));
  }
}

TEST(Exact, AddsWhatCancels) {
  Exact sum(1e30);
  sum.add(3.0);
  sum.add(-1e30);
  EXPECT_EQ(sum.value(), 0);  // 3 is less than 2^-26 of 1e30
  Exact near(1e6);
  near.add(0.25);
  near.add(-1e6);
  EXPECT_EQ(near.value(), 0.25);
}

TEST(Exact, IsZeroWithoutNumbers) {
  const Exact nothing;
  Exact zeros(0.0);
  zeros.add(-0.0);
  EXPECT_TRUE(same_bits(nothing, zeros));
  EXPECT_EQ(nothing.value(), 0);
  Exact two(2.0);
  two.add(nothing);
  EXPECT_EQ(two.value(), 2);
}

TEST(Exact, KeepsWhatIsNotFinite) {
  for (bool at_once : {false, true}) {
    Exact sum(1.0), more(at_once ? kInf : 1.0);
    more.add(at_once ? 1.0 : kInf);
    sum.add(more);
    sum.add(5.0);
    EXPECT_EQ(sum.value(), kInf);
    sum.add(Exact(-kInf));
    EXPECT_TRUE(std::isnan(sum.value()));
  }
  EXPECT_EQ(Exact(-1e300).value(), -kInf);
  EXPECT_TRUE(std::isnan(Exact(std::nan("")).value()));
}

TEST(Exact, IsNanOnceTooManyNumbersWereAdded) {
  // Doubles a sum of the largest number of a bin until it overflows the bin.
  Exact sum(0x1.fffffp24);
  int doublings = 0;
  while (std::isfinite(sum.value()) && doublings < 60) {
    EXPECT_EQ(sum.value(), std::ldexp(0x1.fffffp24, doublings));
    sum.add(Exact(sum));
    ++doublings;
  }
  EXPECT_GE(doublings, 25);
  EXPECT_LE(doublings, 28);
}

}  // namespace
}  // namespace dtensor
