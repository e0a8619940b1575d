// What a training step holds, for people and for programs.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "examples/trainer.h"

namespace dtensor::examples {

// A row for each kind and one for all together, in bytes of the rank that holds
// the most. `measured` may be null.
std::string memory_table(const MemoryUse& predicted, const MemoryUse* measured);
// {"parameters": {"predicted": 1, "measured": 1}, ..., "peak": {...}}.
nlohmann::ordered_json memory_json(const MemoryUse& predicted,
                                   const MemoryUse* measured);

}  // namespace dtensor::examples
