// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/predicted.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "dtensor/dist_tensor.h"

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
  if (op.out[0].here()) work_ps_ += op.choice.work_ps;
  if (next_) next_->ran(context, op);
}

void WorkCounter::ran(RankContext& context, const KernelRan& kernel) {
  if (next_) next_->ran(context, kernel);
}

void WorkCounter::sent(RankContext& context) {
  if (next_) next_->sent(context);
}

void WorkCounter::step_begins(RankContext& context,
                              std::span<const NamedTensor> parameters) {
  if (next_) next_->step_begins(context, parameters);
}

void WorkCounter::ended(RankContext& context) {
  if (next_) next_->ended(context);
}

}  // namespace dtensor
