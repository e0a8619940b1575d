// Prices of collectives, from how long they took.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "dtensor/placement/cost.h"
#include "dtensor/placement/step_kind.h"
#include "examples/measure.h"

namespace dtensor::examples {

// One kind of collective over the same axes.
struct Series {
  StepKind kind;
  AxisMask axes;
  LinkCost cost;  // fitted: a line in the cache, and one beyond it
  struct Point {
    int64_t bytes;
    double measured_us, fitted_us;
    // Of the fit, relative to the measurement.
    double error() const { return fitted_us / measured_us - 1; }
  };
  std::vector<Point> points;
  double worst_error() const;  // the largest of |error()|
};

struct Calibration {
  Mesh mesh;
  std::vector<Series> series;
  // Of the axes of more than one rank, and of all of them together. A kind that
  // was not measured costs what an exchange does. All-reduces are one-shot as
  // long as that was the faster way.
  CostTable cost;
};

// Fits the times of the probes, which are in microseconds. What it says is what
// a cost file of it says: numbers are rounded first.
Calibration calibrate(const std::vector<Probe>&, const std::vector<double>& us);

std::string to_text(const Calibration&);
nlohmann::ordered_json to_json(const Calibration&);
// Time against bytes, on logarithmic scales: dots are measured, lines fitted.
std::string calibration_svg(const Calibration&);

}  // namespace dtensor::examples
