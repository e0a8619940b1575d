// SPDX-License-Identifier: Apache-2.0
// Checks of values in device memory, such as the targets of a loss. They are
// deferred until the host waits for the device anyway: an operator continues
// even if a value is bad, and the ranks that share it (see DataCheck::judge)
// throw Error at the next item() or at the end of the run. On the CPU,
// operators check at once.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dtensor/placement/mesh.h"
#include "dtensor/placement/spec.h"
#include "dtensor/rank_context.h"
#include "dtensor/tensor.h"

namespace dtensor {

struct DataCheck {
  std::string op;
  Tensor found;  // this rank's findings: contiguous i64 on the device
  Mesh mesh;
  AxisMask axes = 0;
  // Gets the maximum of each element of `found` over the ranks that differ only
  // in `axes`. Throws Error if a maximum is bad, so all these ranks throw.
  std::function<void(std::span<const int64_t>)> judge;
};

// On the CPU, makes the check at once. On other devices, keeps it until the
// next item() of a tensor on its mesh, or until the end of the run. In a
// captured step (graph.h), every replay makes the check again. Collective: all
// ranks of the mesh make the same checks in the same order. REQUIRES: this is
// not a dry run.
void check(RankContext&, DataCheck);

// Makes the checks that were kept for `mesh`. Returns the values of the tensor,
// converted to double; an empty list if the tensor is undefined. Waits for the
// device only once. Collective over the mesh if there are checks.
std::vector<double> read_checked(RankContext&, const Mesh& mesh, const Tensor&);

// A hash of up to 64 elements, evenly spaced, of a value that should be the
// same on all ranks; 0 if the tensor is not in host memory.
uint64_t sample_hash(const Tensor&);

// Throws Error on every rank of the spec's mesh unless all of them passed the
// same value to from_global(). Collective over the mesh.
void check_same(RankContext&, const Spec*, const Tensor& value);

}  // namespace dtensor
