// The linear layer, with an activation that its kernel can include.
#pragma once
#include <cstdint>

#include "dtensor/dist_tensor.h"

namespace dtensor {

enum class Activation : uint8_t { kNone, kGeluTanh };

// x weight^T + bias, as torch.nn.functional.linear. x is [..., k], weight is
// [n, k] and bias [n], or weight is [k] and bias []. The bias may be undefined.
// Types are promoted to the widest one. Then the activation is applied. Every
// rank of the mesh calls it. Throws Error if shapes do not fit.
//
// If k is split over ranks, the result stays a partial sum, to which one rank
// adds the bias. With an activation, the sum is reduced first.
//
// If x is the output of another layer's activation, the backward pass through
// this layer and that activation is one product. This requires that this layer
// has a bias or an activation, that the gradient of x has x's layout, and that
// all gradients of the other layer are requested together.
DistTensor linear(const DistTensor& x, const DistTensor& weight,
                  const DistTensor& bias = {},
                  Activation then = Activation::kNone);

}  // namespace dtensor
