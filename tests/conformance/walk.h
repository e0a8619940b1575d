// SPDX-License-Identifier: Apache-2.0
// Runs cases on a mesh, in one run of thread ranks.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dtensor/device/device.h"
#include "dtensor/placement/mesh.h"
#include "tests/conformance/arguments.h"
#include "tests/conformance/cases.h"
#include "tests/conformance/layouts.h"

namespace dtensor::conformance {

// One call of a case, and its result.
struct Attempt {
  const Case* of = nullptr;
  const Call* call = nullptr;
  Mesh mesh;
  Combination layouts;

  std::string failure;  // "" if it passed
  double worst = 0;     // the largest error
  // Whether there was no all-gather along an axis that splits an input.
  bool native = true;
  // Whether it cannot avoid communication, if `strict`, or a sum that depends
  // on the mesh, in a reproducible run.
  bool refused = false;
  std::string not_here;  // the reason of a NotHere, which skips the case
};

struct WalkOptions {
  bool gradients = true;
  bool strict = false;
  Device* device = nullptr;  // the device of all ranks; null: the CPU
  // If not null, runs are reproducible, and take f64 inputs as f32. One rank's
  // results are stored here, by case and result; other meshes must have the
  // same bits, or refuse.
  std::map<std::string, std::vector<double>>* of_one_rank = nullptr;
};

// Runs the attempts, which all have the same mesh, and fills in their results.
// An Error in one attempt does not disturb the next. If ranks disagree in an
// attempt, it has failed, and the remaining attempts go on in another run. One
// rank calls progress() with the number of attempts that are done.
void walk(const Cases&, std::vector<Attempt>&, const WalkOptions&,
          const std::function<void(size_t)>& progress);

}  // namespace dtensor::conformance
