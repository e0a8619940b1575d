// SPDX-License-Identifier: Apache-2.0
// Reads token ids from files.
#pragma once
#include <string>

#include "dtensor/tensor.h"

namespace dtensor::examples {

// Reads input_ids [batch, sequence] of a safetensors file, as i64. Call it
// outside of run(): in a dry run the tensor would have no values. Throws Error
// if input_ids cannot be read, is empty, does not have this shape, is not of
// i64 or i32, or has an id outside the vocabulary.
Tensor read_token_ids(const std::string& path, int64_t vocab);

}  // namespace dtensor::examples
