// SPDX-License-Identifier: Apache-2.0
// Shows a mesh: ranks along named axes, and the groups that ranks communicate
// in.
//
//   bazel run //examples:01_mesh -- --mesh dp=2,tp=3
#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

std::string numbers(const std::vector<int64_t>& list) {
  return fmt::format("{}", fmt::join(list, " "));
}

// Every rank runs this. Only rank 0 prints: a mesh is a value, so any rank can
// compute every rank's coordinates and groups.
void example(Runtime& rt) {
  const Mesh mesh = rt.mesh();
  if (rt.rank() == 0) {
    fmt::print("mesh {}: {} ranks\n", mesh.to_string(), mesh.num_ranks());
    for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
      const Coord at = mesh.coordinate(rank);
      fmt::print("rank {}:", rank);
      for (int axis = 0; axis < mesh.num_axes(); ++axis)
        fmt::print("  {} {}", mesh.axis_name(axis), at[axis]);
      for (int axis = 0; axis < mesh.num_axes(); ++axis)
        fmt::print("  {}-group {}", mesh.axis_name(axis),
                   numbers(mesh.group(AxisMask{1} << axis, at)));
      fmt::print("\n");
      DT_CHECK(mesh.rank(at) == rank, "01_mesh",
               "the coordinate of rank {} is that of rank {}", rank,
               mesh.rank(at));
    }
  }
  // A collective over one axis: every rank of a group adds 1, so the sum is the
  // number of ranks in the group.
  const std::string axis = mesh.axis_name(mesh.num_axes() - 1);
  const int64_t size = mesh.axis_size(mesh.num_axes() - 1);
  const DistTensor one = DistTensor::from_local(
      Tensor::full({1}, DType::kF32, 1), mesh, {{axis, PartialOf()}}, {1});
  const DistTensor sum = one.redistribute(Placements{});
  if (rt.dry_run()) return;
  DT_CHECK(sum.local().at(0) == static_cast<double>(size), "01_mesh",
           "the sum over {} is {}; expected {}", axis, sum.local().at(0), size);
  if (rt.rank() == 0)
    fmt::print("ones summed over {}: {}\n", axis, sum.local().at(0));
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "Ranks, coordinates and groups of a mesh.",
              .mesh = "dp=2,tp=3"});
}
