// SPDX-License-Identifier: Apache-2.0
// PyTorch's "Getting Started with DeviceMesh": the groups of a mesh of two
// axes, and a model that is sharded along one and replicated along the other.
//
//   bazel run //examples/tutorials:hybrid_sharding -- --mesh
//   replicate=2,shard=3
#include <cmath>

#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

double train(const Mesh& mesh, int stage) {
  const nn::ParallelPlan plan = nn::zero({}, stage, "shard");
  const nn::Sequential net(
      {.mesh = mesh, .plan = std::make_shared<const nn::ParallelPlan>(plan)},
      nn::layer<nn::Linear>(10, 10), relu, nn::layer<nn::Linear>(10, 5));
  nn::AdamW adamw(net.named_parameters());
  DistTensor loss;
  for (uint64_t step = 0; step < 5; ++step) {
    const DistTensor x =
        randn({20, 10}, mesh, {{"replicate", Shard(0)}, {"shard", Shard(0)}},
              DType::kF32, {.stream = step});
    loss = mean(square(net.forward(x)));
    adamw.step(grad(loss, net.parameters()), {.lr = 1e-2});
  }
  return loss.item();
}

void example(Runtime& rt) {
  const Mesh mesh = rt.mesh();
  const int64_t rank = rt.rank(), shards = mesh.axis_size(mesh.axis("shard"));
  const Mesh shard = mesh.submesh({"shard"}, mesh.coordinate(rank));
  const Mesh replicate = mesh.submesh({"replicate"}, mesh.coordinate(rank));
  for (int64_t r = 0; r < mesh.num_ranks(); ++r)
    DT_CHECK(shard.contains(r) == (r / shards == rank / shards) &&
                 replicate.contains(r) == (r % shards == rank % shards),
             "hybrid_sharding", "rank {} is in the wrong group", r);
  const double loss = train(mesh, 3),
               alone = train(Mesh({{"replicate", 1}, {"shard", 1}}, {rank}), 0);
  DT_CHECK(std::abs(loss - alone) <= 1e-5 * alone, "hybrid_sharding",
           "the loss is {}, and {} on one rank", loss, alone);
  fmt::print("rank {}: {}, {}; loss {:.6f}\n", rank, shard.to_string(),
             replicate.to_string(), loss);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "Groups of a mesh, and hybrid sharding.",
              .mesh = "replicate=2,shard=2",
              .axes = {"replicate", "shard"}});
}
