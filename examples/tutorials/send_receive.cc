// SPDX-License-Identifier: Apache-2.0
// PyTorch's "Writing Distributed Applications": a message from rank to rank, an
// all-reduce, and an all-reduce of one's own around a ring.
//
//   bazel run //examples/tutorials:send_receive -- --mesh ranks=4
#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

DistTensor number(double x) { return full({1}, x, local_mesh()); }

// The sum of the members' x. Each member passes on what it received.
DistTensor ring_all_reduce(const DistTensor& x, const AxisGroup& group) {
  std::vector<std::pair<int64_t, int64_t>> ring;
  for (int64_t i = 0; i < group.size(); ++i)
    ring.emplace_back(i, (i + 1) % group.size());
  DistTensor passed = x, sum = x;
  for (int64_t i = 1; i < group.size(); ++i) {
    passed = ppermute(passed, group, ring);
    sum = sum + passed;
  }
  return sum;
}

void example(Runtime& rt) {
  const AxisGroup world(rt.mesh(), "ranks");
  const auto rank = static_cast<double>(rt.rank());
  const auto size = static_cast<double>(world.size());
  DistTensor x = number(rank == 0 ? 1 : 0);
  if (size > 1) x = ppermute(x, world, {{0, 1}});
  const DistTensor ones = all_reduce(number(1), world);
  const DistTensor ring = ring_all_reduce(number(rank), world);
  if (rt.dry_run()) return;
  DT_CHECK(x.item() == (rank == (size > 1 ? 1 : 0)), "send_receive",
           "rank {} received {}", rank, x.item());
  DT_CHECK(ones.item() == size && ring.item() == size * (size - 1) / 2,
           "send_receive", "the sums over {} ranks are {} and {}", size,
           ones.item(), ring.item());
  fmt::print("rank {} received {}; sums {} and {}\n", rank, x.item(),
             ones.item(), ring.item());
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "Messages between ranks, and a ring all-reduce.",
              .mesh = "ranks=4",
              .axes = {"ranks"}});
}
