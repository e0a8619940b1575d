// SPDX-License-Identifier: Apache-2.0
// Gradients in two steps: first those that other ranks wait for, then those
// that are only added up over micro-batches. Used by pipelines (nn/pipeline.h).
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "dtensor/ops/grad.h"
#include "dtensor/split_backward.h"

namespace dtensor {

// Computes d output / d inputs in two parts. The constructor computes the
// gradients of `now`, and everything that they share with the gradients of
// `later`. later() computes the products that are left, each for only one input
// of `later` (dtensor/split_backward.h). The graph is released. Every rank of
// the mesh makes these calls.
class SplitGrad {
 public:
  // `cotangent`: see GradOptions::cotangent. Throws Error as grad() does.
  SplitGrad(const DistTensor& output, const DistTensor& cotangent,
            std::vector<DistTensor> now, std::vector<DistTensor> later);
  // For several outputs, as grad().
  SplitGrad(TensorList outputs, TensorList cotangents,
            std::vector<DistTensor> now, std::vector<DistTensor> later);
  // The gradients of `now`, in the layouts that grad() gives.
  const std::vector<DistTensor>& now() const { return now_; }
  // The gradients of `later`, as grad() returns them with these options, except
  // that cotangent and release_graph are ignored. Leave create_graph false. By
  // default the gradients stay partial. Throws Error if called twice.
  std::vector<DistTensor> later(GradOptions = {.keep_partial = true});

 private:
  std::unique_ptr<SplitBackward> pass_;
  std::vector<DistTensor> inputs_, now_;
};

// Reduces gradients that were kept partial to the layouts that grad() gives,
// all in one exchange. There is one gradient for each input; an undefined one
// counts as zeros. `wire_dtype`, `keep_exact`: see GradOptions. Gradients that
// have no other owner are reduced in place, so move them in. Every rank of the
// mesh calls it.
std::vector<DistTensor> settle(TensorList inputs,
                               std::vector<DistTensor> gradients,
                               std::optional<DType> wire_dtype = {},
                               bool keep_exact = false);

}  // namespace dtensor
