// SPDX-License-Identifier: Apache-2.0
// Activations and the optimizer's state on the host: the same bits from less
// memory of a GPU, in a dry run as in a real one.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/comm_table.h"
#include "dtensor/nn/checkpoint.h"
#include "dtensor/nn/matrix_optimizers.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/nn/trainer.h"
#include "dtensor/ops/create.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/replicas.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/device/late_device.h"
#include "tests/nn/tiny_gpt.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using testing::error_of;
using Values = std::vector<double>;

Batch tokens(int64_t step) { return token_batch(step, 8); }

struct Case {
  std::string name, mesh;
  int stage = 0;
  DType dtype = DType::kF32;
  MakeOptimizer optimizer = {};
  int64_t micros = 1;
};

// The blocks' choices, and whether the state is offloaded.
struct Offload {
  std::vector<Recompute> blocks;
  bool state = false;
};
const std::vector<Recompute> kHere(3, Recompute::kNone),
    kAway(3, Recompute::kOffload),
    kMixed = {Recompute::kOffload, Recompute::kBlock, Recompute::kNone};

std::unique_ptr<LanguageModel> model_of(const Case& c, const Mesh& mesh,
                                        const Offload& how) {
  const ModelConfig config{.name = "llama",
                           .layers = 3,
                           .hidden = 12,
                           .heads = 6,
                           .kv_heads = 2,
                           .seq = 8,
                           .vocab = 17,
                           .dtype = c.dtype};
  auto model =
      make_model(config, mesh, zero(default_plan(config, mesh), c.stage), 1);
  model->set_recompute(how.blocks);
  return model;
}
TrainerOptions options_of(const Case& c, const Offload& how) {
  return {.steps = 3,
          .optimizer = c.optimizer,
          .micro_batches = c.micros,
          .offload_state = how.state,
          .progress = false};
}

struct Ran {
  Values values;  // losses, norms, parameters, state
  MemoryUse memory, predicted;
};
Ran trained(Device& device, const Case& c, const Offload& how) {
  Ran ran;
  const Mesh mesh = Mesh::parse(c.mesh);
  RunOptions options;
  options.mesh = c.mesh;
  options.world = mesh.num_ranks();
  ran.predicted = predict(options, {8, 8}, [&](Runtime&) {
                    const auto model = model_of(c, mesh, how);
                    return Trainer(*model, options_of(c, how)).predict(tokens);
                  }).memory;
  options.device = [&](int64_t) -> Device& { return device; };
  run(options, [&](Runtime& rt) {
    const auto model = model_of(c, mesh, how);
    Trainer trainer(*model, options_of(c, how));
    const TrainingReport report = trainer.train(tokens);
    Values all;
    for (const StepResult& r : report.steps) {
      all.push_back(r.loss);
      all.push_back(r.grad_norm);
    }
    for (const DistTensor& p : model->parameters())
      if (p.here())
        for (double v : p.full().to_doubles()) all.push_back(v);
    if (rt.rank() != 0) return;
    ran.values = std::move(all);
    ran.memory = report.memory;
  });
  return ran;
}

int64_t of(const MemoryUse& m, MemoryKind k) {
  return m.kinds[static_cast<size_t>(k)];
}

template <class O, class Options>
MakeOptimizer make(const Options& options) {
  return [options](const ParameterGroups& g) {
    return std::make_unique<O>(g, options);
  };
}
// Muon for matrices, each with an owner.
const MakeOptimizer kMuon = [](const ParameterGroups& g) {
  return std::make_unique<Muon>(std::vector<ParameterGroup>{g.groups()[0]},
                                MuonOptions{},
                                std::vector<ParameterGroup>{g.groups()[1]});
};

class OffloadTest : public ::testing::TestWithParam<LateDevice> {};
INSTANTIATE_TEST_SUITE_P(Devices, OffloadTest,
                         ::testing::ValuesIn(kLateDevices),
                         [](const auto& info) {
                           return dtensor::name(info.param);
                         });

