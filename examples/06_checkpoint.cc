// SPDX-License-Identifier: Apache-2.0
// Saves a training run in the background, and resumes it on another mesh.
//
//   bazel run //examples:06_checkpoint -- --mesh dp=2,tp=2
#include <unistd.h>

#include <filesystem>

#include "dtensor/dtensor.h"

using namespace dtensor;
namespace fs = std::filesystem;

namespace {

struct Training {
  std::unique_ptr<nn::LanguageModel> model;
  std::unique_ptr<nn::AdamW> optimizer;

  Training(const Mesh& mesh, uint64_t seed)
      : model(nn::make_model({.hidden = 48, .heads = 4, .seq = 16, .vocab = 64},
                             mesh, seed)),
        optimizer(new nn::AdamW(model->named_parameters())) {}
  double step() {
    const DistTensor tokens = randint(0, 64, {8, 16}, model->mesh(),
                                      nn::batch_placements(model->mesh()));
    const DistTensor loss = model->loss(tokens, tokens);
    optimizer->step(grad(loss, model->parameters()), {.lr = 1e-2});
    return loss.item();
  }
  // The bytes of the parameters and the optimizer's state on all ranks
  // together, with each element counted once.
  int64_t bytes() const {
    int64_t n = 0;
    const auto add = [&](const DistTensor& x) {
      n += numel(x.shape()) * size_of(x.dtype());
    };
    for (const DistTensor& p : model->parameters()) add(p);
    for (const nn::OptimizerState& s : optimizer->state()) add(s.value);
    return n;
  }
};

void example(Runtime& rt) {
  const bool print = rt.rank() == 0;
  // All ranks use one folder, whose name has the process id of rank 0.
  const fs::path dir =
      fs::temp_directory_path() /
      fmt::format("06_checkpoint.{}", all_gather("process", getpid())[0]);
  Training first(rt.mesh(), 1);
  for (int i = 0; i < 5; ++i) first.step();
  nn::save_checkpoint(dir, *first.model, *first.optimizer, {.step = 5},
                      {.background = true});
  const double next = first.step();  // while the checkpoint is written
  finish_saves();
  if (rt.dry_run()) return;

  const std::string path = *latest_checkpoint(dir);
  int64_t written = 0;
  for (const auto& file : fs::directory_iterator(path))
    if (file.path().extension() == ".safetensors")
      written += int64_t(file.file_size());
  if (print)
    fmt::print("saved on {}: {} bytes, of which parameters and state have {}\n",
               rt.mesh().to_string(), written, first.bytes());

  Training second(rt.mesh({{"tp", rt.world_size()}}), 2);
  nn::load_checkpoint(path, *second.model, *second.optimizer);
  if (print) fs::remove_all(dir);
  const double again = second.step();
  DT_CHECK(std::abs(next - again) < 1e-5, "06_checkpoint",
           "the loss of step 6 is {}, but {} on the other mesh; expected equal "
           "losses",
           next, again);
  DT_CHECK(written >= first.bytes() &&
               written < first.bytes() * 5 / 4,  // room for the files' headers
           "06_checkpoint",
           "the files have {} bytes, but parameters and state have {}; "
           "expected as many, and headers of at most a quarter",
           written, first.bytes());
  if (print)
    fmt::print("loss of step 6: {:.6f}, on the other mesh {:.6f}\n", next,
               again);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "A training run that is resumed on another mesh.",
              .mesh = "dp=2,tp=2",
              .axes = {"dp", "tp"}});
}
