// SPDX-License-Identifier: Apache-2.0
// Compares the training steps of ZeRO's stages with those of stage 1. They take
// turns in one run.
//
//   bazel run -c opt //tests/bench:zero_bench -- --help
#include <fmt/format.h>

#include <chrono>
#include <climits>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/nn/language_model.h"
#include "dtensor/nn/trainer.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/scoped.h"
#include "dtensor/text_table.h"
#include "programs/train_config.h"
#include "tests/bench/rounds.h"
#include "tests/command_line.h"

namespace dtensor {
namespace {

using Clock = std::chrono::steady_clock;

struct Stage {
  std::string name;
  examples::TrainConfig config;
  std::unique_ptr<nn::LanguageModel> model = nullptr;
  std::unique_ptr<nn::Trainer> trainer = nullptr;
  std::vector<double> exposed = {};
};

// Returns the seconds of a step. A step before learns the order of the gathers.
double time_steps(Stage& s, const examples::TextData& text) {
  constexpr int kSteps = 3;
  RankContext& context = RankContext::current();
  const nn::Batches batches = s.config.batches(text);
  s.trainer->step(batches);
  const Scoped<bool> record(context.record, true);
  const auto start = Clock::now();
  const int64_t exposed = context.exposed_ns;
  for (int i = 0; i < kSteps; ++i) s.trainer->step(batches);
  const std::chrono::duration<double> took = Clock::now() - start;
  context.events.clear();
  s.exposed.push_back(static_cast<double>(context.exposed_ns - exposed) / 1e9 /
                      kSteps);
  return took.count() / kSteps;
}

void compare(int64_t ranks, int64_t rounds, int64_t batch) {
  const examples::TextData text = examples::TextData::licences();
  run(ranks, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"dp", ranks}});
    std::vector<Stage> stages;
    examples::TrainConfig base;
    base.batch = batch;
    base.steps = 1 << 20;
    for (const int64_t zero : {1, 0, 2, 3}) {
      examples::TrainConfig c = base;
      c.zero = zero;
      stages.push_back({fmt::format("zero {}", zero), c});
    }
    examples::TrainConfig none = base;
    none.zero = 3;
    none.gather_budget = 0;
    stages.push_back({"zero 3, nothing held or ahead", none});
    std::vector<Contender> contenders;
    for (Stage& s : stages) {
      s.config.validate(mesh);
      s.model = s.config.make_model(mesh);
      s.trainer = std::make_unique<nn::Trainer>(*s.model,
                                                s.config.trainer_options(text));
      contenders.push_back({s.name, [&] {
                              s.trainer->set_gather_budget();
                              return time_steps(s, text);
                            }});
    }
    const auto times = take_turns(
        rt.context().communicator(mesh, mesh.all_axes()), contenders, rounds);
    if (rt.rank() != 0) return;
    TextTable table("lrrrr", {"stage", "median ms a step", "/ zero 1",
                              "fastest / its", "exposed ms"});
    for (size_t i = 0; i < stages.size(); ++i) {
      std::sort(stages[i].exposed.begin(), stages[i].exposed.end());
      table.add({stages[i].name, fmt::format("{:.1f}", 1e3 * median(times[i])),
                 fmt::format("{:.3f}", median(times[i]) / median(times[0])),
                 fmt::format("{:.3f}", times[i][0] / times[0][0]),
                 fmt::format("{:.1f}", 1e3 * median(stages[i].exposed))});
    }
    std::fputs(table.to_string().c_str(), stdout);
  });
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  dtensor::Flags flags;
  int64_t rounds = 9, ranks = 2, batch = 8;
  flags.add("--rounds", &rounds, "how often each stage runs", 1, INT_MAX);
  flags.add("--ranks", &ranks, "of the axis dp", 1, INT_MAX);
  flags.add("--batch", &batch, "windows of a step", 1, INT64_MAX);
  return parse_and_run(flags,
                       "Steps of //:train's default model under ZeRO's stages.",
                       argc, argv, [&] {
                         dtensor::compare(ranks, rounds, batch);
                         return 0;
                       });
}
