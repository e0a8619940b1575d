// Recomputation of activations (gradient checkpointing; Chen et al.,
// arXiv 1604.06174), which saves memory at the cost of time.
//
// The function runs without a graph, and nothing inside it is saved. The
// backward pass runs the function again, now with a graph, and differentiates
// that run.
#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

using Recomputed =
    std::function<std::vector<DistTensor>(const std::vector<DistTensor>&)>;

struct RecomputeOptions {
  // Selects operators by name. Their outputs are kept from the first run. The
  // second run, and checkpoints inside it, do not compute them again, and move
  // and gather only those of their inputs that a gradient needs. An operator's
  // calls are kept either all or not at all. Undefined: keep none.
  std::function<bool(std::string_view op)> save = {};
};

// Computes fn(inputs), like torch.utils.checkpoint. Collective as fn is. Values
// and gradients (second ones, too) are bit-identical to fn(inputs), except that
// a tensor used both inside and outside has its gradients added in another
// order. Other tensors that fn uses, such as parameters, get gradients like
// `inputs`. Under NoGrad, or if nothing that fn uses wants a gradient, this is
// just fn(inputs).
//
// fn is kept until the gradient is taken with release_graph or the graph is
// dropped. It must capture by value all that does not live as long. It must
// compute the same in both runs. The second run draws the same random numbers
// from the run's own generators, and restores their state afterwards. It has
// the module path (PathScope) of the first run. Its communication is recorded
// in the phase "recompute", and the ExplicitOnly and CommBudget in effect where
// the gradient is taken apply to it.
//
// Taking the gradient throws Error if a tensor that fn used was changed in
// place after its use, or if fn uses other tensors than in the first run, runs
// other operators among the kept ones, or returns results in other layouts.
std::vector<DistTensor> checkpoint(const Recomputed& fn,
                                   const std::vector<DistTensor>& inputs,
                                   const RecomputeOptions& = {});
// The overload for one input and one result.
DistTensor checkpoint(const std::function<DistTensor(const DistTensor&)>& fn,
                      const DistTensor& x, const RecomputeOptions& = {});

}  // namespace dtensor
