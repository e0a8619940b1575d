// SPDX-License-Identifier: Apache-2.0
// Reports the memory of a training step, as a table and as JSON.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "dtensor/nn/trainer.h"

namespace dtensor::examples {

// A row for each kind of memory, and one for the peak of all kinds together:
// the bytes of the rank that holds the most of it. `measured` may be null.
std::string memory_table(const nn::MemoryUse& predicted,
                         const nn::MemoryUse* measured);
// {"parameters": {"predicted": 1, "measured": 1}, ..., "peak": {...}}; without
// "measured" if `measured` is null.
nlohmann::ordered_json memory_json(const nn::MemoryUse& predicted,
                                   const nn::MemoryUse* measured);

}  // namespace dtensor::examples
