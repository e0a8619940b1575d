// SPDX-License-Identifier: Apache-2.0
// Layer norm (Ba et al., arXiv 1607.06450) and RMS norm (Zhang and Sennrich,
// arXiv 1910.07467) over the last dimension. If that dimension is split, ranks
// exchange one or two sums per row, never the rows. Every rank of the mesh
// calls these functions. They throw Error if shapes or types do not fit.
#pragma once

#include "dtensor/dist_tensor.h"

namespace dtensor {

// (x - mean) / sqrt(variance + eps) * gamma + beta, with gamma and beta [n]. If
// undefined, gamma is 1 and beta is 0.
DistTensor layer_norm(const DistTensor& x, const DistTensor& gamma = {},
                      const DistTensor& beta = {}, double eps = 1e-5);
// x / sqrt(mean of squares + eps) * gamma.
DistTensor rms_norm(const DistTensor& x, const DistTensor& gamma = {},
                    double eps = 1e-6);

// y = norm(x), and the x that it was computed from.
struct Normed {
  DistTensor x, y;
};
// x = a + b, as in a residual stream, and y = norm(x). a and b have equal
// shapes. The forward pass computes x and y in one pass over the data, unless
// the last dimension is split, or a and b are both partial. The backward pass
// computes one cotangent for both a and b, and adds the cotangent of the
// returned x to it. If a and b are partial sums, they are added first and
// reduced once.
Normed add_layer_norm(const DistTensor& a, const DistTensor& b,
                      const DistTensor& gamma, const DistTensor& beta,
                      double eps = 1e-5);
Normed add_rms_norm(const DistTensor& a, const DistTensor& b,
                    const DistTensor& gamma, double eps = 1e-6);
// Return y = norm(x), and x in the layout that the norm used, with partial sums
// reduced, so that later operators need not reduce them again. The backward
// pass of the norm adds the cotangent of the returned x in the same pass over
// the data. The returned x may share memory with the given one.
Normed layer_norm_through(const DistTensor& x, const DistTensor& gamma,
                          const DistTensor& beta, double eps = 1e-5);
Normed rms_norm_through(const DistTensor& x, const DistTensor& gamma,
                        double eps = 1e-6);

}  // namespace dtensor
