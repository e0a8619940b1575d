// SPDX-License-Identifier: Apache-2.0
// Fully sharded data parallelism (ZeRO's stage 3) as two layouts of a matrix:
// each matrix is stored split by rows, and operators see it whole. The example
// compares the bytes that a rank receives and holds with formulas.
//
//   bazel run //examples:05_fsdp -- --mesh dp=4
#include "dtensor/allocator.h"
#include "dtensor/dtensor.h"
#include "dtensor/rank_context.h"

using namespace dtensor;

namespace {

constexpr int64_t kBatch = 64, kWidth = 240, kLayers = 6;

void row(std::string_view what, double found, double formula) {
  fmt::print("{:<32} {:>12.0f} {:>12.0f}\n", what, found, formula);
}

void example(Runtime& rt) {
  const Mesh mesh = rt.mesh();
  const auto p = static_cast<double>(mesh.axis_size(mesh.axis("dp")));
  std::vector<DistTensor> weights;
  for (uint64_t i = 0; i < kLayers; ++i) {
    DistTensor w = randn({kWidth, kWidth}, mesh, {{"dp", Shard(0)}},
                         DType::kF32, {7, i}, 0, 1 / std::sqrt(kWidth));
    weights.push_back(w.gather_on_use({}));
  }
  nn::AdamW optimizer(weights);
  const DistTensor x = randn({kBatch, kWidth}, mesh, {{"dp", Shard(0)}});

  Allocator& allocator = *rt.context().allocator;
  int64_t gathered = 0, scattered = 0;
  for (int step = 0; step < 2; ++step) {
    const CommRecord record;
    allocator.reset_peak();
    DistTensor y = x;
    for (const DistTensor& w : weights) y = gelu(matmul(y, w));
    const DistTensor loss = mean(square(sub(y, x)));
    // Buckets of one byte send each gradient as soon as it is complete, during
    // the backward pass.
    const auto grads =
        grad(loss, weights, {.release_graph = true, .bucket_bytes = 1});
    optimizer.step(grads, {.lr = 1e-3});
    gathered = scattered = 0;
    for (const CommEvent& e : record.events()) {
      gathered += e.kind == StepKind::kAllGather ? e.predicted : 0;
      scattered += e.kind == StepKind::kReduceScatter ? e.predicted : 0;
    }
  }
  if (rt.rank() != 0) return;
  const double one = kWidth * kWidth * sizeof(float), all = kLayers * one;
  const Allocator::Stats memory = allocator.stats();
  const auto most = [&](MemoryKind k) {
    return static_cast<double>(memory.of(k).peak_bytes);
  };
  fmt::print("{:<32} {:>12} {:>12}\n", "bytes per rank", "found", "formula");
  // Each pass gathers every matrix, except for two gathers: the last matrix is
  // still held when the backward pass begins, and the backward pass does not
  // need the first one, since no gradient of x is asked for.
  row("gathered, forward and back", static_cast<double>(gathered),
      (2 * all - 2 * one) * (p - 1) / p);
  row("gradients scattered", static_cast<double>(scattered), all * (p - 1) / p);
  row("parameters held", most(MemoryKind::kParameters), all / p);
  row("optimizer's state held", most(MemoryKind::kState), 2 * all / p);
  row("gathered at once", most(MemoryKind::kGathered), one);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "Fully sharded data parallelism, and its costs.",
              .mesh = "dp=4",
              .axes = {"dp"}});
}
