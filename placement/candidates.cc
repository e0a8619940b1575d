// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/candidates.h"

#include <optional>
#include <utility>

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

Choice price(const Candidate& candidate, std::span<const OpInput> inputs,
             const OpWork& work, Planner& planner) {
  Choice c;
  c.in = candidate.in;
  c.out = candidate.out;
  c.comm_ps = candidate.other_ps;
  double bytes = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Plan& p = planner.plan(inputs[i].spec, c.in[i]);
    c.comm_ps += p.time_ps;
    c.steps += static_cast<int>(p.steps.size());
    c.feasible &= allows(inputs[i].keep, p);
    bytes += static_cast<double>(c.in[i]->largest_part_bytes());
  }
  for (const Spec* out : c.out) {
    bytes += static_cast<double>(out->largest_part_bytes());
    Layout settled = out->layout();
    settled.partials.clear();
    c.reduce_ps += planner.plan(out, out->with(settled)).time_ps;
  }
  if (candidate.points > 0)
    c.work_ps = planner.cost().work_ps(
        work.flops_per_point * candidate.points * candidate.share, bytes);
  return c;
}

}  // namespace

Choice choose(std::span<const Candidate> candidates,
              std::span<const OpInput> inputs, const OpWork& work,
              Planner& planner, std::string_view op, size_t* which) {
  std::optional<Choice> best;
  for (size_t i = 0; i < candidates.size(); ++i) {
    Choice c = price(candidates[i], inputs, work, planner);
    if (!c.feasible || (best && std::pair(c.total_ps(), c.steps) >=
                                    std::pair(best->total_ps(), best->steps)))
      continue;
    best = std::move(c);
    if (which) *which = i;
  }
  if (best) return std::move(*best);
  std::string listed;
  for (const OpInput& in : inputs)
    listed += (listed.empty() ? "" : ", ") + in.spec->to_string() +
              (in.keep != Keep::kMove ? " (parameter)" : "");
  fail(op,
       "there is no way to compute on {} without sending a parameter; "
       "redistribute an input first, or do not call as_parameter() on a "
       "tensor that may be sent: set_requires_grad() alone asks for a gradient",
       listed);
}

}  // namespace dtensor
