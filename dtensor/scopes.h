// Scopes that limit communication or name the running module. Every rank opens
// the same scopes.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "dtensor/rank_context.h"

namespace dtensor {

// Operators that would have to communicate throw an Error instead, which says
// which redistribute() to write. Explicit redistributions are allowed.
class ExplicitOnly {
 public:
  ExplicitOnly() : scope_(RankContext::current().explicit_only, true) {}

 private:
  Scoped<bool> scope_;
};

// Limits communication to `bytes`: the sum over collectives of the largest
// number of bytes that a rank receives. A call that would exceed the limit
// throws Error and sends nothing. Scopes nest: the smaller limit holds, and an
// inner scope also spends the budget of the outer one.
class CommBudget {
 public:
  explicit CommBudget(int64_t bytes)
      : context_(RankContext::current()),
        outer_(context_.comm_budget),
        start_(outer_ < 0 ? bytes : std::min(bytes, outer_)) {
    context_.comm_budget = start_;
  }
  ~CommBudget() {
    int64_t spent = start_ - context_.comm_budget;
    context_.comm_budget = outer_ < 0 ? outer_ : outer_ - spent;
  }
  CommBudget(const CommBudget&) = delete;
  CommBudget& operator=(const CommBudget&) = delete;
  int64_t left() const { return context_.comm_budget; }

 private:
  RankContext& context_;
  int64_t outer_, start_;
};

// Forbids all communication.
class NoComm : public CommBudget {
 public:
  NoComm() : CommBudget(0) {}
};

// Assigns the operators inside to a module: OpCall::path, with ordinals from 0.
// Modules open a scope at every call, so the path is not copied, to save time:
// it has to outlive the scope.
class PathScope {
 public:
  explicit PathScope(std::string_view path)
      : PathScope(RankContext::current(), path) {}
  explicit PathScope(std::same_as<std::string> auto&&) = delete;

 private:
  PathScope(RankContext& context, std::string_view path)
      : path_(context.path, path), ordinal_(context.ordinal, 0) {}
  Scoped<std::string_view> path_;
  Scoped<int64_t> ordinal_;
};

}  // namespace dtensor
