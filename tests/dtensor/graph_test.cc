// SPDX-License-Identifier: Apache-2.0
// Replays of a Graph, into which a training step was captured, give the same
// bits as steps whose work is enqueued each time.
#include "dtensor/graph.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "dtensor/data_check.h"
#include "dtensor/device/graph_memory.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/nn/trainer.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/losses.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/device/recording_device.h"

namespace dtensor::nn {
namespace {

using Values = std::vector<double>;

constexpr int kSteps = 7, kBefore = 2;

struct Case {
  DType dtype = DType::kF32;
  std::string optimizer = "adamw";
  int stage = 0;  // of ZeRO
  int64_t bucket_bytes = 0;
  Recompute recompute = Recompute::kNone;
};

struct Trained {
  Values values;               // losses and norms, and the parameters
  std::vector<int64_t> waits;  // how often the host waits in each step
  std::vector<int64_t> given;  // works that the device gets in each step
};

std::unique_ptr<Optimizer> make_optimizer(const std::string& name,
                                          const LanguageModel& model) {
  const ParameterGroups groups = decay_matrices(model.named_parameters());
  if (name == "adamw") return std::make_unique<AdamW>(groups);
  return std::make_unique<SGD>(groups,
                               SGDOptions{.momentum = 0.9, .nesterov = true});
}

// Trains for kSteps steps. Each has its own rate, tokens and dropped elements.
Trained train(const Mesh& mesh, const Case& c, RecordingDevice* device,
              bool graphs) {
  ModelConfig config{.name = "gpt",
                     .layers = 2,
                     .hidden = 12,
                     .heads = 2,
                     .seq = 5,
                     .vocab = 17,
                     .dtype = c.dtype};
  const auto model =
      make_model(config, mesh, zero(default_plan(config, mesh), c.stage), 1);
  model->set_recompute(c.recompute);
  RankContext& context = RankContext::current();
  context.gather_budget = 4096;
  manual_seed(11);
  const auto optimizer = make_optimizer(c.optimizer, *model);
  const auto draw = [&](uint64_t stream) {
    return randint(0, 17, {4, 5}, mesh, batch_placements(mesh), DType::kI64,
                   {5, stream});
  };
  const DistTensor tokens = draw(0), targets = draw(1);
  const CosineSchedule schedule{1e-2, kSteps, 2};
  Tensor report;
  const auto step = [&](double lr) {
    const DistTensor features = dropout(model->features(tokens), 0.25);
    const DistTensor loss = cross_entropy(model->head(features), targets);
    const auto grads =
        grad(loss, optimizer->parameters(),
             {.release_graph = true, .bucket_bytes = c.bucket_bytes});
    const GradNorm norm = grad_norm(grads, 0.1);
    optimizer->step(grads, {.lr = lr, .clip = norm.clip});
    report = Tensor::empty({2}, DType::kF64);
    report.slice(0, 0, 1).copy_from(
        converted(loss.full(), DType::kF64).reshape({1}));
    report.slice(0, 1, 2).copy_from(norm.norm.reshape({1}));
  };
  Trained result;
  std::unique_ptr<Graph> graph;
  for (int i = 0; i < kSteps; ++i) {
    const auto stream = static_cast<uint64_t>(2 * i + 2);
    Tensor(tokens.local()).copy_from(draw(stream).local());
    Tensor(targets.local()).copy_from(draw(stream + 1).local());
    // Between two steps, the program changes a parameter.
    if (i == kBefore || i == 5) {
      DistTensor p = model->parameters()[1];
      assign(p, p * 0.5);
    }
    // The rate of the capture is never used: set_replay_lr() sets that of each
    // replay.
    if (graphs && !graph && i == kBefore)
      graph = std::make_unique<Graph>([&] { step(1e9); });
    const int64_t waits = device ? device->waits() : 0,
                  given = device ? device->given() : 0;
    if (graph) {
      optimizer->set_replay_lr(schedule.at(i));
      graph->replay();
    } else {
      step(schedule.at(i));
    }
    for (const double v : read_checked(context, mesh, report))
      result.values.push_back(v);
    if (device) {
      result.waits.push_back(device->waits() - waits);
      result.given.push_back(device->given() - given);
    }
    EXPECT_EQ(optimizer->steps(), i + 1);
  }
  for (const DistTensor& p : model->parameters())
    for (const double v : p.full().to_doubles()) result.values.push_back(v);
  for (const OptimizerState& s : optimizer->state())
    for (const double v : converted(s.value.full(), DType::kF64).to_doubles())
      result.values.push_back(v);
  // The generator must go on as it does without a graph.
  for (const double v : uniform({3}, mesh).full().to_doubles())
    result.values.push_back(v);
  return result;
}

Trained run_case(const std::string& mesh, const Case& c, bool recording,
                 bool graphs) {
  Trained result;
  RunOptions options;
  options.world = Mesh::parse(mesh).num_ranks();
  const auto device = RecordingDevice::make();
  if (recording) options.device = [&](int64_t) -> Device& { return *device; };
  run(options, [&](Runtime& rt) {
    Trained mine =
        train(Mesh::parse(mesh), c, recording ? device.get() : nullptr, graphs);
    if (rt.rank() == 0) result = std::move(mine);
  });
  return result;
}

void check(const std::string& mesh, const Case& c) {
  const Trained want = run_case(mesh, c, false, false),
                got = run_case(mesh, c, true, true);
  EXPECT_GT(want.values.size(), 1000u);
  for (int i = 0; i < 2 * kSteps; ++i)
    EXPECT_EQ(got.values[i], want.values[i])
        << mesh << " step " << i / 2 << (i % 2 ? " norm" : " loss");
  EXPECT_EQ(got.values, want.values) << mesh;
  EXPECT_NE(want.values[0], want.values[2]);
}

const char* const kMeshes[] = {"dp=1", "dp=2", "tp=2", "dp=2,tp=2"};

TEST(Graph, ReplaysAreTheStepsOfAnyMesh) {
  for (const char* mesh : kMeshes) check(mesh, {});
}

TEST(Graph, ReplaysAreTheStepsOfAnyTypeAndOptimizer) {
  for (const DType dtype : {DType::kBF16, DType::kF64})
    for (const char* optimizer : {"adamw", "sgd"})
      check("dp=2", {.dtype = dtype, .optimizer = optimizer});
}

TEST(Graph, ReplaysComputeAgainWhatIsNotSaved) {
  check("tp=2", {.recompute = Recompute::kBlock});
}

// Buckets of gradients and gathers ahead are work of the rank's other thread,
// on a stream of its own, which joins the capture.
TEST(Graph, ReplaysMoveAsTheStepsDo) {
  check("dp=2", {.bucket_bytes = 4096});
  for (const int stage : {1, 2, 3})
    for (const char* mesh : {"dp=2", "dp=2,tp=2"})
      check(mesh, {.stage = stage, .bucket_bytes = stage > 1 ? 4096 : 0});
}

// A replay is one work for the device, besides the numbers that the host
// writes, and the host waits once.
TEST(Graph, AReplayIsOneLaunch) {
  const Trained r = run_case("dp=1", {}, true, true);
  const auto steps = static_cast<size_t>(kSteps);
  EXPECT_GT(r.given[kBefore - 1], 100);
  for (size_t i = kBefore; i < steps; ++i) {
    EXPECT_EQ(r.waits[i], 1) << i;
    EXPECT_LT(r.given[i], 20) << i;
    // All replays are the same, also the one after a change of a parameter.
    EXPECT_EQ(r.given[i], r.given[kBefore]) << i;
  }
}

// Returns what fn() throws on a mesh, on a RecordingDevice or the CPU.
std::string error_of(const char* mesh, bool recording,
                     const std::function<void(const Mesh&)>& fn) {
  RunOptions options;
  options.world = Mesh::parse(mesh).num_ranks();
  const auto device = RecordingDevice::make();
  if (recording) options.device = [&](int64_t) -> Device& { return *device; };
  try {
    run(options, [&](Runtime&) { fn(Mesh::parse(mesh)); });
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Graph, WhatAStepMayNotDo) {
  const auto read = [](const Mesh& mesh) {
    const DistTensor x = ones({4}, mesh);
    Graph graph([&] { x.full().at(0); });
  };
  for (const char* mesh : {"dp=1", "dp=2"})
    EXPECT_EQ(error_of(mesh, true, read),
              "[cuda graph] a stream copies to the host while it is captured; "
              "do that before or after");
  EXPECT_EQ(
      error_of("dp=2", true,
               [](const Mesh& mesh) { Graph graph([&] { arange(4, mesh); }); }),
      "[cuda graph] a stream copies from the host while it is captured; "
      "do that before or after");
  EXPECT_EQ(
      error_of("dp=1", true,
               [](const Mesh&) { Graph graph([] { Graph inner([] {}); }); }),
      "[cuda graph] a graph cannot be made within the step of another graph; "
      "make them one after the other");
  EXPECT_EQ(error_of("dp=1", true,
                     [](const Mesh& mesh) {
                       const DistTensor p = ones({2}, mesh).as_parameter();
                       const DistTensor g = ones({2}, mesh);
                       Lion lion({p});
                       Graph graph([&] { lion.step({g}, {}); });
                     }),
            "[optimizer] an update by operators cannot be in a graph's step, "
            "because its rate and its step number would not change; step "
            "without a graph (in a Trainer, leave cuda_graph out), or use SGD "
            "or AdamW");
  EXPECT_EQ(error_of("dp=1", true,
                     [](const Mesh& mesh) {
                       randn({2}, mesh);
                       Graph graph([&] {
                         manual_seed(3);
                         randn({2}, mesh);
                       });
                       graph.replay();
                     }),
            "");
}

TEST(Graph, TheCpuHasNone) {
  EXPECT_EQ(error_of("dp=2", false, [](const Mesh&) { Graph graph([] {}); }),
            "[cuda graph] this rank's device cannot capture graphs; run on "
            "--device cuda without --dry-run, or call the step itself each "
            "time");
}

// A rank that fails in the step releases those that wait for it.
TEST(Graph, AStepThatFailsOnOneRank) {
  EXPECT_EQ(error_of("dp=2", true,
                     [](const Mesh& mesh) {
                       const DistTensor x = ones({4}, mesh, "S0");
                       Graph graph([&] {
                         if (RankContext::current().world_rank == 1)
                           fail("test", "no more");
                         x.full();
                       });
                     }),
            "[test] no more");
}

// The stream computes again after a step that failed during its capture.
TEST(Graph, AStepThatFailedIsOver) {
  EXPECT_EQ(error_of("dp=1", true,
                     [](const Mesh& mesh) {
                       DistTensor x = ones({4}, mesh);
                       EXPECT_THROW(Graph([] { fail("test", "no more"); }),
                                    Error);
                       EXPECT_EQ(x.full().at(0), 1);
                       DistTensor y;
                       Graph graph([&] { y = mul(x, 2.0); });
                       graph.replay();
                       EXPECT_EQ(y.full().at(0), 2);
                     }),
            "");
}

// A bad target of a replay throws when that replay's loss is read, and not
// later.
TEST(Graph, ChecksAreMadeOfEachReplay) {
  std::string told;
  error_of("dp=2", true, [&](const Mesh& mesh) {
    const DistTensor logits = randn({4, 5}, mesh, {}, DType::kF32, {1, 2});
    const DistTensor targets =
        randint(0, 5, {4}, mesh, {}, DType::kI64, {1, 3});
    cross_entropy(logits, targets).item();
    DistTensor loss;
    Graph graph([&] { loss = cross_entropy(logits, targets); });
    std::string mine;
    for (const int64_t target : {1, 9, 2, 8}) {
      Tensor(targets.local()).fill(static_cast<double>(target));
      graph.replay();
      try {
        loss.item();
        mine += "good ";
      } catch (const Error& e) {
        mine += std::string(e.what()).find(
                    "target " + std::to_string(target)) != std::string::npos
                    ? "bad "
                    : e.what();
      }
    }
    if (RankContext::current().world_rank == 0) told = mine;
  });
  EXPECT_EQ(told, "good bad good bad ");
}

// Graphs give their memory back, except that of tensors that are still held.
TEST(Graph, GivesItsMemoryBack) {
  const auto device = RecordingDevice::make(1 << 22);
  RunOptions options;
  options.device = [&](int64_t) -> Device& { return *device; };
  run(options, [&](Runtime& rt) {
    const Mesh mesh = Mesh::parse("dp=1");
    const DistTensor x = ones({1 << 16}, mesh);
    DistTensor y;
    const auto step = [&] {
      const DistTensor a = x + x, b = a * a;
      y = (b + a) * 0.5;
    };
    step();
    for (int i = 0; i < 50; ++i) {
      Graph graph(step);
      graph.replay();
      graph.replay();
      EXPECT_EQ(y.full().at(7), 3);
    }
    EXPECT_EQ(y.full().at(7), 3);
    EXPECT_EQ(rt.context().allocator->stats().current_bytes, 2 << 18);
  });
}

// A block of graph_memory() is used by nothing else while the graph exists.
TEST(Graph, KernelsHaveMemoryThatLasts) {
  const auto device = RecordingDevice::make();
  RunOptions options;
  options.device = [&](int64_t) -> Device& { return *device; };
  run(options, [&](Runtime& rt) {
    constexpr int64_t kElements = 1 << 16, kBytes = 4 * kElements;
    const Stream stream = rt.context().stream;
    const auto bytes = [&] {
      return rt.context().allocator->stats().current_bytes;
    };
    const int64_t before = bytes();
    std::set<const void*> others;
    const auto compute = [&] {
      for (int i = 0; i < 20; ++i)
        others.insert(Tensor::empty({kElements}, DType::kF32).data());
    };
    void* block = nullptr;
    EXPECT_EQ(graph_memory(kBytes, stream), nullptr);
    {
      Graph graph([&] {
        block = graph_memory(kBytes, stream);
        compute();
        EXPECT_EQ(bytes(), before + kBytes);
      });
      compute();
      EXPECT_NE(block, nullptr);
      EXPECT_FALSE(others.contains(block));
    }
    EXPECT_EQ(bytes(), before);
    EXPECT_EQ(graph_memory(kBytes, stream), nullptr);
  });
}

}  // namespace
}  // namespace dtensor::nn
