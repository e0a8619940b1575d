// Recomputation of activations (gradient checkpointing; Chen et al.,
// arXiv 1604.06174): memory for time.
//
// What a function computes is computed without a graph, and of what happens
// inside nothing is saved. The backward pass runs the function once more, now
// with a graph, and goes back through that.
#pragma once
#include <functional>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/op.h"

namespace dtensor {

using Recomputed =
    std::function<std::vector<DistTensor>(const std::vector<DistTensor>&)>;

struct RecomputeOptions {
  // The outputs of operators for which this is true are kept from the first
  // run and not computed again in the second, nor in checkpoints inside; of
  // their inputs the second run moves and gathers those alone that a gradient
  // needs. All calls of an operator are kept, or none. Undefined: none at all.
  std::function<bool(const Op&)> save = {};
};

// fn(inputs), as torch.utils.checkpoint. Values and gradients, second ones too,
// are those of fn(inputs), bit for bit unless a tensor is used both inside and
// outside: its shares are added in another order. What fn uses beside its
// inputs (parameters, say) gets its gradient as they do. Collective as fn is;
// under NoGrad, or when nothing that fn uses wants a gradient, it is
// fn(inputs).
//
// fn is kept until the gradient is taken with release_graph, or the graph is
// dropped, and so is what it refers to: it has to hold by value what does not
// live as long. It is a function: the second run computes what the first did.
// Random numbers from the run's own generators are drawn again, and the
// generators are afterwards where they were. The module path of operators
// (PathScope) is the first run's. What the second run sends are events of the
// phase "recompute", under the ExplicitOnly and CommBudget that are open where
// the gradient is taken.
//
// The gradient throws Error when a tensor that fn used was changed in place
// since, and when fn uses other tensors than before, runs other operators where
// outputs were kept, or gives results in other layouts.
std::vector<DistTensor> checkpoint(const Recomputed& fn,
                                   const std::vector<DistTensor>& inputs,
                                   const RecomputeOptions& = {});
// The same for one input and one result.
DistTensor checkpoint(const std::function<DistTensor(const DistTensor&)>& fn,
                      const DistTensor& x, const RecomputeOptions& = {});

}  // namespace dtensor
