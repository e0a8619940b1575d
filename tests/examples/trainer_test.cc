// The training loop's body, where the program shows too little of it.
#include "examples/trainer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/runtime.h"
#include "tests/dtensor/device/recording_device.h"
#include "tests/testing.h"

namespace dtensor::examples {
namespace {

using testing::error_of;

TrainConfig tiny(int64_t zero) {
  TrainConfig c;
  c.model.layers = 1;
  c.model.hidden = 12;
  c.model.heads = 3;
  c.model.seq = 8;
  c.batch = 4;
  c.steps = 4;
  c.zero = zero;
  return c;
}

// One bit of one copy, on one rank of three.
TEST(Trainer, CopiesThatDifferAreFound) {
  for (const int64_t zero : {0, 1}) {
    std::mutex mutex;
    std::set<std::string> errors;
    run(3, [&](Runtime& rt) {
      TrainConfig config = tiny(zero);
      const Mesh mesh = rt.mesh({{"dp", 3}});
      config.validate(mesh);
      Trainer trainer(config, mesh);
      trainer.step(0, TextData::licences());
      EXPECT_EQ(error_of([&] { trainer.check_copies(); }), "no error");
      const DistTensor p = trainer.model().parameter("transformer.ln_f.weight");
      if (rt.rank() == 1) p.local().mutable_ptr<float>()[5] += 1e-6f;
      const std::string e = error_of([&] { trainer.check_copies(); });
      std::lock_guard lock(mutex);
      errors.insert(e);
    });
    ASSERT_EQ(errors.size(), 1u) << zero;  // the same sentence on every rank
    EXPECT_NE(errors.begin()->find("the copies of transformer.ln_f.weight"),
              std::string::npos)
        << *errors.begin();
    EXPECT_NE(errors.begin()->find("differ: rank 1 "), std::string::npos)
        << *errors.begin();
  }
}

// Losses and norms of a training that evaluates, looks at its copies and begins
// anew from a checkpoint on its way, on a device that has graphs.
std::vector<double> trained(const Mesh& mesh, TrainConfig config, bool graphs,
                            const std::string& folder) {
  std::vector<double> values;
  RunOptions options;
  options.world = mesh.num_ranks();
  const auto device = RecordingDevice::make();
  options.device = [&](int64_t) -> Device& { return *device; };
  config.cuda_graph = graphs;
  config.steps = 8;
  config.validate(mesh);
  run(options, [&](Runtime& rt) {
    const TextData text = TextData::licences();
    Trainer trainer(config, mesh);
    for (int64_t i = 0; i < config.steps; ++i) {
      const StepResult r = trainer.step(i, text);
      EXPECT_EQ(r.replayed, graphs && i >= 2);
      if (i == 4) trainer.check_copies();
      if (i == 5) {
        trainer.save(folder, i + 1, text);
        finish_saves();
        trainer.step(i + 1, text);
        trainer.load(*latest_checkpoint(folder));
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
  const std::string folder = ::testing::TempDir() + "/replayed";
  for (const auto& [name, zero] :
       {std::pair{"dp=1", 0}, {"dp=2", 0}, {"dp=2", 2}, {"dp=2,tp=2", 3}})
    for (const int64_t accumulate : {1, 3}) {
      const Mesh mesh = Mesh::parse(name);
      TrainConfig config = tiny(zero);
      config.accumulate = accumulate;
      config.dtype = accumulate == 3 ? "bf16" : "f32";
      const auto run_in = [&](bool graphs) {
        std::filesystem::remove_all(folder);
        std::filesystem::create_directories(folder);
        return trained(mesh, config, graphs, folder);
      };
      const std::vector<double> want = run_in(false);
      EXPECT_EQ(want.size(), 16u);
      EXPECT_EQ(run_in(true), want) << name << " " << accumulate;
    }
}

}  // namespace
}  // namespace dtensor::examples
