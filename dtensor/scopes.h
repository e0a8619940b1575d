// SPDX-License-Identifier: Apache-2.0
// Scopes that limit communication, turn off autograd's recording, or name the
// running module. Every rank must open the same scopes. Their constructors
// throw Error outside run().
#pragma once
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace dtensor {

class Captures;
struct RankContext;

// Inside, operators that would have to communicate throw an Error that says
// which redistribute() to write. Explicit redistributions are allowed.
class ExplicitOnly {
 public:
  ExplicitOnly();
  ~ExplicitOnly();
  ExplicitOnly(const ExplicitOnly&) = delete;
  ExplicitOnly& operator=(const ExplicitOnly&) = delete;

 private:
  RankContext& context_;
  const bool outer_;
};

// Limits communication to `bytes`. Each collective spends the largest number of
// bytes that any rank receives in it. A collective that would exceed the limit
// throws Error and sends nothing (an operator may have sent its inputs by
// then). Scopes nest: the smaller limit holds, and an inner scope also spends
// the budget of the outer one.
class CommBudget {
 public:
  explicit CommBudget(int64_t bytes);
  ~CommBudget();
  CommBudget(const CommBudget&) = delete;
  CommBudget& operator=(const CommBudget&) = delete;
  int64_t left() const;

 private:
  RankContext& context_;
  const int64_t outer_, start_;
};

// Forbids all communication of tensors.
class NoComm : public CommBudget {
 public:
  NoComm() : CommBudget(0) {}
};

// Operators inside this scope are not recorded for gradients, and
// RankContext::captures does not see them.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  RankContext& context_;
  const bool outer_;
  Captures* const captures_;
};
bool grad_enabled();

// Says that the operators inside belong to the module `path`, and numbers them
// from 0. The path has to outlive the scope: copying it would cost time at
// every call of a module.
class PathScope {
 public:
  explicit PathScope(std::string_view path);
  explicit PathScope(std::same_as<std::string> auto&&) = delete;
  ~PathScope();
  PathScope(const PathScope&) = delete;
  PathScope& operator=(const PathScope&) = delete;

 private:
  RankContext& context_;
  const std::string_view path_;
  const int64_t ordinal_;
};

}  // namespace dtensor
