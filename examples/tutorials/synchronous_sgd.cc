// SPDX-License-Identifier: Apache-2.0
// PyTorch's "Writing Distributed Applications": synchronous SGD by hand. Each
// rank has a copy of the model and its rows of each batch, and the gradients
// are summed over ranks.
//
//   bazel run //examples/tutorials:synchronous_sgd -- --mesh dp=3
#include <cmath>

#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

constexpr int64_t kSamples = 500, kPixels = 64, kClasses = 10, kBatch = 64;

// Each epoch's mean loss.
std::vector<double> train(const Mesh& mesh) {
  const AxisGroup ranks(mesh, "dp");
  const Placements rows = {{"dp", Shard(0)}};
  const auto random = [&](Shape shape, uint64_t seed, const Placements& at) {
    return randn(shape, mesh, at, DType::kF32, {.seed = seed});
  };
  const DistTensor images = random({kSamples, kPixels}, 1, rows);
  const DistTensor labels =
      argmax(matmul(images, random({kPixels, kClasses}, 2, {})), 1);
  const nn::Sequential net({local_mesh(), {}},
                           nn::layer<nn::Linear>(kPixels, 32), relu,
                           nn::layer<nn::Linear>(32, kClasses));
  nn::SGD sgd(net.named_parameters(), {.momentum = 0.5});
  std::vector<double> losses;
  for (uint64_t epoch = 0; epoch < 10; ++epoch) {
    const DistTensor order =
        randperm(kSamples, mesh, {}, DType::kI64, {.seed = 3, .stream = epoch});
    double sum = 0;
    for (const DistTensor& batch : split(order, kBatch)) {
      const auto mine = [&](const DistTensor& data) {
        return to_local(index_select(data, 0, batch).redistribute(rows));
      };
      // Ranks may have different numbers of rows, so each adds its rows' loss.
      const DistTensor loss = cross_entropy(net.forward(mine(images)),
                                            mine(labels), Reduction::kSum);
      std::vector<DistTensor> g = grad(loss, net.parameters());
      const auto rows_in_all = static_cast<double>(batch.size(0));
      for (DistTensor& each : g) each = all_reduce(each, ranks) / rows_in_all;
      sgd.step(g, {.lr = 0.1});
      sum += all_reduce(loss.detach(), ranks).item();
    }
    losses.push_back(sum / kSamples);
  }
  return losses;
}

void example(Runtime& rt) {
  const std::vector<double> losses = train(rt.mesh()),
                            alone = train(Mesh({{"dp", 1}}, {rt.rank()}));
  if (rt.dry_run()) return;
  DT_CHECK(losses.back() < 0.6 * losses.front(), "synchronous_sgd",
           "the loss went from {} to {}", losses.front(), losses.back());
  for (size_t i = 0; i < losses.size(); ++i) {
    DT_CHECK(std::abs(losses[i] - alone[i]) < 1e-4 * alone[i],
             "synchronous_sgd", "the loss is {}, and {} on one rank", losses[i],
             alone[i]);
    if (rt.rank() == 0) fmt::print("epoch {}: {:.4f}\n", i, losses[i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "Synchronous SGD, with the gradients summed by hand.",
              .mesh = "dp=2",
              .axes = {"dp"}});
}
