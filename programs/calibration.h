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
  LinkCost cost;  // fitted: a rate within the cache, and maybe one beyond it
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
  // together. A kind of collective that was not measured gets the price of an
  // exchange or, if that was not measured, of an all-to-all (or else the
  // default). One-shot all-reduces were faster than others at every measured
  // size of a part up to one_shot_bytes.
  CostTable cost;
};

// Fits prices to the times of the probes, in microseconds. Latencies are
// rounded to nanoseconds and rates to four digits, so that a cost file written
// from the prices gives the same prices when it is read back.
Calibration calibrate(const std::vector<Probe>&, const std::vector<double>& us);

std::string to_text(const Calibration&);
nlohmann::ordered_json to_json(const Calibration&);
// An SVG file's content: time against bytes, on logarithmic scales. The dots
// are measured times, the lines are fitted.
std::string calibration_svg(const Calibration&);

}  // namespace dtensor::examples
