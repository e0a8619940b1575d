// SPDX-License-Identifier: Apache-2.0
// Fits the prices of collectives to measured times.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "dtensor/placement/cost.h"
#include "dtensor/placement/step_kind.h"
#include "programs/measure.h"

namespace dtensor::examples {

// The measurements of one kind of collective over one set of axes.
struct Series {
  StepKind kind;
  AxisMask axes;
  LinkCost cost;  // fitted: one rate within the cache, and one beyond it
  struct Point {
    int64_t bytes;
    double measured_us, fitted_us;
    // The error of the fit, relative to the measurement.
    double error() const { return fitted_us / measured_us - 1; }
  };
  std::vector<Point> points;
  double worst_error() const;  // the largest of |error()|
};

struct Calibration {
  Mesh mesh;
  std::vector<Series> series;
  // Prices for each axis of more than one rank, and for all of these axes
  // together. A kind that was not measured gets the price of an exchange.
  // one_shot_bytes is the largest size up to which one-shot all-reduces were
  // always faster.
  CostTable cost;
};

// Fits the times of the probes, in microseconds. The result is rounded to the
// digits of a cost file, so that it equals the file when read back.
Calibration calibrate(const std::vector<Probe>&, const std::vector<double>& us);

std::string to_text(const Calibration&);
nlohmann::ordered_json to_json(const Calibration&);
// An SVG file's content: time against bytes, on logarithmic scales. Dots are
// measured, lines are fitted.
std::string calibration_svg(const Calibration&);

}  // namespace dtensor::examples
