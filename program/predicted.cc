// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/predicted.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "dtensor/dist_tensor.h"
#include "dtensor/rank_context.h"

namespace dtensor {

Predicted predicted(const Totals& totals, const CostTable& cost) {
  return {most_received(totals.events), totals.work_ps,
          communication_ps(totals.events, cost)};
}

std::string basis_of_times(const CostTable& cost) {
  return fmt::format(
      "times as if nothing overlapped, by these prices: {}, {:g} GB/s of its "
      "memory",
      cost.to_string(), 1000 / cost.ps_per_local_byte);
}

std::string to_string(const Predicted& t, const CostTable& cost) {
  const auto ms = [](int64_t ps) { return static_cast<double>(ps) / 1e9; };
  return fmt::format(
      "predicted time: {:.3f} ms (operators {:.3f} ms, communication {:.3f} "
      "ms); {}",
      ms(t.total_ps()), ms(t.work_ps), ms(t.communication_ps),
      basis_of_times(cost));
}

nlohmann::ordered_json to_json(const Predicted& t) {
  const auto us = [](int64_t ps) { return static_cast<double>(ps) / 1e6; };
  return {{"work_us", us(t.work_ps)},
          {"communication_us", us(t.communication_ps)},
          {"us", us(t.total_ps())}};
}

void WorkCounter::ran(RankContext& context, const OpRan& op) {
  // Operators of other pipeline stages do nothing on this rank.
  if (!op.kept && context.run_id != ended_ && op.out[0].here())
    work_ps_ += op.choice.work_ps;
}

void WorkCounter::ended(RankContext& context) { ended_ = context.run_id; }

bool WorkCounter::reads_events(const RankContext& context) const {
  return context.run_id != ended_;
}

}  // namespace dtensor
