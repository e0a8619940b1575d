// SPDX-License-Identifier: Apache-2.0
// Layer norm (Ba et al., arXiv 1607.06450) and RMS norm (Zhang and Sennrich,
// arXiv 1910.07467) over the last dimension. If that is split, ranks exchange
// one or two sums per row, never the rows. Every rank of the mesh calls these
// functions. They throw Error if shapes or types do not fit.
#pragma once

#include "dtensor/dist_tensor.h"

namespace dtensor {

// (x - mean) / sqrt(variance + eps) * gamma + beta, with gamma and beta [n].
// Undefined ones count as 1 and 0.
DistTensor layer_norm(const DistTensor& x, const DistTensor& gamma = {},
                      const DistTensor& beta = {}, double eps = 1e-5);
// x / sqrt(mean of squares + eps) * gamma.
DistTensor rms_norm(const DistTensor& x, const DistTensor& gamma = {},
                    double eps = 1e-6);

// y = norm(x), and the x that was normalized.
struct Normed {
  DistTensor x, y;
};
// x = a + b, of equal shapes, as in a residual stream, and y = norm(x). The
// forward pass makes both in one pass over the data. So does the backward pass
// with the cotangent of a and b, which is the same. Two partial sums are added
// first and reduced once.
Normed add_layer_norm(const DistTensor& a, const DistTensor& b,
                      const DistTensor& gamma, const DistTensor& beta,
                      double eps = 1e-5);
Normed add_rms_norm(const DistTensor& a, const DistTensor& b,
                    const DistTensor& gamma, double eps = 1e-6);
// Also returns x in the layout that the norm used, with partial sums reduced,
// so that later operators do not reduce it again. The backward pass of the norm
// adds that x's cotangent in the same pass over the data. The returned x may
// share memory with the given one.
Normed layer_norm_through(const DistTensor& x, const DistTensor& gamma,
                          const DistTensor& beta, double eps = 1e-5);
Normed rms_norm_through(const DistTensor& x, const DistTensor& gamma,
                        double eps = 1e-6);

}  // namespace dtensor
