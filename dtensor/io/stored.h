// SPDX-License-Identifier: Apache-2.0
// Descriptions of what files hold.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include "dtensor/placement/dtype.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

// A tensor in a file; its elements are in row-major order.
struct TensorInfo {
  std::string name;
  DType dtype;
  Shape shape;
};

// Values in a checkpoint besides its tensors, such as a position in the data or
// the state of a generator. Text is UTF-8.
using CheckpointValue = std::variant<int64_t, uint64_t, std::string>;
using CheckpointValues = std::map<std::string, CheckpointValue>;

}  // namespace dtensor
