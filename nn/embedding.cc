// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/embedding.h"

#include "dtensor/nn/layers.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/view.h"

namespace dtensor::nn {

Embedding::Embedding(const Scope& at, int64_t rows, int64_t hidden)
    : Module(at),
      weight_(add_parameter("weight", {rows, hidden}, Init::normal(0.02))) {}

DistTensor Embedding::forward(const DistTensor& ids) const {
  return dtensor::embedding(weight_, ids);
}

DistTensor Embedding::first(int64_t n) const {
  return n == weight_.size(0) ? weight_ : slice(weight_, 0, 0, n);
}

DistTensor Embedding::attend(const DistTensor& x,
                             const DistTensor& table) const {
  return einsum("...h,vh->...v", {x, table});
}

}  // namespace dtensor::nn