TEST_P(OffloadTest, KeepsTheBitsAndThePeakIsThePredictedOne) {
  const std::shared_ptr<Device> device = make_device(GetParam());
  if (!device) GTEST_SKIP() << no_gpu();
  const Case cases[] = {
      {"dp_tp", "dp=2,tp=2"},
      {"zero1", "dp=2", 1, DType::kBF16},
      {"zero3", "dp=2,tp=2", 3},
      {"micros", "tp=2", 0, DType::kF32, {}, 2},
      {"adagrad", "dp=2", 2, DType::kBF16, make<Adagrad>(AdagradOptions{})},
      {"muon", "dp=2,tp=2", 0, DType::kF32, kMuon},
      {"pipeline", "pp=2", 0, DType::kF32, {}, 2}};
  for (const Case& c : cases) {
    const Ran here = trained(*device, c, {kHere});
    EXPECT_EQ(here.memory.host, 0) << c.name;
    const auto as_predicted = [&](const Ran& ran) {
      // A trainer's loss and norms on a device are not in a prediction.
      // In a pipeline, what a stage has sent may still be held.
      const int64_t more = ran.memory.peak - ran.predicted.peak,
                    sent = c.name == "pipeline" ? 4 * 8 * 12 * 4 : 0;
      EXPECT_LE(more, 96 + sent) << c.name;
      // With ZeRO 2 and 3, it also depends on time what is on its way.
      if (c.stage < 2) {
        EXPECT_GE(more, -96) << c.name;
      }
    };
    as_predicted(here);
    for (const Offload& how : {Offload{kAway}, {kHere, true}, {kMixed, true}}) {
      const Ran away = trained(*device, c, how);
      EXPECT_EQ(away.values, here.values) << c.name;
      EXPECT_GT(away.memory.host, 0) << c.name;
      EXPECT_EQ(away.memory.host, away.predicted.host) << c.name;
      as_predicted(away);
      // Muon's update takes most: that of all matrices at once.
      EXPECT_LT(away.memory.peak, here.memory.peak + (c.name == "muon"))
          << c.name;
      EXPECT_LE(of(away.memory, MemoryKind::kState),
                of(here.memory, MemoryKind::kState))
          << c.name;
      if (how.blocks != kHere) {
        EXPECT_LT(of(away.memory, MemoryKind::kActivations),
                  of(here.memory, MemoryKind::kActivations))
            << c.name;
      }
    }
  }
}

// A GPU never holds more than the state of one parameter, or 4 MiB.
TEST_P(OffloadTest, StateComesInPieces) {
  const std::shared_ptr<Device> device = make_device(GetParam());
  if (!device) GTEST_SKIP() << no_gpu();
  RunOptions options;
  options.world = 2;
  options.device = [&](int64_t) -> Device& { return *device; };
  run(options, [&](Runtime&) {
    const Mesh mesh = Mesh::parse("tp=2");
    std::vector<DistTensor> p, g;
    for (uint64_t i = 0; i < 12; ++i) {
      p.push_back(
          randn({1024, 512}, mesh, Placements("S0"), DType::kF32, {1, i})
              .as_parameter());
      g.push_back(
          randn({1024, 512}, mesh, Placements("S0"), DType::kF32, {2, i}));
    }
    const int64_t part = 1024 * 512 * 4 / 2;
    const auto groups = [&](bool offload) {
      ParameterGroup group;
      group.parameters = ParameterGroups(p).groups()[0].parameters;
      group.offload_state = offload;
      return ParameterGroups(std::vector<ParameterGroup>{group});
    };
    const auto peak = [&](Optimizer& o) {
      RankContext& context = RankContext::current();
      context.allocator->reset_peak();
      o.step(g, {.lr = 1e-3});
      return of(memory_use(*context.allocator), MemoryKind::kState);
    };
    {
      AdamW here(groups(false));
      EXPECT_EQ(peak(here), 24 * part);
    }
    {
      AdamW away(groups(true));
      EXPECT_EQ(peak(away), 4 * part);
      EXPECT_EQ(RankContext::current().allocator->host_peak(), 24 * part);
    }
    Adagrad away(groups(true));
    EXPECT_LE(peak(away), 2 * part);
  });
}

