// What strategies of training one model on so many ranks would send and hold.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/cost.h"
#include "dtensor/placement/mesh.h"
#include "examples/trainer.h"

namespace dtensor::examples {

struct Strategy {
  std::string name;  // as it was asked for
  Mesh mesh;
  TrainConfig config;
  // Why the model does not train like this on these ranks; "" if it does.
  std::string refused = {};
};

// Reads "dp,zero1,zero3+tp=2+accumulate=4": strategies between commas, each of
// dp, zero1, zero2, zero3, tp, cp, ep and pp (over all ranks, or tp=N of them),
// sp (sequence parallelism over tp), micro-batches=N, recompute (blocks),
// accumulate=N, joined by "+", each once. What ranks tp, cp, ep and pp leave
// split the batch. `base` says the rest; what it says of pp, tp or cp alone
// (schedule, micro-batches, chunks; sequence parallelism; context) is for the
// strategies with that axis, and one has to have it. Throws Error that names
// the strategy and the word that is none.
std::vector<Strategy> parse_strategies(std::string_view text,
                                       const TrainConfig& base, int64_t ranks);

struct Compared {
  Strategy strategy;
  Prediction prediction;
  // Each of the rank with the most of it, in a step:
  int64_t bytes = 0;             // received
  int64_t work_ps = 0;           // of its operators, by their prices
  int64_t communication_ps = 0;  // as if nothing hid it
  double bubble = 0;             // of a pipeline, simulated: see bubble.h
};
// From a dry run of a step of each, under the prices that `cost_of` gives. A
// strategy that does not fit has no more than `refused`; throws Error when none
// of them fits.
std::vector<Compared> compare(
    const std::vector<Strategy>&,
    const std::function<CostTable(const Mesh&)>& cost_of);

std::string compare_table(const std::vector<Compared>&);
nlohmann::ordered_json compare_json(const std::vector<Compared>&);
// Bars of what a rank holds, by kind, and receives: an SVG file's content.
std::string compare_svg(const std::vector<Compared>&);

}  // namespace dtensor::examples
