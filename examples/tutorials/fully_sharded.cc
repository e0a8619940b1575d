// SPDX-License-Identifier: Apache-2.0
// PyTorch's "Getting Started with Fully Sharded Data Parallel (FSDP2)": a
// transformer whose parameters are split, with clipped gradients, saved and
// continued.
//
//   bazel run //examples/tutorials:fully_sharded -- --mesh dp=3
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "dtensor/dtensor.h"

using namespace dtensor;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kVocab = 128, kBatch = 8, kLength = 16;

struct Training {
  Training(const Mesh& mesh, int stage, uint64_t seed = 0)
      : model(nn::make_model({.layers = 3,
                              .hidden = 32,
                              .heads = 4,
                              .seq = kLength,
                              .vocab = kVocab},
                             mesh, nn::zero({}, stage), seed)),
        adam(model->named_parameters()) {}
  double step(uint64_t number) {
    const DistTensor x =
        randint(0, kVocab, {kBatch, kLength}, model->mesh(), {{"dp", Shard(0)}},
                DType::kI64, {.stream = number});
    const DistTensor loss = model->loss(x, x);
    const std::vector<DistTensor> g = grad(loss, model->parameters());
    adam.step(g, {.lr = 1e-2, .clip = nn::grad_norm(g, 1).clip});
    return loss.item();
  }
  std::unique_ptr<nn::LanguageModel> model;
  nn::Adam adam;
};

void example(Runtime& rt) {
  const fs::path dir =
      fs::temp_directory_path() /
      fmt::format("fully_sharded.{}", all_gather("process", getpid())[0]);
  Training first(rt.mesh(), 3), alone(Mesh({{"dp", 1}}, {rt.rank()}), 0),
      second(rt.mesh(), 3, 1);
  int64_t held = 0, all = 0;
  for (const DistTensor& p : first.model->parameters())
    held += p.local().numel(), all += p.numel();
  fmt::print("rank {} holds {} of {} parameters\n", rt.rank(), held, all);
  for (uint64_t i = 0; i < 10; ++i) {
    if (i == 5) {
      nn::save_checkpoint(dir, *first.model, first.adam, {.step = 5});
      if (rt.dry_run()) return;
      nn::load_checkpoint(*latest_checkpoint(dir), *second.model, second.adam);
      if (rt.rank() == 0) fs::remove_all(dir);
    }
    const double loss = (i < 5 ? first : second).step(i),
                 expected = alone.step(i);
    DT_CHECK(std::abs(loss - expected) <= 1e-4 * expected, "fully_sharded",
             "the loss is {}, and {} on one rank", loss, expected);
    if (rt.rank() == 0) fmt::print("step {}: {:.4f}\n", i, loss);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "Fully sharded data parallelism.",
              .mesh = "dp=2",
              .axes = {"dp"}});
}
