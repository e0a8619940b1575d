// SPDX-License-Identifier: Apache-2.0
// Runs cases on a mesh: one run of thread ranks that walks all of them.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "dtensor/device/device.h"
#include "dtensor/placement/mesh.h"
#include "tests/conformance/arguments.h"
#include "tests/conformance/cases.h"
#include "tests/conformance/layouts.h"

namespace dtensor::conformance {

// One call of a case, and what became of it.
struct Attempt {
  const Case* of = nullptr;
  const Call* call = nullptr;
  Mesh mesh;
  Combination layouts;

  std::string failure;  // empty: passed
  double worst = 0;     // the largest error
  // No input was gathered along an axis that split it.
  bool native = true;
  bool refused = false;  // with `strict`: it cannot do without communication
  std::string not_here;  // a form that the library does not have
};

struct WalkOptions {
  bool gradients = true;
  bool strict = false;
  Device* device = nullptr;  // of all ranks; null: the CPU
};

// Fills the attempts, which are all of one mesh. An Error in one does not
// spoil the next; should ranks ever disagree about one, that one has failed
// and the others go on in a run of their own. `progress` is told how many are
// done, by one rank.
void walk(const Cases&, std::vector<Attempt>&, const WalkOptions&,
          const std::function<void(size_t)>& progress);

}  // namespace dtensor::conformance
