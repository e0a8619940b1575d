// SPDX-License-Identifier: Apache-2.0
#include "programs/report/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "dtensor/placement/step_schedule.h"
#include "dtensor/text_table.h"

namespace dtensor::report {
namespace {

using Json = nlohmann::ordered_json;

// Returns PlanReport::ranks.
std::vector<int64_t> all_ranks(const Spec* from, const Spec* to) {
  std::vector<int64_t> ranks;
  if (from->mesh().num_ranks() + to->mesh().num_ranks() > kMostListedRanks)
    return ranks;
  for (const Mesh& mesh : {from->mesh(), to->mesh()})
    for (int64_t r = 0; r < mesh.num_ranks(); ++r)
      ranks.push_back(mesh.world_rank(r));
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// The bytes that rank `group[self]` receives from each other member of the
// group, and those that it keeps itself.
std::vector<int64_t> received(const Step& step,
                              const std::vector<int64_t>& group, size_t self) {
  const int64_t item = size_of(step.from->dtype());
  std::vector<int64_t> bytes(group.size(), 0);
  if (step.kind == StepKind::kAllReduce) {
    // Each member reduces one chunk. This rank receives the others' summands of
    // its own chunk, and then their reduced chunks.
    const Mesh& mesh = step.from->mesh();
    const Coord at = mesh.coordinate(mesh.mesh_rank_of(group[self]));
    const int64_t n = numel(step.from->local_shape(at));
    const auto p = static_cast<int64_t>(group.size());
    const auto chunk = [&](size_t m) {
      const auto i = static_cast<int64_t>(m);
      return ((i + 1) * n / p - i * n / p) * item;
    };
    for (size_t m = 0; m < group.size(); ++m)
      bytes[m] = chunk(m) + (m == self ? 0 : chunk(self));
    return bytes;
  }
  for (const Piece& piece : schedule(step, group[self]).pieces)
    for (int m : piece.members)
      bytes[static_cast<size_t>(m)] += volume(piece.region) * item;
  return bytes;
}

std::vector<Flow> step_flows(const Step& step,
                             const std::vector<int64_t>& ranks) {
  std::vector<Flow> flows;
  if (!sends(step.kind)) return flows;
  for (int64_t rank : ranks) {
    const std::vector<int64_t> group = members(step, rank);
    const auto self = std::find(group.begin(), group.end(), rank);
    if (self == group.end()) continue;
    const std::vector<int64_t> bytes =
        received(step, group, static_cast<size_t>(self - group.begin()));
    for (size_t m = 0; m < group.size(); ++m)
      if (bytes[m] > 0) flows.push_back({group[m], rank, bytes[m]});
  }
  return flows;
}

int64_t most_sent(const std::vector<Flow>& flows) {
  std::map<int64_t, int64_t> sent;
  int64_t most = 0;
  for (const Flow& f : flows)
    if (f.from != f.to) most = std::max(most, sent[f.from] += f.bytes);
  return most;
}

double microseconds(int64_t ps) { return static_cast<double>(ps) / 1e6; }

// The median time in us of up to 1001 calls of plan(), the last of which begins
// within a tenth of a second.
double planning_time(const Spec* from, const Spec* to, const CostTable& cost) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kMost = 1001;
  const auto end = Clock::now() + std::chrono::milliseconds(100);
  std::vector<double> times;
  while (times.empty() || (times.size() < kMost && Clock::now() < end)) {
    const auto start = Clock::now();
    plan(from, to, cost);
    times.push_back(
        std::chrono::duration<double, std::micro>(Clock::now() - start)
            .count());
  }
  const auto middle =
      times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// The prices of the kinds of steps that send something, each once. If no step
// does, the prices of the whole table.
std::string prices_of(const Plan& plan, const CostTable& cost) {
  std::vector<std::string> all;
  for (const Step& s : plan.steps) {
    if (!sends(s.kind)) continue;
    const AxisMask axes = s.axes ? s.axes : s.from->mesh().all_axes();
    const LinkCost link = cost.link(s.kind, axes);
    const std::string text =
        fmt::format("alpha {:g} us, {:g} GB/s ({} over {})",
                    microseconds(link.alpha_ps), 1000 / link.ps_per_byte,
                    name(s.kind), s.from->mesh().axes_to_string(axes));
    if (std::find(all.begin(), all.end(), text) == all.end())
      all.push_back(text);
  }
  if (all.empty()) return cost.to_string();
  return fmt::format("{}", fmt::join(all, "; "));
}

std::string axes_text(const Step& step) {
  if (!sends(step.kind)) return "";
  return step.axes ? step.from->mesh().axes_to_string(step.axes)
                   : "both meshes";
}

}  // namespace

PlanReport plan_report(const Spec* from, const Spec* to,
                       const CostTable& cost) {
  PlanReport r;
  r.from = from;
  r.to = to;
  r.plan = plan(from, to, cost);
  r.prices = prices_of(r.plan, cost);
  r.ranks = all_ranks(from, to);
  // A tensor that does not move is both source and destination, and is held
  // once.
  if (r.plan.steps.empty()) r.plan.peak_bytes = from->largest_part_bytes();
  r.lower_bound = lower_bound_bytes(from, to);
  r.planning_us = planning_time(from, to, cost);
  // A step between two meshes has no axes to look up prices for. Its time is
  // what the other steps leave of the plan's time.
  int64_t rest = r.plan.time_ps;
  for (const Step& s : r.plan.steps) {
    const LinkCost link = cost.link(s.kind, s.axes);
    r.step_ps.push_back(!sends(s.kind) || s.axes == 0
                            ? 0
                            : cost.collective_ps(s.kind, s.axes, s.bytes) +
                                  link.alpha_ps * (r.plan.chunks - 1));
    rest -= r.step_ps.back();
  }
  for (size_t i = 0; i < r.plan.steps.size(); ++i)
    if (sends(r.plan.steps[i].kind) && r.plan.steps[i].axes == 0)
      r.step_ps[i] = rest;
  r.has_flows = !r.ranks.empty() &&
                static_cast<int64_t>(r.ranks.size()) <= kMostFlowRanks;
  if (!r.has_flows) return r;
  r.bytes_sent = 0;
  for (const Step& s : r.plan.steps) {
    r.flows.push_back(step_flows(s, r.ranks));
    *r.bytes_sent += most_sent(r.flows.back());
  }
  return r;
}

std::string ratio_to_bound(const PlanReport& r) {
  if (!r.lower_bound) return "";
  if (r.plan.bytes == *r.lower_bound) return "exactly the lower bound";
  if (*r.lower_bound == 0) return "the lower bound is 0";
  return fmt::format(
      "{:.2f} times the lower bound",
      static_cast<double>(r.plan.bytes) / static_cast<double>(*r.lower_bound));
}

std::string to_text(const PlanReport& r) {
  const bool across = !(r.from->mesh() == r.to->mesh());
  std::string text =
      fmt::format("{} on {}\nto {}{}\n\n", r.from->to_string(),
                  r.from->mesh().to_string(), r.to->to_string(),
                  across ? " on " + r.to->mesh().to_string() : std::string());
  if (r.plan.steps.empty()) text += "nothing to do\n\n";
  if (!r.plan.steps.empty()) {
    TextTable steps("rllllrr",
                    {"step", "kind", "over", "from", "to", "bytes", "us"});
    for (size_t i = 0; i < r.plan.steps.size(); ++i) {
      const Step& s = r.plan.steps[i];
      steps.add({std::to_string(i + 1), std::string(name(s.kind)), axes_text(s),
                 s.from->layout().to_string(s.from->mesh()),
                 s.to->layout().to_string(s.to->mesh()), grouped(s.bytes),
                 fmt::format("{:.3f}", microseconds(r.step_ps[i]))});
    }
    text += steps.to_string() + "\n";
  }
  TextTable totals("lrl", {"largest of any rank", "", ""});
  totals.add({"bytes received", grouped(r.plan.bytes), ratio_to_bound(r)});
  totals.add({"bytes sent", r.bytes_sent ? grouped(*r.bytes_sent) : "?",
              r.bytes_sent ? "" : "not counted for so many ranks"});
  totals.add({"lower bound", r.lower_bound ? grouped(*r.lower_bound) : "none",
              r.lower_bound ? "bytes that a rank needs and does not hold"
                            : "not defined for partial values"});
  totals.add({"peak memory", grouped(r.plan.peak_bytes),
              fmt::format("source {} + destination {}",
                          grouped(r.from->largest_part_bytes()),
                          grouped(r.to->largest_part_bytes()))});
  text += totals.to_string();
  if (r.plan.chunks > 1)
    text += fmt::format("carried out on {} parts of the tensor, one by one\n",
                        r.plan.chunks);
  return text + fmt::format("time {:.3f} us at {}\nplanned in {:.2f} us\n",
                            microseconds(r.plan.time_ps), r.prices,
                            r.planning_us);
}

nlohmann::ordered_json to_json(const PlanReport& r) {
  const auto text = [](const Spec* s) {
    return s->layout().to_string(s->mesh());
  };
  Json steps = Json::array();
  for (size_t i = 0; i < r.plan.steps.size(); ++i) {
    const Step& s = r.plan.steps[i];
    Json axes = Json::array();
    for (int a = 0; a < s.from->mesh().num_axes(); ++a)
      if (s.axes >> a & 1) axes.push_back(s.from->mesh().axis_name(a));
    steps.push_back({{"kind", key(s.kind)},
                     {"axes", axes},
                     {"bytes", s.bytes},
                     {"from", text(s.from)},
                     {"to", text(s.to)},
                     {"time_us", microseconds(r.step_ps[i])}});
  }
  const auto or_null = [](const std::optional<int64_t>& x) {
    return x ? Json(*x) : Json(nullptr);
  };
  Json shape = Json::array();
  for (int64_t n : r.from->shape()) shape.push_back(n);
  return {{"mesh", r.from->mesh().to_string()},
          {"to_mesh", r.to->mesh().to_string()},
          {"shape", shape},
          {"dtype", name(r.from->dtype())},
          {"from", text(r.from)},
          {"to", text(r.to)},
          {"steps", steps},
          {"chunks", r.plan.chunks},
          {"bytes_received_max", r.plan.bytes},
          {"bytes_sent_max", or_null(r.bytes_sent)},
          {"bytes_lower_bound", or_null(r.lower_bound)},
          {"peak_elements", r.plan.peak_bytes / size_of(r.from->dtype())},
          {"time_us", microseconds(r.plan.time_ps)},
          {"planning_us", r.planning_us}};
}

}  // namespace dtensor::report
