// The linear layer, and the activation that its kernel can do in passing.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

enum class Activation : uint8_t { kNone, kGeluTanh };

// x weight^T + bias, as torch.nn.functional.linear: x [..., k], weight [n, k]
// and bias [n], or weight [k] and bias []; the bias may be undefined. Then the
// activation, gelu_tanh() of it. Types are promoted to the widest of them.
//
// A sum that is split over ranks stays partial, and the bias is added once. An
// activation takes no partial: such a sum is reduced before it.
//
// Where x is what a layer's activation made, the way back through this layer
// and that activation is one product: of a layer with a bias, where the
// gradient of x lies as x does, if all gradients of the other layer are wanted
// at once.
DistTensor linear(const DistTensor& x, const DistTensor& weight,
                  const DistTensor& bias = {},
                  Activation then = Activation::kNone);

// For the list of operators.
std::vector<const Op*> linear_ops();

}  // namespace dtensor
