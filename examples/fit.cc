#include "examples/fit.h"

#include <cmath>
#include <limits>

namespace dtensor::examples {
namespace {

double error(const FittedLine& line, std::span<const TimedBytes> points) {
  double sum = 0;
  for (const TimedBytes& p : points)
    sum +=
        std::abs(std::log((line.alpha_us + line.us_per_byte * p.bytes) / p.us));
  return sum;
}

}  // namespace

FittedLine fit(std::span<const TimedBytes> points) {
  FittedLine best;
  double least = std::numeric_limits<double>::infinity();
  const auto consider = [&](const FittedLine& line) {
    if (!(line.alpha_us >= 0 && line.us_per_byte >= 0)) return;
    const double e = error(line, points);
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

}  // namespace dtensor::examples
