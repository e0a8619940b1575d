// The record of a dry run, beside a run of the same on threads.
#include "dtensor/program/record.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/nn/models.h"
#include "dtensor/nn/optimizer.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

using Json = Record::Json;

// A training step with clipping on a mesh.
void train(const Mesh& mesh, int stage) {
  nn::ModelConfig config;
  config.layers = 2;
  config.hidden = 20;
  config.heads = 5;
  config.seq = 6;
  config.vocab = 31;
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
  options.recorder = record;
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

}  // namespace
}  // namespace dtensor
