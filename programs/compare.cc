// SPDX-License-Identifier: Apache-2.0
#include "programs/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "dtensor/comm_table.h"
#include "dtensor/placement/error.h"
#include "dtensor/text_table.h"
#include "programs/bubble.h"
#include "programs/memory_report.h"
#include "programs/step_time.h"

namespace dtensor::examples {
namespace {

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(at, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == text.npos) return parts;
    begin = end + 1;
  }
}

std::optional<int64_t> number(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1)
    return std::nullopt;
  return n;
}

// The words of a strategy, each with its number if it has one.
using Words = std::map<std::string_view, std::optional<int64_t>>;

Words parse_words(std::string_view text) {
  Words words;
  std::map<std::string_view, std::string_view> whole;  // as the user wrote them
  for (const std::string_view word : split(text, '+')) {
    const size_t at = word.find('=');
    std::string_view key = word.substr(0, at);
    const bool has_value = at != word.npos;
    auto value = has_value ? number(word.substr(at + 1)) : std::nullopt;
    bool known = !has_value || value;
    if (word.size() == 5 && word.starts_with("zero") && word[4] >= '0' &&
        word[4] <= '3') {
      key = "zero";
      value = word[4] - '0';
    } else if (key == "micro-batches" || key == "accumulate") {
      known = value.has_value();
    } else if (key == "dp" || key == "sp" || key == "recompute" ||
               key == "offload" || key == "offload-state") {
      known = !has_value;
    } else {
      known &= std::ranges::any_of(nn::model_axes(), [&](const auto& a) {
        return a.name == key && a.splits != nn::kSplitsBatch;
      });
    }
    DT_CHECK(
        known, "--compare",
        "'{}' in '{}' is not a strategy; write dp, zero1, zero2, zero3, tp, "
        "tp=N, sp, cp, cp=N, ep, ep=N, fsdp, fsdp=N, pp, pp=N, "
        "micro-batches=N, accumulate=N, recompute, offload or offload-state, "
        "joined by + and with commas between strategies",
        word, text);
    const auto [before, first] = whole.try_emplace(key, word);
    DT_CHECK(first, "--compare",
             "'{}' in '{}' comes after '{}'; write only one of them", word,
             text, before->second);
    words[key] = value;
  }
  DT_CHECK(!words.contains("recompute") || !words.contains("offload"),
           "--compare",
           "'{}' recomputes the activations of each block, or offloads them; "
           "write one of the two words",
           text);
  return words;
}

Mesh mesh_of(const Words& words, int64_t ranks) {
  std::vector<MeshAxis> axes;
  int64_t dp = ranks;
  for (const nn::ModelAxis& a : nn::model_axes()) {
    const auto found = words.find(a.name);
    if (found == words.end() || a.name == "dp") continue;
    const int64_t size = found->second.value_or(ranks);
    const bool first = dp == ranks;
    DT_CHECK(dp % size == 0, "--compare",
             "{0}={1} does not divide {2}, the number of ranks{3}; write {0}=N "
             "with a divisor N of {2}{4}",
             a.name, size, dp, first ? "" : " that the other axes leave",
             first ? "" : ", or smaller numbers for the other axes");
    dp /= size;
    if (size > 1) axes.push_back({std::string(a.name), size});
  }
  // The remaining ranks split the batch. As in model_axes(), dp comes after pp.
  if (dp > 1 || dp == ranks)
    axes.insert(axes.begin() + (!axes.empty() && axes[0].name == "pp"),
                {"dp", dp});
  return Mesh(axes);
}

// `base` with the words of the strategy, and without the values of flags for
// axes that the mesh does not have.
TrainConfig config_of(TrainConfig base, const Words& words, const Mesh& mesh) {
  for (const AxisFlag& f : axis_flags())
    if (nn::axis_that(f.splits, mesh) < 0) f.reset(base);
  for (const auto& [key, value] : words) {
    if (key == "micro-batches") base.micro_batches = *value;
    if (key == "accumulate") base.accumulate = *value;
    if (key == "zero") base.zero = *value;
    if (key == "sp") base.sequence_parallel = true;
    if (key == "recompute") base.recompute = "block";
    if (key == "offload") base.recompute = "offload";
    if (key == "offload-state") base.offload_state = true;
  }
  return base;
}

// Calls fn(). If it throws Error, notes that as the reason to refuse the
// strategy. Does nothing for a strategy that has already been refused.
template <class Fn>
void trying(Strategy& s, Fn&& fn) {
  if (!s.refused.empty()) return;
  try {
    fn();
  } catch (const Error& e) {
    s.refused = e.what();
  }
}

