// Gradients for users.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

struct GradOptions {
  // Record the backward pass, so that the gradients can be differentiated.
  bool create_graph = false;
  // Leave gradients partial (several micro-batches add to them, then one
  // redistribute settles them) instead of in their inputs' layouts.
  bool keep_partial = false;
  // Cotangent of the output, of its shape and mesh, in any layout; one of
  // another float type is converted to the output's, as in torch. 1 when
  // undefined (the output is then a scalar).
  DistTensor cotangent = {};
  // Not to be differentiated again: what the graph saved is let go of as the
  // pass goes back through it.
  bool release_graph = false;
  // Gradients start on their way as soon as so many bytes of them are complete
  // (on the rank that has the most), in one exchange, which the rank's other
  // thread carries out while the pass goes on. 0: all of them together, when it
  // has ended. Not with create_graph or keep_partial.
  int64_t bucket_bytes = 0;
  // What is sent of them: they are converted first, and back after. Of those of
  // inputs number `wire_from` on; others are sent as they are.
  std::optional<DType> wire_dtype = {};
  size_t wire_from = 0;
  // Of earlier micro-batches, kept partial: one for each input (undefined where
  // there is none), or none. Each is let go of when it has been added to: move
  // them here, and the options on.
  std::vector<DistTensor> add_to = {};
  // The same of gradients that are where they belong: what arrives is added to
  // them, one bucket after the other. Not with create_graph or keep_partial.
  std::vector<DistTensor> add_arrived = {};
};

// d output / d inputs, zeros for an input that it does not depend on; each in
// its input's layout (or that of set_grad_layout()), and whole where that is
// partial. All of them are brought there together: one collective for each kind
// and group. Collective. Throws Error when release_graph or bucket_bytes meet
// create_graph, and for a wire_dtype that is no float.
//
// The gradient is that of a tensor's value. Of a partial sum it is that of
// every part, too; of an average a part's would be divided by the number of
// parts, and of a maximum be that of the winner alone.
std::vector<DistTensor> grad(const DistTensor& output,
                             const std::vector<DistTensor>& inputs,
                             GradOptions = {});

// The same of several outputs, each with its cotangent (options.cotangent
// counts for nothing): d sum_i <outputs[i], cotangents[i]> / d inputs. Outputs
// that depend on nothing that wants a gradient are left out. Throws Error when
// all are, and unless there is a cotangent for each.
std::vector<DistTensor> grad(const std::vector<DistTensor>& outputs,
                             const std::vector<DistTensor>& cotangents,
                             const std::vector<DistTensor>& inputs,
                             GradOptions = {});

}  // namespace dtensor
