// SPDX-License-Identifier: Apache-2.0
// Token ids in files.
#pragma once
#include <string>

#include "dtensor/tensor.h"

namespace dtensor::examples {

// Reads input_ids [batch, sequence] of a safetensors file, as i64. Call it
// outside of a run, since a dry run has no values. Throws Error if they are not
// integers of that shape, or not in the vocabulary.
Tensor read_token_ids(const std::string& path, int64_t vocab);

}  // namespace dtensor::examples
