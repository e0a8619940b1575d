// SPDX-License-Identifier: Apache-2.0
// Functions with a gradient of one's own.
//
//   // The identity, whose gradient is all-reduced (Megatron's f).
//   const auto f = custom_function(
//       [](const DistTensor& x) { return x; },
//       [=](const DistTensor& g) { return all_reduce(g, {mesh, "tp"}); });
//   y = linear(f(x), w);
#pragma once
#include <functional>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// A function of any number of tensors.
using TensorFunction =
    std::function<std::vector<DistTensor>(const std::vector<DistTensor>&)>;

// The arguments of a gradient: the inputs and outputs of the call, and the
// cotangents of the outputs. A cotangent is zero if none has reached its
// output, and undefined if that is not of a float type.
struct CustomCall {
  std::vector<DistTensor> inputs, outputs, cotangents;
};

// Returns a function that computes forward(inputs), and has the gradient that
// `backward` computes: one tensor for each input, with the input's shape and
// mesh, in any layout. It is undefined for an input without a gradient. Like
// torch.autograd.Function and jax.custom_vjp.
//
// `forward` runs without a graph. It may return its inputs. Tensors that it
// uses besides its inputs get no gradient. `backward` may be differentiated
// again under create_graph (grad.h), as far as it consists of operators on the
// tensors of the CustomCall. Both are collective over the mesh as far as their
// operators are. The result calls them, so they must capture by value
// everything that does not live as long as the graph.
//
// A call throws Error if an input or an output is undefined. Taking the
// gradient throws Error if an input or an output was changed in place since the
// call, or if `backward` returns the wrong number of tensors or a wrong shape.
TensorFunction custom_function(
    TensorFunction forward,
    std::function<std::vector<DistTensor>(const CustomCall&)> backward);
// The overload for one input and one output. `backward` gets the output's
// cotangent.
std::function<DistTensor(const DistTensor&)> custom_function(
    std::function<DistTensor(const DistTensor&)> forward,
    std::function<DistTensor(const DistTensor&)> backward);

}  // namespace dtensor
