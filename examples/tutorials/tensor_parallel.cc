// SPDX-License-Identifier: Apache-2.0
// The tensor-parallel and the sequence-parallel MLP of PyTorch's examples: the
// first matrix is split by columns and the second by rows. With sequence
// parallelism, the rows of the input and the output are split, too.
//
//   bazel run //examples/tutorials:tensor_parallel -- --mesh tp=3
#include <cmath>

#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

// Returns the last output's sum. `kinds` are the messages of a forward pass.
double train(const Mesh& mesh, const Placements& rows,
             const std::vector<StepKind>& kinds) {
  const nn::ParallelPlan plan = {{"0.*", {{"tp", Shard(0)}}},
                                 {"2.weight", {{"tp", Shard(1)}}}};
  const nn::Sequential net(
      {.mesh = mesh, .plan = std::make_shared<const nn::ParallelPlan>(plan)},
      nn::layer<nn::Linear>(10, 32), relu, nn::layer<nn::Linear>(32, 5));
  nn::AdamW adamw(net.named_parameters());
  double last = 0;
  for (uint64_t step = 0; step < 10; ++step) {
    const DistTensor x =
        rand({20, 10}, mesh, rows, DType::kF32, {.stream = step});
    const CommRecord record;
    const DistTensor y = net.forward(x).redistribute(rows);
    std::vector<StepKind> sent;
    for (const CommEvent& e : record.events()) sent.push_back(e.kind);
    DT_CHECK(mesh.num_ranks() == 1 || sent == kinds, "tensor_parallel",
             "the forward pass sends\n{}", comm_table(record.events(), true));
    adamw.step(grad(sum(y), net.parameters()), {.lr = 0.25});
    last = sum(y).item();
  }
  return last;
}

void example(Runtime& rt) {
  const double alone = train(Mesh({{"tp", 1}}, {rt.rank()}), {}, {});
  const double tensor = train(rt.mesh(), {}, {StepKind::kAllReduce});
  const double sequence =
      train(rt.mesh(), {{"tp", Shard(0)}},
            {StepKind::kAllGather, StepKind::kReduceScatter});
  for (const double found : {tensor, sequence})
    DT_CHECK(std::abs(found - alone) <= 1e-4 * std::abs(alone),
             "tensor_parallel", "the sum is {}, and {} on one rank", found,
             alone);
  if (rt.rank() == 0)
    fmt::print("sums {:.2f} and {:.2f}, as on one rank\n", tensor, sequence);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "Tensor and sequence parallelism of an MLP.",
              .mesh = "tp=2",
              .axes = {"tp"}});
}
