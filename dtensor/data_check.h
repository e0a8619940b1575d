// Checks of values that a device holds, made when the host waits for the device
// anyway: an operator that finds a bad target, say, goes on, and says so at the
// next item(), on every rank. On the CPU, where nothing is waited for, an
// operator checks at once instead.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dtensor/placement/mesh.h"
#include "dtensor/rank_context.h"
#include "dtensor/tensor.h"

namespace dtensor {

struct DataCheck {
  std::string op;
  // What this rank found: i64, without a stride. The largest of each over the
  // ranks that differ in `axes` is what all of them judge.
  Tensor found;
  Mesh mesh;
  AxisMask axes = 0;
  // Throws Error when it is bad: alike on every rank.
  std::function<void(std::span<const int64_t>)> judge;
};

// On a device whose work runs later, keeps it for the next item() of a tensor
// on its mesh, or the end of the run; else judges at once. Collective: all
// ranks of the mesh make the same checks in the same order. Not in a dry run.
void check(RankContext&, DataCheck);

// The values of a tensor of floats, on every rank of `mesh`, behind the checks
// that were kept for it, in one wait. Collective when there are any.
std::vector<double> read_checked(RankContext&, const Mesh& mesh, const Tensor&);

}  // namespace dtensor
