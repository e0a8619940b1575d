// SPDX-License-Identifier: Apache-2.0
// The purposes of a rank's memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dtensor {

enum class MemoryKind : uint8_t {
  kActivations,  // also all memory that is of none of the other kinds
  kParameters,
  kGradients,  // gradients of parameters, also partial ones
  kState,      // the optimizer's state
  kGathered,   // copies of sharded parameters gathered for use
};
inline constexpr size_t kMemoryKinds = 5;

constexpr std::string_view name(MemoryKind kind) {
  constexpr std::string_view kNames[] = {"activations", "parameters",
                                         "gradients", "state", "gathered"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace dtensor
