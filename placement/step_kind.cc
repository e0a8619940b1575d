// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/step_kind.h"

#include <algorithm>
#include <iterator>

namespace dtensor {

std::string_view name(StepKind kind) {
  constexpr std::string_view names[] = {
      "slice",           "partial-fill",     "all-gather", "all-reduce",
      "reduce-scatter",  "all-to-all",       "permute",    "exchange",
      "reduce-exchange", "all-gather-bytes", "barrier"};
  static_assert(std::size(names) == kNumStepKinds + 2);
  return names[static_cast<size_t>(kind)];
}

std::string key(StepKind kind) {
  std::string text(name(kind));
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

std::optional<StepKind> parse_kind(std::string_view text) {
  std::string wanted(text);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  for (int k = 0; k < kNumStepKinds; ++k)
    if (key(static_cast<StepKind>(k)) == wanted)
      return static_cast<StepKind>(k);
  return std::nullopt;
}

}  // namespace dtensor
