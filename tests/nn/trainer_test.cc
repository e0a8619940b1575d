#include "dtensor/nn/trainer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/io/checkpoint.h"
#include "dtensor/nn/models.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/device/recording_device.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using testing::error_of;

std::string fresh_folder(const std::string& name) {
  const std::string folder = ::testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  return folder;
}

// ---- Of a language model ----

std::unique_ptr<LanguageModel> tiny_gpt(const Mesh& mesh, int stage,
                                        DType dtype = DType::kF32) {
  const ModelConfig config{.layers = 2,
                           .hidden = 12,
                           .heads = 3,
                           .seq = 8,
                           .vocab = 17,
                           .dtype = dtype};
  return make_model(config, mesh,
                    zero(default_plan(config, mesh), stage, "dp"));
}

Batch tokens(int64_t step) {
  std::vector<int64_t> in, out;
  for (int64_t i = 0; i < 4 * 8; ++i) {
    in.push_back((step * 7 + i * i) % 17);
    out.push_back((in.back() + 1) % 17);
  }
  return {Tensor::from({4, 8}, in.data()), Tensor::from({4, 8}, out.data())};
}

// One bit of one copy, on one rank of three.
TEST(Trainer, CopiesThatDifferAreFound) {
  for (const int stage : {0, 1}) {
    std::mutex mutex;
    std::set<std::string> errors;
    run(3, [&](Runtime& rt) {
      const auto model = tiny_gpt(rt.mesh({{"dp", 3}}), stage);
      Trainer trainer(*model, {.steps = 4});
      trainer.step(tokens);
      EXPECT_EQ(error_of([&] { trainer.check_copies(); }), "no error");
      const DistTensor p = model->parameter("transformer.ln_f.weight");
      if (rt.rank() == 1) p.local().mutable_ptr<float>()[5] += 1e-6f;
      const std::string e = error_of([&] { trainer.check_copies(); });
      std::lock_guard lock(mutex);
      errors.insert(e);
    });
    ASSERT_EQ(errors.size(), 1u) << stage;  // the same sentence on every rank
    EXPECT_NE(errors.begin()->find("the copies of transformer.ln_f.weight"),
              std::string::npos)
        << *errors.begin();
    EXPECT_NE(errors.begin()->find("differ: rank 1 "), std::string::npos)
        << *errors.begin();
  }
}

// Losses and norms of a training that looks at its copies and begins anew from
// a checkpoint on its way, on a device that has graphs.
std::vector<double> trained(const Mesh& mesh, int stage, DType dtype,
                            const TrainerOptions& options) {
  std::vector<double> values;
  RunOptions on_device;
  on_device.world = mesh.num_ranks();
  const auto device = RecordingDevice::make();
  on_device.device = [&](int64_t) -> Device& { return *device; };
  run(on_device, [&](Runtime& rt) {
    const auto model = tiny_gpt(mesh, stage, dtype);
    Trainer trainer(*model, options);
    for (int64_t i = 0; i < options.steps; ++i) {
      const StepResult r = trainer.step(tokens);
      EXPECT_EQ(r.replayed, options.cuda_graph && i >= 2);
      if (i == 4) trainer.check_copies();
      if (i == 5) {
        trainer.save();
        finish_saves();
        trainer.step(tokens);
        trainer.load(*latest_checkpoint(options.checkpoints));
        EXPECT_EQ(trainer.next_step(), i + 1);
      }
      if (rt.rank() == 0) {
        values.push_back(r.loss);
        values.push_back(r.grad_norm);
      }
    }
  });
  return values;
}

TEST(Trainer, ReplaysItsSteps) {
  for (const auto& [name, stage] :
       {std::pair{"dp=1", 0}, {"dp=2", 0}, {"dp=2", 2}, {"dp=2,tp=2", 3}})
    for (const int64_t micros : {1, 3}) {
      const auto run_in = [&](bool graphs) {
        return trained(Mesh::parse(name), stage,
                       micros == 3 ? DType::kBF16 : DType::kF32,
                       {.steps = 8,
                        .micro_batches = micros,
                        .cuda_graph = graphs,
                        .checkpoints = fresh_folder("replayed")});
      };
      const std::vector<double> want = run_in(false);
      EXPECT_EQ(want.size(), 16u);
      EXPECT_EQ(run_in(true), want) << name << " " << micros;
    }
}

}  // namespace
}  // namespace dtensor::nn
