// SPDX-License-Identifier: Apache-2.0
#include "dtensor/scopes.h"

#include <algorithm>
#include <utility>

#include "dtensor/rank_context.h"

namespace dtensor {

ExplicitOnly::ExplicitOnly()
    : context_(RankContext::current()),
      outer_(std::exchange(context_.explicit_only, true)) {}

ExplicitOnly::~ExplicitOnly() { context_.explicit_only = outer_; }

CommBudget::CommBudget(int64_t bytes)
    : context_(RankContext::current()),
      outer_(context_.comm_budget),
      start_(outer_ < 0 ? bytes : std::min(bytes, outer_)) {
  DT_CHECK(bytes >= 0, "CommBudget",
           "the budget is {} bytes; write 0 or more, or leave the scope out",
           bytes);
  context_.comm_budget = start_;
}

CommBudget::~CommBudget() {
  const int64_t spent = start_ - context_.comm_budget;
  context_.comm_budget = outer_ < 0 ? outer_ : outer_ - spent;
}

int64_t CommBudget::left() const { return context_.comm_budget; }

NoGrad::NoGrad()
    : context_(RankContext::current()),
      outer_(std::exchange(context_.grad_enabled, false)),
      captures_(std::exchange(context_.captures, nullptr)) {}

NoGrad::~NoGrad() {
  context_.grad_enabled = outer_;
  context_.captures = captures_;
}

bool grad_enabled() { return RankContext::current().grad_enabled; }

PathScope::PathScope(std::string_view path)
    : context_(RankContext::current()),
      path_(std::exchange(context_.path, path)),
      ordinal_(std::exchange(context_.ordinal, 0)) {}

PathScope::~PathScope() {
  context_.path = path_;
  context_.ordinal = ordinal_;
}

}  // namespace dtensor
