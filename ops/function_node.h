// SPDX-License-Identifier: Apache-2.0
// Graph nodes whose gradient is a function, for what is not an operator: whole
// functions (custom.h) and the way between a mesh and one of its ranks
// (local_map.h). Private to ops.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Returns the cotangents of the inputs. Cotangents of outputs that none has
// reached are undefined, and so may be cotangents that are not needed. Under
// create_graph, grad_enabled() is true, and the function has to record what it
// does. `outputs` are those of the call.
using GradientFunction = std::function<std::vector<DistTensor>(
    std::span<const DistTensor> outputs, std::span<const DistTensor> cotangents,
    std::span<const bool> needed)>;

// Whether a call with these inputs has a gradient.
bool any_records(TensorList inputs);

// Whether the gradient needs the values of the outputs. If not, the graph does
// not hold them, and GradientFunction gets an empty list.
enum class Needs : uint8_t { kNoOutputs, kOutputs };

// Records in the graph that `outputs`, which have no history of their own, were
// made from `inputs`, and returns them. Outputs of other than float types get
// no gradient. `name` names the call in errors, and must be a literal. The
// gradient throws Error if one of the tensors `saved`, which its function
// holds, or of the outputs that it needs, was changed in place since then.
std::vector<DistTensor> with_gradient(std::string_view name, TensorList inputs,
                                      std::vector<DistTensor> outputs,
                                      GradientFunction gradient,
                                      TensorList saved = {},
                                      Needs = Needs::kNoOutputs);

}  // namespace dtensor
