// SPDX-License-Identifier: Apache-2.0
// Gradients of tensors, and recomputation in the backward pass.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/saved_calls.h"

namespace dtensor {

struct GradOptions {
  // Record the backward pass, so that gradients can be differentiated again.
  bool create_graph = false;
  // Split gradients as their inputs are split, but leave them partial where the
  // inputs are replicated. Several micro-batches can then be summed before one
  // redistribution.
  bool keep_partial = false;
  // The cotangent of the output, with the output's shape and mesh, in any
  // layout. Another float type is converted to the output's type, as in torch.
  // If undefined, the cotangent is 1, and the output must have one element.
  DistTensor cotangent = {};
  // Release each node's saved tensors once the pass has used them. The graph
  // cannot be differentiated again.
  bool release_graph = false;
  // Whenever the gradients that wait have at least this many bytes (each counts
  // with its largest part on any rank), the rank's other thread sends them in
  // one exchange, while the pass goes on. 0: all are sent together after
  // the pass. (If an input is listed twice, nothing is sent before.) Cannot be
  // combined with create_graph; no effect with keep_partial.
  int64_t bucket_bytes = 0;
  // Gradients of inputs[wire_from], inputs[wire_from + 1], ... are converted to
  // this type for sending, and back afterwards. The others are not converted,
  // and with keep_partial none are.
  std::optional<DType> wire_dtype = {};
  size_t wire_from = 0;
  // In a reproducible run (RunOptions::reproducible), return the gradients of
  // inputs[wire_from], ... as exact sums (DType::kExact), so that others can
  // still be added to them; settle() (split_grad.h) rounds them.
  bool keep_exact = false;
  // Partial gradients of earlier micro-batches, which the new gradients are
  // added to: one for each input (undefined if there is none), or an empty
  // list. Each is released after the addition. To free its memory, move it in
  // here, and move these options into grad().
  std::vector<DistTensor> add_to = {};
  // Like add_to, but for gradients that are already in their inputs' layouts.
  // The new gradients are added to them as they arrive, bucket by bucket. Not
  // with create_graph or keep_partial.
  std::vector<DistTensor> add_arrived = {};
};

// Returns d output / d inputs, with zeros for inputs that the output does not
// depend on. Each gradient has its input's layout, or that of
// set_grad_layout(). It is replicated where that layout is partial. Unless
// bucket_bytes is set, all gradients are moved together, with one collective
// for each kind and group. Every rank of the mesh calls it. Throws Error if the
// output or an input does not require a gradient, if create_graph is combined
// with release_graph, bucket_bytes or wire_dtype, if wire_dtype is not a float
// type, or if other options do not fit the inputs.
//
// The gradient of a partial input refers to its combined value. For a partial
// sum, each rank's part has the same gradient. For a partial average, the
// gradient of a part would be this one divided by the number of parts; for a
// partial maximum, only the largest part would have a gradient.
std::vector<DistTensor> grad(const DistTensor& output, TensorList inputs,
                             GradOptions = {});

// The gradient for several outputs: d sum_i <outputs[i], cotangents[i]> / d
// inputs. options.cotangent is ignored. Outputs that do not depend on anything
// that wants a gradient are skipped. Throws Error if all are skipped, or if the
// number of cotangents differs from that of the outputs.
std::vector<DistTensor> grad(TensorList outputs, TensorList cotangents,
                             TensorList inputs, GradOptions = {});

// ---- Recomputation ----
//
// Recomputing activations (gradient checkpointing; Chen et al., arXiv
// 1604.06174) saves memory at the cost of time.
//
// The function runs without a graph, and nothing inside it is saved, unless
// RecomputeOptions::save selects it. The backward pass runs the function again,
// now with a graph, and differentiates that run.

using Recomputed =
    std::function<std::vector<DistTensor>(const std::vector<DistTensor>&)>;

struct RecomputeOptions {
  // The outputs of these calls are kept from the first run. The second run, and
  // checkpoints inside it, do not compute these outputs again. They move and
  // gather only those inputs of the calls that a gradient needs. Undefined:
  // keep none.
  SavedCalls save = {};
};

// Computes fn(inputs), like torch.utils.checkpoint. All ranks that would have
// to call fn call it. Values and gradients (second ones, too) are identical to
// those of fn(inputs), bit by bit, with one exception: if a tensor is used both
// inside and outside of fn, its gradients are added in another order. Tensors
// other than `inputs` that fn uses, such as parameters, get gradients, too.
// Under NoGrad, or if nothing that fn uses wants a gradient, this is just
// fn(inputs).
//
// fn is kept until the gradient is taken with release_graph or by SplitGrad, or
// until the graph is dropped. It must capture by value everything that does not
// live that long, and it must compute the same in both runs. The second run
// draws the same random numbers from the generators of create.h, and restores
// their state afterwards. It has the module path (PathScope) of the first run.
// Its communication is recorded in the phase "recompute". The ExplicitOnly and
// CommBudget that apply to it are those in effect where the gradient is taken.
//
// Taking the gradient throws Error if a tensor that fn used was changed in
// place after its use. It also throws if the second run uses other tensors that
// require a gradient than the first, or calls other operators, or one of them
// with other arguments, seeds or layouts. So fn must not keep a tensor that it
// computes in its first run only; it may compute one under NoGrad.
std::vector<DistTensor> checkpoint(const Recomputed& fn,
                                   const std::vector<DistTensor>& inputs,
                                   const RecomputeOptions& = {});
// The overload for one input and one result.
DistTensor checkpoint(const std::function<DistTensor(const DistTensor&)>& fn,
                      const DistTensor& x, const RecomputeOptions& = {});

// ---- Offloading ----

// Computes fn(inputs), and moves what its gradient will read to the host's
// memory, like torch.autograd.graph.save_on_cpu(pin_memory=True) around fn. It
// comes back when the backward pass reads it: each operator's part on its own.
// So a GPU holds the saved values of one such function at a time. All ranks
// that would have to call fn call it. Values and gradients are identical to
// those of fn(inputs), bit by bit.
//
// The results stay, as do parameters and tensors that require no gradient.
// Inputs go, since the next function usually no longer reads them; one that is
// read again comes back by itself. Copies are in the order of the rank's other
// work, and the host does not wait for them. Under NoGrad, on a CPU, and in
// functions without a gradient, this is just fn(inputs). In a dry run, memory
// is counted as on a GPU. Throws Error in a graph's step (dtensor/graph.h).
std::vector<DistTensor> save_on_host(const Recomputed& fn,
                                     const std::vector<DistTensor>& inputs);
// The overload for one input and one result.
DistTensor save_on_host(const std::function<DistTensor(const DistTensor&)>& fn,
                        const DistTensor& x);

}  // namespace dtensor
