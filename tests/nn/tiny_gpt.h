// SPDX-License-Identifier: Apache-2.0
// A small language model, and batches for it.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "dtensor/nn/models.h"
#include "dtensor/nn/trainer.h"

namespace dtensor::nn {

inline std::unique_ptr<LanguageModel> tiny_gpt(const Mesh& mesh, int stage,
                                               DType dtype = DType::kF32) {
  const ModelConfig config{.layers = 2,
                           .hidden = 12,
                           .heads = 3,
                           .seq = 8,
                           .vocab = 17,
                           .dtype = dtype};
  return make_model(config, mesh,
                    zero(default_plan(config, mesh), stage, "dp"));
}

inline Batch token_batch(int64_t step, int64_t rows) {
  std::vector<int64_t> in, out;
  for (int64_t i = 0; i < rows * 8; ++i) {
    in.push_back((step * 7 + i * i) % 17);
    out.push_back((in.back() + 1) % 17);
  }
  return {Tensor::from({rows, 8}, in.data()),
          Tensor::from({rows, 8}, out.data())};
}

}  // namespace dtensor::nn
