// SPDX-License-Identifier: Apache-2.0
// PyTorch's "Introduction to Context Parallel": causal attention on a sequence
// that is split over ranks, by both ways to compute it.
//
//   bazel run //examples/tutorials:context_parallel -- --mesh cp=3
#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

// [batch, heads, sequence, d]
std::vector<DistTensor> attend(const Mesh& mesh, const Placements& layout,
                               ContextParallel how) {
  std::vector<DistTensor> qkv;
  for (uint64_t i = 0; i < 3; ++i)
    qkv.push_back(rand({8, 8, 64, 32}, mesh, layout, DType::kF32, {.stream = i})
                      .set_requires_grad());
  const DistTensor y = scaled_dot_product_attention(
      qkv[0], qkv[1], qkv[2], {}, {.causal = true, .context = how});
  std::vector<DistTensor> results = grad(sum(square(y)), qkv);
  results.push_back(y);
  return results;
}

void example(Runtime& rt) {
  const auto alone = attend(local_mesh(), {}, ContextParallel::kAuto);
  for (const auto how : {ContextParallel::kRing, ContextParallel::kAllToAll}) {
    const auto split = attend(rt.mesh(), {{"cp", Shard(2)}}, how);
    for (size_t i = 0; i < split.size(); ++i) {
      const DistTensor whole = to_local(split[i].redistribute(Placements{}));
      DT_CHECK(
          rt.dry_run() || allclose(whole, alone[i], 1e-4, 1e-5).item<bool>(),
          "context_parallel", "{}: result {} differs from one rank's",
          name(how), i);
    }
    if (rt.rank() == 0)
      fmt::print("{}: {}, as on one rank\n", name(how),
                 split.back().spec()->to_string());
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "Attention on a split sequence.",
              .mesh = "cp=4",
              .axes = {"cp"}});
}
