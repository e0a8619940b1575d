// SPDX-License-Identifier: Apache-2.0
// Training on a device whose memory the host may not touch and whose work runs
// late gives what the CPU gives: with the CPU's kernels bit for bit, with those
// of a GPU to rounding.
#include "tests/dtensor/device/recording_device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/nn/models.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/losses.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/device/late_device.h"

namespace dtensor::nn {
namespace {

using Values = std::vector<double>;

// Runs fn on every rank, on a device that all ranks share. Returns the result
// of rank 0.
Values on(Device& device, const std::string& mesh,
          const std::function<Values(const Mesh&)>& fn) {
  Values result;
  RunOptions options;
  options.world = Mesh::parse(mesh).num_ranks();
  options.device = [&](int64_t) -> Device& { return device; };
  const int64_t before = device.waits();
  run(options, [&](Runtime& rt) {
    Values mine = fn(Mesh::parse(mesh));
    if (rt.rank() == 0) result = std::move(mine);
  });
  EXPECT_EQ(device.waits() > before, device.kind() != Device::Kind::kCpu);
  return result;
}
// Runs fn on the CPU, or on a recording device.
Values on(bool recording, const std::string& mesh,
          const std::function<Values(const Mesh&)>& fn) {
  if (!recording) return on(cpu(), mesh, fn);
  return on(*RecordingDevice::make(), mesh, fn);
}

void add(Values& all, const DistTensor& x) {
  for (double v : x.full().to_doubles()) all.push_back(v);
}

// Returns the loss and gradient norm of each step, the parameters after all
// steps, and some generated tokens.
Values train(const Mesh& mesh, const std::string& name, DType dtype,
             int stage = 0, uint64_t steps = 2) {
  ModelConfig c{.name = name,
                .layers = 1,
                .hidden = 24,
                .heads = 6,
                .seq = 5,
                .vocab = 17,
                .dtype = dtype};
  if (name == "llama") c.kv_heads = 2;
  const auto model = make_model(c, mesh, zero(default_plan(c, mesh), stage), 1);
  RankContext::current().gather_budget = 4096;
  AdamW adam(model->parameters());
  SGD sgd(model->parameters(), {.momentum = 0.9});
  Values all;
  for (uint64_t step = 0; step < steps; ++step) {
    const auto draw = [&](uint64_t stream) {
      return randint(0, 17, {4, 5}, mesh, batch_placements(mesh), DType::kI64,
                     {5, 2 * step + stream});
    };
    const DistTensor loss = model->loss(draw(0), draw(1));
    const auto grads =
        grad(loss, model->parameters(),
             {.release_graph = true, .bucket_bytes = stage > 1 ? 4096 : 0});
    const GradNorm norm = grad_norm(grads, 0.1);
    all.push_back(loss.item());
    all.push_back(norm.norm.item());
    const UpdateOptions options{.lr = 1e-2, .clip = norm.clip};
    if (step % 2 == 0)
      adam.step(grads, options);
    else
      sgd.step(grads, options);
  }
  for (const DistTensor& p : model->parameters()) add(all, p);
  GenerateOptions generated;
  generated.prompt = {3, 1};
  generated.tokens = 3;
  generated.sampling.temperature = 0.8;
  for (int64_t t : generate(*model, generated))
    all.push_back(static_cast<double>(t));
  return all;
}

TEST(RecordingDevice, TrainsAsTheCpuDoes) {
  for (const char* name : {"gpt", "llama"})
    for (const char* mesh : {"dp=1", "dp=2,tp=2"})
      for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        const auto fn = [&](const Mesh& m) { return train(m, name, dtype); };
        const Values want = on(false, mesh, fn), got = on(true, mesh, fn);
        EXPECT_GT(want.size(), 1000u);
        EXPECT_EQ(got, want) << name << " on " << mesh;
      }
}

class LateTraining : public testing::TestWithParam<LateDevice> {};

TEST_P(LateTraining, LosesWhatTheCpuLoses) {
  const std::shared_ptr<Device> device = make_device(GetParam());
  if (!device) GTEST_SKIP() << no_gpu();
  constexpr uint64_t kSteps = 6;
  for (const char* name : {"gpt", "llama"})
    for (const char* mesh : {"dp=2", "tp=2", "tp=3", "dp=2,tp=2"})
      for (const auto& [dtype, tolerance] :
           {std::pair{DType::kF64, 1e-9}, {DType::kF32, 1e-4}}) {
        const auto fn = [&, dtype = dtype](const Mesh& m) {
          return train(m, name, dtype, 0, kSteps);
        };
        const Values want = on(cpu(), mesh, fn), got = on(*device, mesh, fn);
        EXPECT_NE(want[0], want[2 * kSteps - 2]);
        for (size_t i = 0; i < 2 * kSteps; ++i)
          EXPECT_NEAR(got[i], want[i], tolerance * want[i])
              << name << " on " << mesh << ", " << dtensor::name(dtype)
              << ", step " << i / 2 << (i % 2 ? ", norm" : ", loss");
      }
}

INSTANTIATE_TEST_SUITE_P(Devices, LateTraining, testing::ValuesIn(kLateDevices),
                         [](const auto& info) {
                           return dtensor::name(info.param);
                         });

// Gathers ahead and buckets of gradients are work of the rank's other thread,
// on a stream of its own.
TEST(RecordingDevice, TrainsInPartsAsTheCpuDoes) {
  for (const char* name : {"gpt", "llama"})
    for (const char* mesh : {"dp=2", "dp=2,tp=2"})
      for (const int stage : {1, 3}) {
        const auto fn = [&](const Mesh& m) {
          return train(m, name, DType::kF32, stage);
        };
        EXPECT_EQ(on(true, mesh, fn), on(false, mesh, fn))
            << name << " on " << mesh << ", stage " << stage;
      }
}

// A bad target, which one dp rank holds, is an error of all ranks, but only
// when the host waits for the device anyway.
TEST(RecordingDevice, BadTargetsAreToldAtTheNextRead) {
  for (bool reads : {true, false}) {
    std::atomic<int> told = 0, went_on = 0;
    const auto fn = [&](const Mesh& mesh) {
      const int64_t values[] = {1, 2, 9, 0};
      const DistTensor targets = DistTensor::from_global(
          Tensor::from<int64_t>({4}, values), mesh, {{"dp", Shard(0)}});
      const DistTensor logits =
          randn({4, 5}, mesh, {{"dp", Shard(0)}}, DType::kF32, {1, 2});
      const DistTensor loss = cross_entropy(logits, targets);
      ++went_on;
      if (!reads) return Values();
      try {
        loss.item();
      } catch (const Error& e) {
        told += std::string(e.what()).find("target 9 is not in [0, 5)") !=
                std::string::npos;
      }
      return Values{loss.item()};  // told once
    };
    if (reads) {
      on(true, "dp=2,tp=2", fn);
      EXPECT_EQ(told, 4);
      EXPECT_EQ(went_on, 4);
    } else {
      EXPECT_THROW(on(true, "dp=2,tp=2", fn), Error);
      // When the two ranks that have the bad target end, the run has failed.
      // Other ranks may not have come so far.
      EXPECT_GE(went_on, 2);
    }
  }
}

// Moves between layouts, on both threads of each rank and their streams.
TEST(RecordingDevice, MovesAsTheCpuDoes) {
  const char* layouts[] = {"S0,R",      "R,S1", "S1,S0",   "P,R",
                           "P(max),S0", "R,R",  "P,P(avg)"};
  const auto fn = [&](const Mesh& mesh) {
    Values all;
    for (const char* from : layouts)
      for (const char* to : layouts)
        for (bool async : {false, true}) {
          const DistTensor x =
              randn({5, 7}, mesh, Placements("R,R"), DType::kF64, {1, 2})
                  .redistribute(from);
          DistTensor moved =
              async ? x.redistribute_async(to) : x.redistribute(to);
          add(all, moved + moved);
        }
    return all;
  };
  EXPECT_EQ(on(true, "a=2,b=2", fn), on(false, "a=2,b=2", fn));
}

// The part is made by the host, outside of the run.
// A part was a view of a copy of the whole value in the device's memory.
TEST(RecordingDevice, FromGlobalKeepsThePartAlone) {
  const auto device = RecordingDevice::make();
  RunOptions options;
  options.world = 4;
  options.device = [&](int64_t) -> Device& { return *device; };
  const Tensor whole = Tensor::empty({4, 1000}, DType::kF64);
  whole.fill(2);
  run(options, [&](Runtime& rt) {
    const auto used = [] {
      return RankContext::current().allocator->stats().current_bytes;
    };
    const Mesh mesh = Mesh::parse("dp=4");
    const int64_t before = used();
    const auto part = DistTensor::from_global(whole, mesh, "S0");
    EXPECT_LT(used() - before, 2 * 8000) << rt.rank();
    const auto all = DistTensor::from_global(whole, mesh, "R");
    EXPECT_LT(used() - before, 6 * 8000) << rt.rank();
    EXPECT_EQ(part.full().to_doubles(), all.full().to_doubles());
  });
}

TEST(RecordingDevice, APartOfAnotherDeviceIsRefused) {
  const Tensor part = Tensor::full({4}, DType::kF32, 1);
  std::atomic<int> told = 0;
  const Values got = on(true, "dp=2", [&](const Mesh& mesh) -> Values {
    try {
      DistTensor::from_local(part, mesh, {}, {4});
    } catch (const Error& e) {
      ++told;
      EXPECT_EQ(e.what(),
                fmt::format("[dist_tensor] a local part of f32[4](R) is "
                            "on the CPU, but rank {} computes on a GPU; "
                            "write part.to_rank()",
                            RankContext::current().world_rank));
    }
    const DistTensor x = DistTensor::from_local(part.to_rank(), mesh, {}, {4});
    Values all;
    add(all, x + x);
    return all;
  });
  EXPECT_EQ(told, 2);
  EXPECT_EQ(got, Values(4, 2.0));
}

TEST(RecordingDevice, SavesAndLoadsAsTheCpuDoes) {
  const ModelConfig c{.name = "gpt",
                      .layers = 1,
                      .hidden = 12,
                      .heads = 3,
                      .seq = 5,
                      .vocab = 17};
  const std::string dir = ::testing::TempDir() + "/recorded";
  std::filesystem::create_directories(dir);
  const Values want = on(false, "dp=1", [&](const Mesh& mesh) {
    Values all;
    for (const DistTensor& p : make_model(c, mesh, 3)->parameters())
      add(all, p);
    return all;
  });
  for (const char* mesh : {"dp=1", "dp=2,tp=2"}) {
    on(true, mesh, [&](const Mesh& m) {
      save_pretrained(*make_model(c, m, 3), dir);
      return Values();
    });
    const Values got = on(true, mesh, [&](const Mesh& m) {
      Values all;
      for (const DistTensor& p : from_pretrained(dir, m)->parameters())
        add(all, p);
      return all;
    });
    EXPECT_EQ(got, want) << "on " << mesh;
  }
}

}  // namespace
}  // namespace dtensor::nn
