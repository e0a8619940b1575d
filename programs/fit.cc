// SPDX-License-Identifier: Apache-2.0
#include "programs/fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dtensor::examples {
namespace {

double error(const FittedBend& bend, std::span<const TimedBytes> points) {
  double sum = 0;
  for (const TimedBytes& p : points) {
    const double us =
        bend.line.alpha_us + bend.line.us_per_byte * p.bytes +
        bend.extra_us_per_byte * std::max(0.0, p.bytes - bend.cached_bytes);
    sum += std::abs(std::log(us / p.us));
  }
  return sum;
}

}  // namespace

FittedLine fit(std::span<const TimedBytes> points) {
  FittedLine best;
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](const FittedLine& line) {
    if (!(line.alpha_us >= 0 && line.us_per_byte >= 0)) return;
    const double e = error({line}, points);
    if (e < least) {
      least = e;
      best = line;
    }
  };
  for (const TimedBytes& p : points) {
    consider({p.us, 0});
    if (p.bytes > 0) consider({0, p.us / p.bytes});
    for (const TimedBytes& q : points) {
      if (!(p.bytes < q.bytes)) continue;
      const double slope = (q.us - p.us) / (q.bytes - p.bytes);
      consider({p.us - slope * p.bytes, slope});
    }
  }
  return best;
}

FittedBend fit_bent(std::span<const TimedBytes> points) {
  constexpr size_t kLeast = 2;  // the fewest points on either side of the bend
  const FittedBend straight{fit(points)};
  FittedBend best = straight;
  double least = error(straight, points);
  for (size_t n = kLeast; n + kLeast <= points.size(); ++n) {
    const FittedLine line = fit(points.first(n));
    const double at = points[n - 1].bytes;
    const auto beyond = points.subspan(n);
    const auto consider = [&](double from, double extra) {
      if (!(extra > 0)) return;
      const FittedBend bend{line, from, extra};
      const double e = error(bend, points);
      if (e < least && 2 * error(bend, beyond) < error(straight, beyond)) {
        least = e;
        best = bend;
      }
    };
    // How far a point's time is above the line.
    const auto above = [&](const TimedBytes& p) {
      return p.us - line.alpha_us - line.us_per_byte * p.bytes;
    };
    for (const TimedBytes& p : beyond) {
      consider(at, above(p) / (p.bytes - at));
      for (const TimedBytes& q : beyond) {
        if (!(p.bytes < q.bytes)) continue;
        const double extra = (above(q) - above(p)) / (q.bytes - p.bytes);
        const double from = p.bytes - above(p) / extra;
        if (from >= at && from <= beyond[0].bytes) consider(from, extra);
      }
    }
  }
  return best;
}

}  // namespace dtensor::examples
