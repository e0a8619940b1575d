// SPDX-License-Identifier: Apache-2.0
// Training steps on ranks that only send and receive bytes: the results have
// the same bits as on thread ranks, and messages carry exactly the predicted
// bytes.
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/comm_table.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/dtensor/message_passing.h"

namespace dtensor {
namespace {

nn::ModelConfig tiny(const std::string& name) {
  nn::ModelConfig c;
  c.name = name;
  c.layers = 2;
  c.hidden = 24;
  c.heads = 4;
  c.seq = 6;
  c.vocab = 30;
  return c;
}

struct Outcome {
  std::vector<double> values;  // the loss, then every parameter
  std::vector<CommEvent> events;
};

Outcome train(const std::string& model_name, const std::string& mesh_text,
              BackendFactory backend, int stage = 0) {
  Outcome result;
  std::mutex mutex;
  RunOptions options;
  const Mesh mesh = Mesh::parse(mesh_text);
  options.world = mesh.num_ranks();
  options.backend = std::move(backend);
  std::vector<std::vector<CommEvent>> events(
      static_cast<size_t>(options.world));
  run(options, [&](Runtime& rt) {
    const nn::ModelConfig config = tiny(model_name);
    auto model = nn::make_model(
        config, mesh, nn::zero(nn::default_plan(config, mesh), stage), 1);
    nn::AdamW optimizer(model->parameters(), {});
    RankContext& ctx = rt.context();
    ctx.record = true;
    const DistTensor tokens =
        randint(0, config.vocab, {5, config.seq}, mesh,
                nn::batch_placements(mesh), DType::kI64, {2, 0});
    ctx.gather_budget = 4096;
    // The second step gathers ahead.
    DistTensor loss;
    for (int i = 0; i < (stage ? 2 : 1); ++i) {
      loss = model->loss(tokens, tokens);
      optimizer.step(
          grad(loss, model->parameters(),
               {.release_graph = true, .bucket_bytes = stage > 1 ? 4096 : 0}),
          {.lr = 0.01});
    }
    ctx.record = false;
    std::vector<double> values{loss.full().at(0)};
    for (const DistTensor& p : model->parameters()) {
      const std::vector<double> whole = p.full().to_doubles();
      values.insert(values.end(), whole.begin(), whole.end());
    }
    std::lock_guard lock(mutex);
    events[static_cast<size_t>(rt.rank())] = ctx.events;
    if (rt.rank() == 0) result.values = std::move(values);
  });
  result.events = merge_events(events);
  return result;
}

TEST(MessagesTraining, StepsAreTheSame) {
  for (const char* model : {"gpt", "llama"})
    for (const auto& [mesh, stage] : std::vector<std::pair<const char*, int>>{
             {"dp=2,tp=2", 0}, {"tp=3", 0}, {"dp=3", 1}, {"dp=2,tp=2", 3}}) {
      const Outcome threads = train(model, mesh, {}, stage);
      const Outcome messages =
          train(model, mesh, testing::message_passing_backend, stage);
      EXPECT_EQ(messages.values, threads.values)
          << model << " on " << mesh << ", stage " << stage;
      ASSERT_EQ(messages.events.size(), threads.events.size());
      EXPECT_FALSE(messages.events.empty());
      for (size_t i = 0; i < messages.events.size(); ++i) {
        const CommEvent &m = messages.events[i], &t = threads.events[i];
        EXPECT_EQ(m.predicted, t.predicted);
        EXPECT_EQ(m.predicted, m.counted) << name(m.kind) << " for " << m.op
                                          << " of " << model << " on " << mesh;
        EXPECT_EQ(t.counted, m.counted);
      }
    }
}

}  // namespace
}  // namespace dtensor
