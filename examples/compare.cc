#include "examples/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "dtensor/placement/error.h"
#include "dtensor/runtime/comm_table.h"
#include "dtensor/runtime/text_table.h"
#include "examples/bubble.h"
#include "examples/memory_report.h"
#include "examples/step_time.h"

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

// One of them.
Strategy parse_strategy(std::string_view text, const TrainConfig& base,
                        int64_t ranks) {
  Strategy s{std::string(text), {}, base};
  const auto unknown = [&](std::string_view word) {
    fail(
        "--compare",
        "'{}' of '{}' is no strategy; write dp, zero1, zero2, zero3, tp, tp=N, "
        "sp, cp, cp=N, ep, ep=N, pp, pp=N, micro-batches=N, recompute or "
        "accumulate=N, joined by + and with commas between strategies",
        word, text);
  };
  int64_t tp = 1, cp = 1, ep = 1, pp = 1;
  for (const std::string_view word : split(text, '+')) {
    const size_t at = word.find('=');
    const std::string_view key = word.substr(0, at);
    const bool has_value = at != word.npos;
    const auto value = has_value ? number(word.substr(at + 1)) : std::nullopt;
    if (has_value && !value) unknown(word);
    if (key == "tp")
      tp = value.value_or(ranks);
    else if (key == "cp")
      cp = value.value_or(ranks);
    else if (key == "ep")
      ep = value.value_or(ranks);
    else if (key == "pp")
      pp = value.value_or(ranks);
    else if (key == "micro-batches" && value)
      s.config.micro_batches = *value;
    else if (key == "accumulate" && value)
      s.config.accumulate = *value;
    else if (has_value)
      unknown(word);
    else if (word.starts_with("zero") && word.size() == 5 && word[4] >= '0' &&
             word[4] <= '3')
      s.config.zero = word[4] - '0';
    else if (word == "sp")
      s.config.sequence_parallel = true;
    else if (word == "recompute")
      s.config.recompute = "block";
    else if (word != "dp")
      unknown(word);
  }
  int64_t dp = ranks;
  for (const int64_t size : {tp, cp, ep, pp}) {
    DT_CHECK(dp % size == 0, "--compare",
             "'{}' wants groups of {} of {} ranks; write a divisor of {}", text,
             size, dp, dp);
    dp /= size;
  }
  std::vector<MeshAxis> axes;
  if (pp > 1) axes.push_back({"pp", pp});
  if (dp > 1 || dp == ranks) axes.push_back({"dp", dp});
  if (ep > 1) axes.push_back({"ep", ep});
  if (cp > 1) axes.push_back({"cp", cp});
  if (tp > 1) axes.push_back({"tp", tp});
  s.mesh = Mesh(axes);
  s.config.validate(s.mesh);
  return s;
}

}  // namespace

std::vector<Strategy> parse_strategies(std::string_view text,
                                       const TrainConfig& base, int64_t ranks) {
  std::vector<Strategy> all;
  for (const std::string_view one : split(text, ','))
    all.push_back(parse_strategy(one, base, ranks));
  return all;
}

std::vector<Compared> compare(
    const std::vector<Strategy>& strategies,
    const std::function<CostTable(const Mesh&)>& cost_of) {
  std::vector<Compared> all;
  for (const Strategy& s : strategies) {
    RunOptions options;
    options.world = s.mesh.num_ranks();
    options.mesh = s.mesh.to_string();
    options.cost = cost_of(s.mesh);
    Compared c{s, {}};
    std::map<int64_t, int64_t> work;  // by rank: one at each place along pp
    c.prediction = predict(s.config, options, [&](const OpCall& call) {
      work[RankContext::current().world_rank] += call.decision.work_ps;
    });
    if (s.mesh.has_axis("pp"))
      c.bubble = bubble_report(s.config, s.mesh, {}).simulated;
    for (const auto& [rank, ps] : work) c.work_ps = std::max(c.work_ps, ps);
    c.bytes = most_received(c.prediction.events);
    c.communication_ps = communication_ps(c.prediction.events, options.cost);
    all.push_back(std::move(c));
  }
  return all;
}

std::string compare_table(const std::vector<Compared>& all) {
  TextTable table(
      "llrrrrrrrrr",
      {"strategy", "mesh", "bytes received", "parameters", "gradients", "state",
       "activations", "gathered", "peak", "work ms", "sending ms"});
  for (const Compared& c : all) {
    const MemoryUse& m = c.prediction.memory;
    const auto kind = [&](MemoryKind k) {
      return grouped(m.kinds[static_cast<size_t>(k)]);
    };
    table.add(
        {c.strategy.name, c.strategy.mesh.to_string(), grouped(c.bytes),
         kind(MemoryKind::kParameters), kind(MemoryKind::kGradients),
         kind(MemoryKind::kState), kind(MemoryKind::kActivations),
         kind(MemoryKind::kGathered), grouped(m.peak),
         fmt::format("{:.2f}", static_cast<double>(c.work_ps) / 1e9),
         fmt::format("{:.2f}", static_cast<double>(c.communication_ps) / 1e9)});
  }
  return table.to_string();
}

nlohmann::ordered_json compare_json(const std::vector<Compared>& all) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Compared& c : all)
    list.push_back(
        {{"strategy", c.strategy.name},
         {"mesh", c.strategy.mesh.to_string()},
         {"bytes", c.bytes},
         {"memory", memory_json(c.prediction.memory, nullptr)},
         {"work_us", static_cast<double>(c.work_ps) / 1e6},
         {"bubble", c.bubble},
         {"communication_us", static_cast<double>(c.communication_ps) / 1e6}});
  return {{"strategies", std::move(list)}};
}

}  // namespace dtensor::examples
