// SPDX-License-Identifier: Apache-2.0
// Compares the communication and memory of strategies for training one model.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/cost.h"
#include "dtensor/placement/mesh.h"
#include "dtensor/program/predicted.h"
#include "programs/train_config.h"

namespace dtensor::examples {

struct Strategy {
  std::string name;  // as the user wrote it
  Mesh mesh;
  TrainConfig config;
  // Why the model cannot be trained with this strategy on these ranks; "" if it
  // can.
  std::string refused = {};
};

// Parses "dp,zero1,zero3+tp=2+accumulate=4": strategies separated by commas.
// Each is a list of words joined by "+", with each word at most once: dp; zero0
// to zero3; tp, cp, ep, fsdp and pp (over all ranks; tp=N is over N of them);
// sp (sequence parallelism over tp), micro-batches=N, recompute (blocks) or
// offload (activations), offload-state, and accumulate=N. The axis dp, which
// splits the batch, has as many ranks as the axes tp, cp, ep, fsdp and pp leave
// over.
//
// `base` gives all other settings. Some of them need an axis: schedule,
// micro-batches and chunks need pp, sequence parallelism needs tp, and context
// and its memory need cp. Each applies to the strategies with its axis. Throws
// Error for a setting that is not the default if no strategy has its axis; and
// for an unknown or repeated word, with the strategy and the word.
std::vector<Strategy> parse_strategies(std::string_view text,
                                       const TrainConfig& base, int64_t ranks);

struct Compared {
  Strategy strategy;
  nn::Prediction prediction;
  Predicted step = {};
  double bubble = 0;  // the simulated bubble of a pipeline (bubble.h); else 0
};
// Dry-runs one step of each strategy, with the prices and the recorder that
// `options_of` returns for it. For a strategy that cannot be trained, sets only
// Strategy::refused. Throws Error if all strategies are refused.
std::vector<Compared> compare(
    const std::vector<Strategy>&,
    const std::function<RunOptions(const Strategy&)>& options_of);

std::string compare_table(const std::vector<Compared>&);
nlohmann::ordered_json compare_json(const std::vector<Compared>&);
// An SVG file's content: for each strategy, bars of the memory that a rank
// holds, by kind, and of the bytes that a rank receives.
std::string compare_svg(const std::vector<Compared>&);

}  // namespace dtensor::examples
