// What holds while a scope is open: limits on what may be sent, and whose
// operators run. Every rank opens the same ones.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "dtensor/rank_context.h"

namespace dtensor {

// An operator that would have to communicate throws an Error instead, which
// says the redistribute to write. Explicit redistributions are allowed.
class ExplicitOnly {
 public:
  ExplicitOnly() : scope_(RankContext::current().explicit_only, true) {}

 private:
  Scoped<bool> scope_;
};

// At most `bytes` may be communicated (the sum over collectives of the most
// that one rank receives); what would go beyond throws an Error and sends
// nothing. Scopes nest: the smaller limit holds, and what an inner scope spends
// is spent for the outer one too.
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

// Nothing may be sent.
class NoComm : public CommBudget {
 public:
  NoComm() : CommBudget(0) {}
};

// Operators inside belong to this module: OpCall::path, with ordinals from 0.
// Modules open one at every call, whether or not somebody listens, so the path
// is not copied: it has to live as long as the scope.
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