// A checkpoint holds the values, and is loaded with the state on the host.
TEST_P(OffloadTest, StateIsSavedAndLoaded) {
  const std::shared_ptr<Device> device = make_device(GetParam());
  if (!device) GTEST_SKIP() << no_gpu();
  const std::string folder =
      ::testing::TempDir() + "/offloaded_" + dtensor::name(GetParam());
  const Case c{"", "dp=2,tp=2", 1, DType::kBF16};
  const Mesh mesh = Mesh::parse(c.mesh);
  RunOptions options;
  options.world = 4;
  options.device = [&](int64_t) -> Device& { return *device; };
  std::vector<Values> ends(4);
  for (const bool saves : {false, true})
    for (const bool loads : {false, true}) {
      std::filesystem::remove_all(folder);
      run(options, [&](Runtime& rt) {
        const auto with = [&](bool away) {
          TrainerOptions o = options_of(c, {kHere, away});
          o.steps = 6;
          o.checkpoints = folder;
          return o;
        };
        {
          const auto model = model_of(c, mesh, {kHere});
          Trainer trainer(*model, with(saves));
          for (int i = 0; i < 3; ++i) trainer.step(tokens);
          trainer.save();
          finish_saves();
          trainer.check_copies();
        }
        const auto model = model_of(c, mesh, {kAway});
        Trainer trainer(*model, with(loads));
        trainer.load(*latest_checkpoint(folder));
        Values end;
        for (int i = 0; i < 3; ++i) end.push_back(trainer.step(tokens).loss);
        for (const DistTensor& p : model->parameters())
          for (double v : p.full().to_doubles()) end.push_back(v);
        if (rt.rank() == 0)
          ends[static_cast<size_t>(2 * saves + loads)] = std::move(end);
      });
    }
  for (const Values& end : ends) EXPECT_EQ(end, ends[0]);
}

struct Wide : Module {
  explicit Wide(const Scope& at) : Module(at) {
    for (int i = 0; i < 6; ++i)
      add_parameter(std::to_string(i), {1024, 2048}, Init::normal(1));
  }
};

// Nor does a GPU hold all of the state while it is saved, compared or loaded.
TEST_P(OffloadTest, CheckpointsAreWrittenAndReadInPieces) {
  const std::shared_ptr<Device> device = make_device(GetParam());
  if (!device) GTEST_SKIP() << no_gpu();
  const std::string folder =
      ::testing::TempDir() + "/pieces_" + dtensor::name(GetParam());
  std::filesystem::remove_all(folder);
  RunOptions options;
  options.device = [&](int64_t) -> Device& { return *device; };
  run(options, [&](Runtime&) {
    Wide model({.mesh = Mesh::parse("dp=1")});
    constexpr int64_t kOne = 1024 * 2048 * 4;
    AdamW adam(std::vector<ParameterGroup>{
        {.parameters = model.named_parameters(), .offload_state = true}});
    std::vector<DistTensor> grads;
    for (const DistTensor& p : model.parameters()) grads.push_back(p.detach());
    adam.step(grads, {.lr = 1e-3});
    Allocator& here = *RankContext::current().allocator;
    const auto more = [&](const std::function<void()>& fn) {
      here.reset_peak();
      const int64_t before = here.stats().current_bytes;
      fn();
      EXPECT_EQ(here.stats().current_bytes, before);
      return here.stats().peak_bytes - before;
    };
    const Values want = adam.state()[3].value.full().to_doubles();
    adam.load_state(adam.state());  // puts that one away again
    std::vector<NamedTensor> state;
    for (const OptimizerState& s : adam.state())
      state.push_back({s.name, s.value});
    EXPECT_LE(more([&] { check_replicas(state); }), kOne + 1024);
    EXPECT_LE(more([&] { save_checkpoint(folder, model, adam, {}); }),
              2 * kOne);
    // All parameters at once, a piece of 64 MiB, and a state.
    EXPECT_LE(
        more([&] { load_checkpoint(*latest_checkpoint(folder), model, adam); }),
        (6 + 9) * kOne);
    EXPECT_EQ(adam.state()[3].value.full().to_doubles(), want);
  });
}

// A graph's replays use the memory of its capture.
TEST_P(OffloadTest, IsRefusedInAGraph) {
  const std::shared_ptr<Device> device = make_device(GetParam());
  if (!device) GTEST_SKIP() << no_gpu();
  RunOptions options;
  options.device = [&](int64_t) -> Device& { return *device; };
  const Case c{"", "dp=1"};
  run(options, [&](Runtime&) {
    const auto model = model_of(c, Mesh::parse(c.mesh), {kHere});
    TrainerOptions o = options_of(c, {kHere, true});
    o.cuda_graph = true;
    EXPECT_EQ(error_of([&] { Trainer(*model, o); }),
              "[trainer] a graph keeps the memory of the optimizer's state; "
              "leave cuda_graph or offload_state out");
  });
  EXPECT_NE(error_of([&] {
              run(options, [&](Runtime&) {
                const auto model = model_of(c, Mesh::parse(c.mesh), {kAway});
                TrainerOptions o = options_of(c, {kAway});
                o.steps = 4;
                o.cuda_graph = true;
                Trainer(*model, o).train(tokens);
              });
            }).find("[offload] a graph's step moves "),
            std::string::npos);
}

}  // namespace
}  // namespace dtensor::nn
