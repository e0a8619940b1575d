// SPDX-License-Identifier: Apache-2.0
// PyTorch's "Large Scale Transformer model training with Tensor Parallel": a
// Llama with tensor and sequence parallelism along one axis and fully sharded
// data parallelism along the other.
//
//   bazel run //examples/tutorials:two_dimensional -- --mesh dp=2,tp=3
#include <cmath>

#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

std::vector<double> train(const Mesh& mesh) {
  const nn::ModelConfig config{.name = "llama",
                               .layers = 2,
                               .hidden = 64,
                               .heads = 8,
                               .kv_heads = 4,
                               .seq = 16,
                               .vocab = 96};
  const nn::ParallelPlan split =
      nn::sequence_parallel(nn::tensor_parallel(config));
  const auto model = nn::make_model(config, mesh, nn::zero(split, 3));
  nn::AdamW adamw(model->named_parameters());
  std::vector<double> losses;
  for (uint64_t step = 0; step < 10; ++step) {
    const DistTensor x = randint(0, 96, {6, 16}, mesh, {{"dp", Shard(0)}},
                                 DType::kI64, {.stream = step});
    const DistTensor loss = model->loss(x, x);
    adamw.step(grad(loss, model->parameters()), {.lr = 3e-3});
    losses.push_back(loss.item());
  }
  return losses;
}

void example(Runtime& rt) {
  const std::vector<double> losses = train(rt.mesh()),
                            alone = train(
                                Mesh({{"dp", 1}, {"tp", 1}}, {rt.rank()}));
  for (size_t i = 0; i < losses.size(); ++i) {
    DT_CHECK(std::abs(losses[i] - alone[i]) <= 1e-4 * alone[i],
             "two_dimensional", "the loss is {}, and {} on one rank", losses[i],
             alone[i]);
    if (rt.rank() == 0) fmt::print("step {}: {:.4f}\n", i, losses[i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "A Llama on two axes.",
              .mesh = "dp=2,tp=2",
              .axes = {"dp", "tp"}});
}
