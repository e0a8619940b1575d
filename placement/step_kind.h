// SPDX-License-Identifier: Apache-2.0
// The kinds of steps of a redistribution (see plan.h), and of collectives.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtensor {

enum class StepKind : uint8_t {
  kSlice,           // keep a part of the local data; nothing is sent
  kFill,            // partial-fill: whole or split -> partial. One rank keeps a
                    // value, others take the identity (a new average: all keep
                    // it); nothing is sent
  kAllGather,       // remove the last axes of splits
  kAllReduce,       // partial -> whole
  kReduceScatter,   // partial -> split
  kAllToAll,        // axes move from the end of one split to that of another
  kPermute,         // the same parts, held by other ranks
  kExchange,        // from any layout to any other: the box exchange
  kReduceExchange,  // the same, combining partials on the way
  // Only communicators use these: no plan has them, and no table prices them.
  kAllGatherBytes,
  kBarrier
};
inline constexpr int kNumStepKinds = 9;  // without the last two
// "slice", "partial-fill", "all-gather", ..., "exchange", "reduce-exchange".
std::string_view name(StepKind);
// The name as files write it, with '_' for '-'. parse_kind() reads both forms
// of the first nine names, and returns nullopt for other texts.
std::string key(StepKind);
std::optional<StepKind> parse_kind(std::string_view);
constexpr bool sends(StepKind k) {
  return k != StepKind::kSlice && k != StepKind::kFill;
}
// reduces(): whether the kind combines parts. moves_alone(): whether it sends
// parts as they are.
constexpr bool reduces(StepKind k) {
  return k == StepKind::kAllReduce || k == StepKind::kReduceScatter ||
         k == StepKind::kReduceExchange;
}
constexpr bool moves_alone(StepKind k) {
  return k == StepKind::kAllGather || k == StepKind::kAllToAll ||
         k == StepKind::kPermute || k == StepKind::kExchange;
}

}  // namespace dtensor
