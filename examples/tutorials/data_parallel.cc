// SPDX-License-Identifier: Apache-2.0
// PyTorch's "Getting Started with Distributed Data Parallel": a toy model whose
// batch is split, and a checkpoint.
//
//   bazel run //examples/tutorials:data_parallel -- --mesh dp=3
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "dtensor/dtensor.h"

using namespace dtensor;
namespace fs = std::filesystem;

namespace {

struct Training {
  explicit Training(const Mesh& mesh, uint64_t seed = 0)
      : net({.mesh = mesh, .plan = {}, .seed = seed},
            nn::layer<nn::Linear>(10, 10), relu, nn::layer<nn::Linear>(10, 5)),
        sgd(net.named_parameters()) {}
  double step(uint64_t number) {
    const auto random = [&](int64_t width) {
      return randn({20, width}, net.mesh(), {{"dp", Shard(0)}}, DType::kF32,
                   {.seed = number, .stream = static_cast<uint64_t>(width)});
    };
    const DistTensor loss = mse_loss(net.forward(random(10)), random(5));
    sgd.step(grad(loss, net.parameters()), {.lr = 0.1});
    return loss.item();
  }
  nn::Sequential net;
  nn::SGD sgd;
};

void example(Runtime& rt) {
  const fs::path dir =
      fs::temp_directory_path() /
      fmt::format("data_parallel.{}", all_gather("process", getpid())[0]);
  Training first(rt.mesh()), alone(Mesh({{"dp", 1}}, {rt.rank()})),
      second(rt.mesh(), 1);
  const auto check = [&](const char* what, double found, double expected) {
    DT_CHECK(std::abs(found - expected) <= 1e-5 * expected, "data_parallel",
             "the loss {} is {}, and {} on one rank", what, found, expected);
    if (rt.rank() == 0) fmt::print("the loss {}: {:.6f}\n", what, found);
  };
  check("at first", first.step(0), alone.step(0));
  nn::save_checkpoint(dir, first.net, first.sgd, {.step = 1});
  if (rt.dry_run()) return;
  nn::load_checkpoint(*latest_checkpoint(dir), second.net, second.sgd);
  if (rt.rank() == 0) fs::remove_all(dir);
  check("after loading", second.step(1), alone.step(1));
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "Data parallelism, and a checkpoint.",
              .mesh = "dp=2",
              .axes = {"dp"}});
}
