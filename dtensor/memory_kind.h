// What a rank's memory is for.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dtensor {

enum class MemoryKind : uint8_t {
  kActivations,  // and whatever is of none of the others
  kParameters,
  kGradients,  // of parameters, partial or settled
  kState,      // the optimizer's
  kGathered,   // whole copies of parameters that rest in parts
};
inline constexpr size_t kMemoryKinds = 5;

constexpr std::string_view name(MemoryKind kind) {
  constexpr std::string_view kNames[] = {"activations", "parameters",
                                         "gradients", "state", "gathered"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace dtensor
