// SPDX-License-Identifier: Apache-2.0
// A Trainer with an optimizer and a rate of the program's own trains as on one
// rank, on every mesh, and saves, resumes and predicts as with its own.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/io/checkpoint.h"
#include "dtensor/nn/matrix_optimizers.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/soap.h"
#include "dtensor/nn/trainer.h"
#include "dtensor/ops/create.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/device/recording_device.h"
#include "tests/nn/tiny_gpt.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using testing::error_of;

Batch tokens(int64_t step) { return token_batch(step, 6); }

// This optimizer for the matrices of the blocks, and AdamW for all other
// parameters.
template <class O, class Options>
std::unique_ptr<Optimizer> of_matrices(const ParameterGroups& groups,
                                       const Options& options) {
  std::vector<NamedParameter> blocks, others;
  for (const ParameterGroup& group : groups.groups())
    for (const NamedParameter& p : group.parameters) {
      const bool in_block =
          p.tensor.ndim() == 2 && p.name.find(".h.") != std::string::npos;
      (in_block ? blocks : others).push_back(p);
    }
  EXPECT_FALSE(blocks.empty());
  return std::make_unique<O>(blocks, options, others);
}

template <class O>
std::unique_ptr<Optimizer> make(const ParameterGroups& groups) {
  return std::make_unique<O>(groups);
}

template <MatrixWork how>
std::unique_ptr<Optimizer> muon(const ParameterGroups& groups) {
  return of_matrices<Muon>(groups, MuonOptions{.work = how});
}

std::unique_ptr<Optimizer> shampoo(const ParameterGroups& groups) {
  return of_matrices<Shampoo>(groups, ShampooOptions{.update_freq = 2});
}

// Only the sides of 12 have bases. A longer one has more rows than the gradient
// has rank, and then some of its basis is rounding alone.
std::unique_ptr<Optimizer> soap(const ParameterGroups& groups) {
  return of_matrices<SOAP>(
      groups, SOAPOptions{.precondition_frequency = 2, .max_precond_dim = 12});
}

struct Kind {
  const char* name;
  MakeOptimizer make;
};
const Kind kKinds[] = {{"adafactor", make<Adafactor>},
                       {"lion", make<Lion>},
                       {"muon", muon<MatrixWork::kSplit>},
                       {"muon_owned", muon<MatrixWork::kOwned>},
                       {"shampoo", shampoo},
                       {"soap", soap}};

TrainerOptions options_of(const Kind& kind, const std::string& folder) {
  return {
      .steps = 6,
      .rate = [](int64_t step) { return 0.01 / static_cast<double>(1 + step); },
      .optimizer = kind.make,
      .micro_batches = 2,
      .checkpoints = folder,
      .save_every = 3,
      .check_copies_every = 2,
      .progress = false};
}

// The losses of a training, which may go on from a checkpoint.
std::vector<double> losses(const std::string& mesh, int stage,
                           const TrainerOptions& options, bool resume) {
  std::vector<double> all;
  RunOptions run_options;
  run_options.mesh = mesh;
  run_options.world = Mesh::parse(mesh).num_ranks();
  run(run_options, [&](Runtime& rt) {
    const auto model = tiny_gpt(rt.mesh(), stage, DType::kF64);
    Trainer trainer(*model, options);
    if (resume) trainer.resume();
    const TrainingReport report = trainer.train(tokens);
    if (rt.rank() == 0)
      for (const StepResult& r : report.steps) all.push_back(r.loss);
  });
  return all;
}

TEST(TrainerOptimizer, TrainsAndResumesAsOnOneRank) {
  for (const Kind& kind : kKinds) {
    const auto fresh = [&] {
      const std::string folder =
          ::testing::TempDir() + "/optimizer-" + kind.name;
      std::filesystem::remove_all(folder);
      return folder;
    };
    const std::vector<double> one =
        losses("dp=1", 0, options_of(kind, fresh()), false);
    ASSERT_EQ(one.size(), 6u);
    for (const auto& [mesh, stage] : {std::pair{"dp=2", 0},
                                      {"dp=2", 1},
                                      {"dp=3", 2},
                                      {"dp=3", 3},
                                      {"dp=2,tp=2", 3},
                                      {"pp=2,dp=2", 1}}) {
      const TrainerOptions options = options_of(kind, fresh());
      const std::vector<double> found = losses(mesh, stage, options, false);
      ASSERT_EQ(found.size(), 6u);
      for (size_t i = 0; i < 6; ++i)
        EXPECT_NEAR(found[i], one[i], 1e-9) << kind.name << mesh << stage << i;
      // Go on from the third step, on another mesh.
      std::filesystem::remove_all(options.checkpoints + "/step-00000006");
      const std::vector<double> rest = losses("tp=3", 0, options, true);
      ASSERT_EQ(rest.size(), 3u);
      for (size_t i = 0; i < 3; ++i)
        EXPECT_NEAR(rest[i], one[3 + i], 1e-9) << kind.name << mesh << stage;
    }
  }
}

