// SPDX-License-Identifier: Apache-2.0
// Element-wise functions, and comparisons of whole tensors, that are made of
// the functions in pointwise.h. Every rank of the mesh calls them.
#pragma once

#include "dtensor/ops/pointwise.h"

namespace dtensor {

// x + value * a * b, and x + value * a / b. All three broadcast. addcdiv()
// throws Error if neither a nor b is a float type, as in torch.
DistTensor addcmul(const DistTensor& x, const DistTensor& a,
                   const DistTensor& b, Number value = 1);
DistTensor addcdiv(const DistTensor& x, const DistTensor& a,
                   const DistTensor& b, Number value = 1);

// Splits x into two halves a and b along a dimension, and returns
// a * sigmoid(b). Throws Error if the dimension has an odd size.
DistTensor glu(const DistTensor& x, int dim = -1);
// x where x > 0, else weight * x. The weight has one element, or one for each
// index of dimension 1 of x. Throws Error for other weights.
DistTensor prelu(const DistTensor& x, const DistTensor& weight);

// Whether all elements are close, as isclose() says: |a - b| <= atol + rtol *
// |b|. a and b broadcast. The result is a bool without dimensions; write
// .item<bool>() for its value.
DistTensor allclose(const DistTensor& a, const DistTensor& b,
                    double rtol = 1e-5, double atol = 1e-8,
                    bool equal_nan = false);
// Whether a and b have one shape and equal elements, as a bool without
// dimensions. Throws Error if their types differ.
DistTensor equal(const DistTensor& a, const DistTensor& b);

}  // namespace dtensor
