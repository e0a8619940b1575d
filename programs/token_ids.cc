// SPDX-License-Identifier: Apache-2.0
#include "programs/token_ids.h"

#include <vector>

#include "dtensor/io/safetensors.h"
#include "dtensor/placement/error.h"

namespace dtensor::examples {

Tensor read_token_ids(const std::string& path, int64_t vocab) {
  const Tensor ids = SafetensorsReader(path).read("input_ids");
  const bool integers =
      ids.dtype() == DType::kI64 || ids.dtype() == DType::kI32;
  DT_CHECK(integers && ids.ndim() == 2 && ids.numel() > 0, "ids",
           "input_ids of {} is {} {}; write i64 or i32 of [batch, sequence], "
           "neither of them 0",
           path, name(ids.dtype()), to_string(ids.shape()));
  std::vector<int64_t> values;
  for (int64_t i = 0; i < ids.numel(); ++i) {
    values.push_back(ids.integer_at(i));
    DT_CHECK(values.back() >= 0 && values.back() < vocab, "ids",
             "input_ids of {} has the token {}, but the vocabulary of the "
             "model is {}; write tokens from 0 to {}",
             path, values.back(), vocab, vocab - 1);
  }
  return Tensor::from<int64_t>(ids.shape(), values.data());
}

}  // namespace dtensor::examples
