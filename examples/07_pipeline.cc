// SPDX-License-Identifier: Apache-2.0
// Runs a pipeline with one layer on each rank, and compares the bytes sent and
// the idle time with formulas. Each layer sleeps for a fixed time, so that the
// idle time can be measured even if the ranks share a core.
//
//   bazel run //examples:07_pipeline -- --mesh pp=4
#include <chrono>
#include <thread>

#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

constexpr int64_t kRows = 32, kWidth = 64, kMicros = 8;
constexpr std::chrono::milliseconds kTakes(10);

void example(Runtime& rt) {
  const int64_t p = rt.mesh().num_ranks();
  std::vector<nn::PipelineStage> stages;
  for (int64_t s = 0; s < p; ++s) {
    const Mesh own({{"dp", 1}}, {s});
    const DistTensor w = randn({kWidth, kWidth}, own, {}, DType::kF32,
                               {7, static_cast<uint64_t>(s)}, 0, 0.1)
                             .as_parameter();
    const auto layer = [=](const DistTensor& x, int64_t, auto) {
      if (x.here()) std::this_thread::sleep_for(kTakes);
      const DistTensor y = gelu(matmul(x, w));
      return s + 1 < p ? y : mean(square(y));
    };
    stages.push_back({own, layer, {w}});
  }
  const std::vector<DistTensor> inputs(kMicros,
                                       randn({kRows, kWidth}, stages[0].mesh));
  const std::vector<double> shares(kMicros, 1.0 / kMicros);
  for (const char* name : {"gpipe", "1f1b"}) {
    const nn::PipelineSchedule schedule = nn::make_schedule(name, p, kMicros);
    nn::Pipeline pipeline(schedule, stages);
    pipeline.run(inputs, shares);  // warm-up: makes the plans
    const CommRecord record;
    const auto tasks = pipeline.run(inputs, shares).tasks;
    int64_t mine = 0, bytes = 0;
    for (const CommEvent& e : record.events()) mine += e.counted;
    for (int64_t n : all_gather(name, mine)) bytes += n;
    const double idle = nn::longest(nn::pipeline_times(tasks)).bubble();
    // The batch crosses p - 1 stage boundaries, forward and backward.
    const int64_t formula = 2 * (p - 1) * kMicros * kRows * kWidth * 4;
    if (rt.rank() == 0)
      fmt::print("{}: {} bytes sent, formula {}; idle {:.3f}, formula {:.3f}\n",
                 name, bytes, formula, idle, bubble_formula(schedule).value());
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run(
      argc, argv, example,
      {.about = "A pipeline, and its costs.", .mesh = "pp=4", .axes = {"pp"}});
}
