// SPDX-License-Identifier: Apache-2.0
// The record of a dry run, compared with a run of the same step on threads.
#include "dtensor/program/record.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/nn/models.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using Json = Record::Json;

// One training step with clipping.
void train(const Mesh& mesh, int stage, DType dtype = DType::kF32) {
  nn::ModelConfig config;
  config.layers = 2;
  config.hidden = 20;
  config.heads = 5;
  config.seq = 6;
  config.vocab = 31;
  config.dtype = dtype;
  const auto model = nn::make_model(
      config, mesh, nn::zero(nn::default_plan(config, mesh), stage), 1);
  nn::AdamW optimizer(model->parameters(), {});
  const DistTensor tokens =
      randint(0, config.vocab, {5, config.seq}, mesh,
              nn::batch_placements(mesh), DType::kI64, {2, 0});
  const std::vector<DistTensor> grads =
      grad(model->loss(tokens, tokens), model->parameters());
  optimizer.step(grads, {.clip = nn::grad_norm(grads, 1).clip});
}

Json record_of(const Mesh& mesh, const std::function<void(Record&)>& set,
               const std::function<void(Runtime&)>& fn) {
  RunOptions options;
  options.world = mesh.num_ranks();
  options.dry_run = true;
  options.record = true;
  const auto record = std::make_shared<Record>("test", mesh, options.cost);
  if (set) set(*record);
  options.observers = {record};
  run(options, fn);
  return record->json();
}

TEST(RecordInProcess, SaysWhatAllRanksReceive) {
  const struct {
    const char* mesh;
    int stage;
  } kCases[] = {{"tp=3", 0},      {"tp=5", 0}, {"dp=2,tp=3", 0}, {"dp=3", 1},
                {"dp=2,tp=2", 2}, {"dp=3", 3}, {"dp=3,tp=2", 3}};
  for (const auto& [mesh_text, stage] : kCases) {
    SCOPED_TRACE(std::string(mesh_text) + ", stage " + std::to_string(stage));
    const Mesh mesh = Mesh::parse(mesh_text);
    const auto step = [&](Runtime&) { train(mesh, stage); };
    const Json record = record_of(mesh, nullptr, step);
    std::atomic<int64_t> counted = 0;
    RunOptions options;
    options.world = mesh.num_ranks();
    options.record = true;
    options.finish = [&](Runtime& rt) {
      for (const CommEvent& e : rt.context().events) counted += e.counted;
    };
    run(options, step);
    EXPECT_EQ(record["totals"]["by_all"], counted.load());
    EXPECT_GT(counted, record["totals"]["bytes"].get<int64_t>());
  }
}

// Each of two ranks has every second element: n ranges, and two coordinates.
TEST(RecordInProcess, ListsAtMost4096Ranges) {
  for (const int64_t n : {4094, 4096}) {
    const Json record =
        record_of(Mesh::parse("x=2"), nullptr, [&](Runtime& rt) {
          exp(zeros({n}, rt.mesh(),
                    fmt::format("S0({} h=2:h)", n / 2).c_str()));
        });
    ASSERT_EQ(record["dims"].size(), 1u);
    const Json& parts = record["dims"][0]["parts"];
    if (n == 4096) {
      EXPECT_TRUE(parts.is_null());
    } else {
      ASSERT_EQ(parts.size(), 2u);
      EXPECT_EQ(parts[1].size(), 2047u);
      EXPECT_EQ(parts[1][2046], (Json{4093, 4094}));
    }
  }
}

// Adam reads gradients, and reads and writes parameters and two states; for
// types of 16 bits also an f32 copy.
TEST(RecordInProcess, HasTheOptimizersKernels) {
  const Mesh mesh = Mesh::parse("dp=2");
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Json record =
        record_of(mesh, nullptr, [&](Runtime&) { train(mesh, 1, dtype); });
    std::vector<std::string> phases;
    int64_t elements = 0, kernels = 0;
    for (const Json& op : record["runs"][0]["operators"]) {
      const std::string phase = record["phases"][op["phase"].get<size_t>()];
      if (phases.empty() || phases.back() != phase) phases.push_back(phase);
      if (!op.contains("kernel")) continue;
      ++kernels;
      EXPECT_EQ(phase, "optimizer");
      EXPECT_EQ(op["kernel"], "adamw");
      EXPECT_GT(op["tensors"], 10);
      const int64_t size = size_of(dtype);
      elements = op["touches"][1].get<int64_t>() / size;
      EXPECT_EQ(op["touches"], Json({0, elements * size, elements * size,
                                     elements * (size == 2 ? 12 : 8), 0}));
    }
    EXPECT_EQ(kernels, 1);
    EXPECT_EQ(phases, (std::vector<std::string>{"forward", "backward", "clip",
                                                "optimizer"}));
    int64_t all = 0;
    for (const Json& op : record["runs"][0]["operators"])
      for (const Json& e : op.value("sends", Json::array()))
        all += record["events"][e.get<size_t>()]["op"] == "optimizer";
    EXPECT_GT(all, 0);  // gathers the parts that the other rank updates
  }
}

// A bound above the number of operators that a record keeps raises that number:
// otherwise the operators between the two would be missing from the page.
TEST(RecordInProcess, RefusesBeyondABoundAndKeepsAllBelow) {
  const Mesh mesh = Mesh::parse("dp=2");
  const auto calls = [&](int n) {
    return record_of(
        mesh,
        [](Record& r) {
          r.keep_first(1);
          r.refuse_beyond(3);
        },
        [&](Runtime&) {
          DistTensor x = zeros({4}, mesh);
          for (int i = 0; i < n; ++i) x = relu(x);
        });
  };
  EXPECT_EQ(calls(3)["runs"][0]["operators"].size(), 3u);
  EXPECT_NE(testing::error_of([&] {
              calls(4);
            }).find("this program runs more than 3 operators"),
            std::string::npos);
}

// The totals have all operators, and the first ones are listed as without a
// limit.
TEST(RecordInProcess, KeepsTheFirstOperators) {
  const Mesh mesh = Mesh::parse("dp=2,tp=2");
  const auto step = [&](Runtime&) { train(mesh, 0); };
  const Json all = record_of(mesh, nullptr, step);
  const Json first = record_of(
      mesh, [](Record& r) { r.keep_first(20); }, step);
  const Json &operators = all["runs"][0]["operators"],
             &kept = first["runs"][0]["operators"];
  ASSERT_EQ(kept.size(), 20u);
  EXPECT_EQ(first["runs"][0]["dropped"], operators.size() - 20);
  EXPECT_FALSE(all["runs"][0].contains("dropped"));
  EXPECT_EQ(first["totals"], all["totals"]);
  EXPECT_EQ(first["collectives"], all["collectives"]);
  size_t ended = 0;
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(kept[i]["memory"], operators[i]["memory"]);
    EXPECT_EQ(kept[i].value("makes", 0), operators[i].value("makes", 0));
    // An output whose last user was dropped is in use at the end.
    const size_t until = operators[i].value("until", operators.size());
    EXPECT_EQ(kept[i].value("until", operators.size()),
              until < 20 ? until : operators.size());
    ended += until < 20;
  }
  EXPECT_GT(ended, 1u);
}

}  // namespace
}  // namespace dtensor