TEST(TrainerOptimizer, ADryRunPredictsTheStep) {
  for (const Kind& kind : kKinds)
    for (const auto& [mesh, stage] : {std::pair{"dp=2,tp=2", 3}, {"dp=4", 1}}) {
      RunOptions options;
      options.world = 4;
      options.mesh = mesh;
      TrainerOptions training = options_of(kind, "");
      training.check_copies_every = 0;
      const Prediction predicted = predict(options, {6, 8}, [&](Runtime& rt) {
        const auto model = tiny_gpt(rt.mesh(), stage, DType::kF32);
        return Trainer(*model, training).predict(tokens);
      });
      run(options, [&](Runtime& rt) {
        const auto model = tiny_gpt(rt.mesh(), stage, DType::kF32);
        const TrainingReport report = Trainer(*model, training).train(tokens);
        EXPECT_EQ(error_of([&] { check_agreement(predicted, report); }),
                  "no error")
            << kind.name << mesh;
        const auto state = static_cast<size_t>(MemoryKind::kState);
        // The rank with the most work on its own matrices need not be the one
        // with the most states of theirs.
        const std::string name = kind.name;
        const bool owned = name == "shampoo" || name == "soap";
        const auto found = static_cast<double>(report.memory.kinds[state]),
                   want = static_cast<double>(predicted.memory.kinds[state]);
        EXPECT_LE(want, found) << name << mesh;
        EXPECT_GE(want, (owned ? 0.9 : 1) * found) << name << mesh;
      });
    }
}

// The first scales overflow. The steps that are skipped send as many bytes as
// others, which train() checks.
TEST(TrainerOptimizer, ALossScaleSkipsSteps) {
  for (const Kind& kind : kKinds)
    run(2, [&](Runtime& rt) {
      const auto model = tiny_gpt(rt.mesh({{"dp", 2}}), 1, DType::kF16);
      TrainerOptions options = options_of(kind, "");
      options.loss_scale = 1 << 19;
      const TrainingReport report = Trainer(*model, options).train(tokens);
      EXPECT_TRUE(report.steps[0].skipped) << kind.name;
      EXPECT_FALSE(report.steps[5].skipped) << kind.name;
    });
}

// The host cannot touch the memory of this device, whose work runs late.
TEST(TrainerOptimizer, TrainsOnADeviceButNotInAGraph) {
  for (const Kind& kind : kKinds) {
    const auto trained = [&](bool on_device, bool graph) {
      std::vector<double> all;
      RunOptions options;
      options.world = 2;
      const auto device = RecordingDevice::make();
      if (on_device)
        options.device = [&](int64_t) -> Device& { return *device; };
      run(options, [&](Runtime& rt) {
        const auto model = tiny_gpt(rt.mesh({{"dp", 2}}), 1, DType::kBF16);
        TrainerOptions training = options_of(kind, "");
        training.cuda_graph = graph;
        Trainer trainer(*model, training);
        for (int i = 0; i < 3; ++i) {
          const double loss = trainer.step(tokens).loss;
          if (rt.rank() == 0) all.push_back(loss);
        }
      });
      return all;
    };
    EXPECT_EQ(trained(true, false), trained(false, false)) << kind.name;
    const std::string error = error_of([&] { trained(true, true); });
    EXPECT_NE(error.find("[trainer] an update by operators cannot be replayed "
                         "as a graph"),
              std::string::npos)
        << error;
  }
}

TEST(TrainerOptimizer, MayTakeAFewParametersOrNone) {
  run(2, [&](Runtime& rt) {
    const auto model = tiny_gpt(rt.mesh({{"dp", 2}}), 0, DType::kF32);
    const DistTensor head = model->parameter("transformer.ln_f.weight"),
                     other = model->parameter("transformer.wte.weight");
    const auto before = head.local().to_doubles(),
               frozen = other.local().to_doubles();
    Trainer trainer(*model, {.optimizer = [&](const ParameterGroups&) {
      return std::make_unique<Adam>(ParameterGroups({head}));
    }});
    trainer.step(tokens);
    EXPECT_NE(head.local().to_doubles(), before);
    EXPECT_EQ(other.local().to_doubles(), frozen);
    EXPECT_EQ(error_of([&] {
                Trainer(*model, {.optimizer = [](const ParameterGroups&) {
                  return std::unique_ptr<Optimizer>();
                }});
              }),
              "[trainer] the function `optimizer` returned null; return an "
              "optimizer of the given parameters, or leave it out");
  });
}

}  // namespace
}  // namespace dtensor::nn
