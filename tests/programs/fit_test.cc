// SPDX-License-Identifier: Apache-2.0
#include "programs/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace dtensor::examples {
namespace {

double error(const FittedLine& line, const std::vector<TimedBytes>& points) {
  double sum = 0;
  for (const TimedBytes& p : points)
    sum +=
        std::abs(std::log((line.alpha_us + line.us_per_byte * p.bytes) / p.us));
  return sum;
}

std::vector<TimedBytes> on_a_line(double alpha, double slope) {
  std::vector<TimedBytes> points;
  for (double bytes = 64; bytes < 1e7; bytes *= 4)
    points.push_back({bytes, alpha + slope * bytes});
  return points;
}

TEST(Fit, FindsALine) {
  for (double alpha : {0.0, 0.3, 5.0, 200.0})
    for (double slope : {1e-5, 1e-4, 3e-3}) {
      const FittedLine line = fit(on_a_line(alpha, slope));
      EXPECT_NEAR(line.alpha_us, alpha, 1e-9 + 1e-9 * alpha);
      EXPECT_NEAR(line.us_per_byte, slope, 1e-9 * slope);
    }
}

TEST(Fit, OnePointOffPullsNothing) {
  for (size_t off = 0; off < on_a_line(5, 1e-4).size(); ++off)
    for (double factor : {0.2, 10.0}) {
      auto points = on_a_line(5, 1e-4);
      points[off].us *= factor;
      const FittedLine line = fit(points);
      EXPECT_NEAR(line.alpha_us, 5, 1e-9) << off;
      EXPECT_NEAR(line.us_per_byte, 1e-4, 1e-12) << off;
    }
}

TEST(Fit, NeitherNumberIsNegative) {
  // The times grow faster than the bytes: a line through them would begin below
  // 0.
  FittedLine line =
      fit(std::vector<TimedBytes>{{100, 1}, {200, 4}, {400, 16}, {800, 64}});
  EXPECT_GE(line.alpha_us, 0);
  EXPECT_GT(line.us_per_byte, 0);
  // The times fall.
  line = fit(std::vector<TimedBytes>{{100, 9}, {200, 8}, {400, 7}});
  EXPECT_EQ(line.us_per_byte, 0);
  EXPECT_EQ(line.alpha_us, 8);
}

TEST(Fit, OnePointIsMet) {
  const FittedLine line = fit(std::vector<TimedBytes>{{64, 3}});
  EXPECT_DOUBLE_EQ(line.alpha_us + 64 * line.us_per_byte, 3);
}

TEST(Fit, BendsWhereTheRateFalls) {
  std::vector<TimedBytes> points = on_a_line(2, 1e-4);
  FittedBend bend = fit_bent(points);
  EXPECT_EQ(bend.extra_us_per_byte, 0);  // there is nothing to bend
  const double at = points[points.size() - 4].bytes;
  for (TimedBytes& p : points) p.us += std::max(0.0, p.bytes - at) * 3e-4;
  bend = fit_bent(points);
  EXPECT_NEAR(bend.line.alpha_us, 2, 1e-6);
  EXPECT_NEAR(bend.line.us_per_byte, 1e-4, 1e-9);
  EXPECT_EQ(bend.cached_bytes, at);
  EXPECT_NEAR(bend.extra_us_per_byte, 3e-4, 1e-9);
  // The bend may be between two points.
  const double between = 2.5 * at;
  points = on_a_line(2, 1e-4);
  for (TimedBytes& p : points) p.us += std::max(0.0, p.bytes - between) * 3e-4;
  bend = fit_bent(points);
  EXPECT_NEAR(bend.cached_bytes, between, 1);
  EXPECT_NEAR(bend.extra_us_per_byte, 3e-4, 1e-9);
  // If the rate rises, the fit is a straight line: a price never grows more
  // slowly.
  points = on_a_line(2, 4e-4);
  for (TimedBytes& p : points) p.us -= std::max(0.0, p.bytes - at) * 3e-4;
  EXPECT_EQ(fit_bent(points).extra_us_per_byte, 0);
  // A single point behind a bend gives no second line.
  EXPECT_EQ(fit_bent(std::vector<TimedBytes>{{64, 1}, {256, 1}, {1024, 9}})
                .extra_us_per_byte,
            0);
}

TEST(Fit, SeesThroughNoise) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(-0.3, 0.3);
  for (int i = 0; i < 200; ++i) {
    const double alpha = 1 + i % 7, slope = 1e-4 * (1 + i % 5);
    auto points = on_a_line(alpha, slope);
    for (TimedBytes& p : points) p.us *= std::exp(noise(random));
    const FittedLine line = fit(points);
    EXPECT_LE(error(line, points), 1.1 * error({alpha, slope}, points));
    EXPECT_NEAR(std::log(line.alpha_us / alpha), 0, 0.4);
    EXPECT_NEAR(std::log(line.us_per_byte / slope), 0, 0.4);
  }
}

}  // namespace
}  // namespace dtensor::examples
