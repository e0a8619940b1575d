// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/call_inputs.h"

#include <algorithm>

#include "dtensor/gather.h"
#include "dtensor/ops/op.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

namespace dtensor {

CallInputs::CallInputs(RankContext& ctx, std::span<const DistTensor> given,
                       bool known)
    : ctx_(ctx),
      given_(given),
      gathered_(std::any_of(given.begin(), given.end(), gathers)),
      known_(known),
      seen_(given),
      ready_(given) {
  if (!gathered_) return;
  own_.resize(given.size());
  if (known)
    for (size_t i = 0; i < given.size(); ++i)
      own_[i] = gathers(given[i])
                    ? gathered_when_read(given[i], given[i].use_spec())
                    : given[i];
  else
    see_inputs(given, own_);
  seen_ = ready_ = own_;
}

// Throws Error if an input would have to be sent under ExplicitOnly, or if the
// budget (CommBudget) is too small. Called after gather_inputs(), before any
// other input is moved.
void CallInputs::check_allowed(const Op& op, const Decision& d) const {
  if (!d.communicates) return;
  for (size_t i : d.moved) {
    if (!ctx_.explicit_only) break;
    const Plan& p = ctx_.planner.plan(seen_[i].spec(), d.in[i]);
    DT_CHECK(
        !p.communicates(), op.name(),
        "would have to communicate, which ExplicitOnly forbids: input {} is {} "
        "and is needed as {} ({}, {} bytes); write x.redistribute(\"{}\") "
        "before it",
        i, seen_[i].spec()->to_string(), d.in[i]->to_string(),
        name(std::find_if(p.steps.begin(), p.steps.end(),
                          [](const auto& step) { return sends(step.kind); })
                 ->kind),
        p.bytes, d.in[i]->layout().to_string(d.in[i]->mesh()));
  }
  DT_CHECK(ctx_.comm_budget < 0 || d.bytes <= ctx_.comm_budget, op.name(),
           "needs {} bytes of communication, but the budget has {} left; raise "
           "the budget, or redistribute the inputs outside of the CommBudget",
           d.bytes, ctx_.comm_budget);
}

void CallInputs::bring(const Op& op, const Decision& d) {
  if (gathered_ && !known_) gather_inputs(ctx_, given_, own_);
  if (d.moved.empty()) return;
  check_allowed(op, d);
  for (const DistTensor& in : seen_) moved_.push_back(in);
  relayout(moved_, d.in, {.copies = true, .execution = &d.execution});
  ready_ = moved_;
}

void CallInputs::free() {
  if (gathered_)
    for (const DistTensor& in : given_) free_gathered(ctx_, in);
}

}  // namespace dtensor
