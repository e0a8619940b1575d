// Values in a checkpoint besides its tensors, such as a position in the data or
// the state of a generator.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <variant>

namespace dtensor {

// Text is UTF-8.
using CheckpointValue = std::variant<int64_t, uint64_t, std::string>;
using CheckpointValues = std::map<std::string, CheckpointValue>;

}  // namespace dtensor