// Throws Error for a flag that would have no effect, as no strategy has its
// axis. A strategy whose mesh could not be made counts as one that has the
// axis.
void check_flags_of_axes(std::string_view text, const TrainConfig& base,
                         const std::vector<Strategy>& all) {
  for (const AxisFlag& f : axis_flags())
    DT_CHECK(!f.given(base) || std::any_of(all.begin(), all.end(),
                                           [&](const Strategy& s) {
                                             return s.mesh == Mesh() ||
                                                    nn::axis_that(f.splits,
                                                                  s.mesh) >= 0;
                                           }),
             f.flag,
             "no strategy in '{0}' has an axis {1}; add {1}=2 or the like to "
             "one, or leave the flag out",
             text, axis_name_of(f.splits));
}

}  // namespace

std::vector<Strategy> parse_strategies(std::string_view text,
                                       const TrainConfig& base, int64_t ranks) {
  std::vector<Strategy> all;
  for (const std::string_view one : split(text, ',')) {
    const Words words = parse_words(one);
    Strategy s{std::string(one), {}, base};
    trying(s, [&] {
      s.mesh = mesh_of(words, ranks);
      s.config = config_of(base, words, s.mesh);
      s.config.validate(s.mesh);
    });
    all.push_back(std::move(s));
  }
  check_flags_of_axes(text, base, all);
  return all;
}

std::vector<Compared> compare(
    const std::vector<Strategy>& strategies,
    const std::function<RunOptions(const Strategy&)>& options_of) {
  std::vector<Compared> all;
  for (const Strategy& s : strategies) {
    Compared& c = all.emplace_back(Compared{s, {}});
    RunOptions options;
    trying(c.strategy, [&] {
      options = options_of(s);
      options.world = s.mesh.num_ranks();
      options.mesh = s.mesh.to_string();
      c.strategy.config.fit_memory(options);
      c.prediction = predict(c.strategy.config, options);
      if (nn::axis_that(nn::kSplitsStages, s.mesh) >= 0)
        c.bubble = bubble_report(s.config, s.mesh).simulated;
    });
    if (!c.strategy.refused.empty()) continue;
    c.step = predicted(c.prediction, options.cost);
  }
  const bool none = std::all_of(all.begin(), all.end(), [](const Compared& c) {
    return !c.strategy.refused.empty();
  });
  DT_CHECK(!none, "--compare",
           "all strategies are refused (in a strategy, write axes and flags as "
           "words, like tp=2+sp); the first, '{}': {}",
           all[0].strategy.name, all[0].strategy.refused);
  return all;
}

std::string compare_table(const std::vector<Compared>& all) {
  const std::vector<std::string> titles = {
      "strategy",  "mesh",    "bytes received", "parameters",
      "gradients", "state",   "activations",    "gathered",
      "peak",      "work ms", "sending ms",     "bubble",
      ""};
  TextTable table("llrrrrrrrrrrl", titles);
  for (const Compared& c : all) {
    if (!c.strategy.refused.empty()) {
      std::vector<std::string> row(titles.size());
      row.front() = c.strategy.name;
      row.back() = c.strategy.refused;
      table.add(std::move(row));
      continue;
    }
    const nn::MemoryUse& m = c.prediction.memory;
    const auto kind = [&](MemoryKind k) {
      return grouped(m.kinds[static_cast<size_t>(k)]);
    };
    table.add({c.strategy.name, c.strategy.mesh.to_string(),
               grouped(c.step.bytes), kind(MemoryKind::kParameters),
               kind(MemoryKind::kGradients), kind(MemoryKind::kState),
               kind(MemoryKind::kActivations), kind(MemoryKind::kGathered),
               grouped(m.peak),
               fmt::format("{:.2f}", static_cast<double>(c.step.work_ps) / 1e9),
               fmt::format("{:.2f}",
                           static_cast<double>(c.step.communication_ps) / 1e9),
               nn::axis_that(nn::kSplitsStages, c.strategy.mesh) >= 0
                   ? fmt::format("{:.1f} %", 100 * c.bubble)
                   : "none",
               ""});
  }
  return table.to_string();
}

nlohmann::ordered_json compare_json(const std::vector<Compared>& all) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Compared& c : all) {
    nlohmann::ordered_json& row = list.emplace_back();
    row["strategy"] = c.strategy.name;
    if (!c.strategy.refused.empty()) {
      row["refused"] = c.strategy.refused;
      continue;
    }
    row["mesh"] = c.strategy.mesh.to_string();
    row["bytes"] = c.step.bytes;
    row["memory"] = memory_json(c.prediction.memory, nullptr);
    row["work_us"] = static_cast<double>(c.step.work_ps) / 1e6;
    row["bubble"] = c.bubble;
    row["communication_us"] =
        static_cast<double>(c.step.communication_ps) / 1e6;
  }
  return {{"strategies", std::move(list)}};
}

}  // namespace dtensor::examples
