// SPDX-License-Identifier: Apache-2.0
// Trains on a two-dimensional mesh: the batch is split over dp, the matrices
// over tp. The loop is the one that a single device would run.
//
//   bazel run //examples:04_dp_tp_train -- --mesh dp=2,tp=2
#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

constexpr int64_t kBatch = 30, kIn = 8, kWide = 24;

void example(Runtime& rt) {
  const Mesh mesh = rt.mesh();
  const auto init = [&](Shape shape, uint64_t stream, const Placements& at,
                        double std) {
    return randn(shape, mesh, at, DType::kF32, {.seed = 7, .stream = stream}, 0,
                 std);
  };
  DistTensor w1 = init({kIn, kWide}, 1, {{"tp", Shard(1)}}, 0.35);
  DistTensor b1 = zeros({kWide}, mesh, {{"tp", Shard(0)}});
  DistTensor w2 = init({kWide, 1}, 2, {{"tp", Shard(0)}}, 0.2);
  w1.as_parameter(), b1.as_parameter(), w2.as_parameter();
  const std::vector<DistTensor> parameters = {w1, b1, w2};
  nn::AdamW optimizer(parameters, {.weight_decay = 0});

  // The task: predict whether the first two numbers have the same sign.
  const auto batch = [&](uint64_t step) {
    return init({kBatch, kIn}, 100 + step, {{"dp", Shard(0)}}, 1);
  };
  const auto target = [](const DistTensor& x) {
    const DistTensor p = mul(slice(x, 1, 0, 1), slice(x, 1, 1, 2));
    return unary("sign", p);
  };

  double first = 0, last = 0;
  constexpr int64_t kSteps = 200;
  for (int64_t step = 0; step < kSteps; ++step) {
    const DistTensor x = batch(static_cast<uint64_t>(step));
    const DistTensor h = relu(add(matmul(x, w1), b1));
    const DistTensor loss = mean(square(sub(matmul(h, w2), target(x))));
    optimizer.step(grad(loss, parameters), {.lr = 2e-2});
    if (step % 20 && step != kSteps - 1) continue;
    last = loss.item();
    if (step == 0) first = last;
    if (rt.rank() == 0 && !rt.dry_run())
      fmt::print("step {:3}  loss {:.4f}\n", step, last);
  }
  if (rt.dry_run()) return;
  DT_CHECK(last < 0.6 * first, "04_dp_tp_train",
           "the loss went from {} to {}; expected less than 0.6 of the former",
           first, last);
  if (rt.rank() == 0) fmt::print("learned\n");
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "Data- and tensor-parallel training, by layouts alone.",
              .mesh = "dp=2,tp=2",
              .axes = {"dp", "tp"}});
}
