// SPDX-License-Identifier: Apache-2.0
// PyTorch's "Getting Started with Distributed Checkpoint": a sharded model is
// saved, and loaded on the same ranks, in another layout, and on one rank.
//
//   bazel run //examples/tutorials:resharding -- --mesh dp=3
#include <unistd.h>

#include <filesystem>

#include "dtensor/dtensor.h"

using namespace dtensor;
namespace fs = std::filesystem;

namespace {

struct Training {
  Training(const Mesh& mesh, const nn::ParallelPlan& plan, uint64_t seed)
      : net({.mesh = mesh,
             .plan = std::make_shared<const nn::ParallelPlan>(plan),
             .seed = seed},
            nn::layer<nn::Linear>(16, 16), relu, nn::layer<nn::Linear>(16, 8)),
        adam(net.named_parameters()) {}
  DistTensor output() const {
    return net.forward(
        randn({8, 16}, net.mesh(), {}, DType::kF32, {.seed = 9}));
  }
  void step() { adam.step(grad(sum(output()), net.parameters()), {.lr = 0.1}); }
  nn::Sequential net;
  nn::Adam adam;
};

void example(Runtime& rt) {
  const fs::path dir =
      fs::temp_directory_path() /
      fmt::format("resharding.{}", all_gather("process", getpid())[0]);
  const Mesh mesh = rt.mesh(), row = rt.mesh({{"tp", rt.world_size()}});
  Training saved(mesh, nn::zero({}, 3), 0), again(mesh, nn::zero({}, 3), 1),
      split(row, {{"0.*", {{"tp", Shard(0)}}}}, 2),
      one(rt.mesh({{"dp", 1}}), {}, 3);
  saved.step();
  nn::save_checkpoint(dir, saved.net, saved.adam, {.step = 1});
  if (rt.dry_run()) return;
  saved.step();
  const DistTensor expected = saved.output();
  for (Training* t : {&again, &split, &one}) {
    nn::load_checkpoint(*latest_checkpoint(dir), t->net, t->adam);
    t->step();
    const DistTensor y = t->output().redistribute(mesh, {});
    DT_CHECK(allclose(y, expected).item<bool>(), "resharding",
             "the outputs on {} differ from the saved model's",
             t->net.mesh().to_string());
    if (rt.rank() == 0) fmt::print("equal on {}\n", t->net.mesh().to_string());
  }
  if (rt.rank() == 0) fs::remove_all(dir);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "A checkpoint that is loaded in other layouts.",
              .mesh = "dp=4",
              .axes = {"dp"}});
}
