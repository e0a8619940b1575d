// Layer norm (Ba et al., arXiv 1607.06450) and RMS norm (Zhang and Sennrich,
// arXiv 1910.07467) over the last dimension, which may be split: two small
// sums per row are exchanged, never the rows.
#pragma once
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

// (x - mean) / sqrt(variance + eps) * gamma + beta; gamma and beta are [n].
// Without them gamma is 1 and beta 0.
DistTensor layer_norm(const DistTensor& x, const DistTensor& gamma = {},
                      const DistTensor& beta = {}, double eps = 1e-5);
// x / sqrt(mean of squares + eps) * gamma.
DistTensor rms_norm(const DistTensor& x, const DistTensor& gamma = {},
                    double eps = 1e-6);

// y = norm(x), and that x.
struct Normed {
  DistTensor x, y;
};
// x = a + b, two of one shape, as a residual stream has it. One pass makes
// both, and in the backward pass one makes the cotangent of a and b, which is
// the same. Of two partial sums their sum is reduced, once.
Normed add_layer_norm(const DistTensor& a, const DistTensor& b,
                      const DistTensor& gamma, const DistTensor& beta,
                      double eps = 1e-5);
Normed add_rms_norm(const DistTensor& a, const DistTensor& b,
                    const DistTensor& gamma, double eps = 1e-6);
// x comes out where it was normed: reduced, if it was partial. Who goes on with
// that reduces it once, and the backward pass adds up x's cotangents in the
// pass of the norm's. It may have the memory of the x that was given.
Normed layer_norm_through(const DistTensor& x, const DistTensor& gamma,
                          const DistTensor& beta, double eps = 1e-5);
Normed rms_norm_through(const DistTensor& x, const DistTensor& gamma,
                        double eps = 1e-6);

// For all_ops().
std::vector<const Op*> norm_ops();

}  // namespace dtensor
