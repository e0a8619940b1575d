// SPDX-License-Identifier: Apache-2.0
// Compares how long the ranks of a pipeline wait with the formula. The stages
// sleep instead of computing, so that ranks that share a core do not wait for
// the core.
//
//   bazel run -c opt //tests/bench:pipeline_bench -- --help
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/nn/pipeline.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "dtensor/text_table.h"
#include "tests/command_line.h"

namespace dtensor {
namespace {

void rest(const Mesh& mesh, double seconds) {
  if (RankContext::current().coordinate_or_null(mesh))
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// Passes x on. The gradients of x and of the weights take `seconds` each.
class Sleep final : public Node {
 public:
  Sleep(const DistTensor& x, const std::vector<DistTensor>& weights,
        double seconds)
      : seconds_(seconds) {
    inputs.push_back(edge_to(x));
    for (const DistTensor& w : weights) {
      inputs.push_back(edge_to(w));
      weights_.push_back(w.spec());
    }
  }
  void backward(std::span<const DistTensor> cotangents,
                std::span<const bool> needed,
                std::span<DistTensor> gradients) override {
    const Mesh& mesh = weights_[0]->mesh();
    if (needed[0]) {
      rest(mesh, seconds_);
      gradients[0] = cotangents[0];
    }
    if (needed[1]) rest(mesh, seconds_);
    for (size_t i = 1; i < needed.size(); ++i)
      if (needed[i]) gradients[i] = zeros(weights_[i - 1]->shape(), mesh);
  }
  std::string_view name() const override { return "sleep"; }

 private:
  const double seconds_;
  std::vector<SpecRef> weights_;
};

DistTensor sleeping(const DistTensor& x, const std::vector<DistTensor>& weights,
                    double seconds) {
  rest(x.mesh(), seconds);
  DistTensor y = x.detach();
  if (!grad_enabled()) return y;
  y.impl()->node = std::make_shared<Sleep>(x, weights, seconds);
  y.impl()->requires_grad = true;
  return y;
}

// The idle share of the position with the longest span.
double measured(nn::Pipeline& pipe, const std::vector<DistTensor>& inputs) {
  const std::vector<double> shares(inputs.size(), 1);
  return nn::longest(nn::pipeline_times(pipe.run(inputs, shares).tasks))
      .bubble();
}

// False if the measured share of a schedule is off by more than `tolerance`:
// relative to the formula or, if that is 0, to the step.
bool compare(int64_t positions, int64_t micros, double milliseconds,
             double tolerance) {
  TextTable table("lrrrr",
                  {"schedule", "formula", "simulated", "measured", "ratio"});
  bool good = true;
  run(positions, [&](Runtime& rt) {
    for (const std::string& name : nn::schedule_names()) {
      const bool interleaved = name == "interleaved";
      if (interleaved && micros < positions) {
        if (rt.rank() == 0)
          fmt::print("interleaved: none, of fewer micro-batches than ranks\n");
        continue;
      }
      const int64_t chunks = interleaved ? 2 : 1;
      const double seconds = milliseconds / 1e3 / static_cast<double>(chunks);
      const nn::PipelineSchedule s =
          nn::make_schedule(name, positions, micros, chunks);
      std::vector<nn::PipelineStage> stages;
      for (int64_t i = 0; i < s.stages(); ++i) {
        const Mesh mesh({{"dp", 1}}, {s.position(i)});
        std::vector<DistTensor> w(3);
        for (DistTensor& leaf : w) leaf = ones({2}, mesh).as_parameter();
        const bool last = i + 1 == s.stages();
        // A layer that takes no time has weights below this one, so that the
        // first stage also needs the gradient of its input.
        stages.push_back({mesh,
                          [=](const DistTensor& x, int64_t, auto) {
                            const DistTensor h = sleeping(x, {w[0], w[1]}, 0);
                            const DistTensor y = sleeping(h, {w[2]}, seconds);
                            return last ? sum(y) : y;
                          },
                          w});
      }
      const std::vector<DistTensor> inputs(static_cast<size_t>(micros),
                                           ones({2}, stages[0].mesh));
      nn::Pipeline pipe(s, stages);
      measured(pipe, inputs);  // makes the plans
      const double found = measured(pipe, inputs);
      if (rt.rank() != 0) continue;
      const double formula = bubble_formula(s).value();
      const double off = formula > 0 ? found / formula - 1 : found;
      good &= std::abs(off) <= tolerance;
      table.add({name, fmt::format("{:.4f}", formula),
                 fmt::format("{:.4f}", simulate(s).bubble()),
                 fmt::format("{:.4f}", found),
                 formula > 0 ? fmt::format("{:.3f}", found / formula) : ""});
    }
  });
  fmt::print("{}", table.to_string());
  return good;
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  dtensor::Flags flags;
  int64_t positions = 4, micros = 8;
  double milliseconds = 20, tolerance = 0.03;
  flags.add("--stages", &positions, "ranks", 1, 64);
  flags.add("--micro", &micros, "micro-batches", 1, 999);
  flags.add("--ms", &milliseconds, "that each task of a rank takes", 0.1, 1e4);
  flags.add("--tolerance", &tolerance,
            "how far from the formula is an error (exit code 1)", 0, 1e6);
  return parse_and_run(
      flags, "Idle time of pipelines whose stages sleep, and the formulas.",
      argc, argv, [&] {
        return dtensor::compare(positions, micros, milliseconds, tolerance) ? 0
                                                                            : 1;
      });
}
