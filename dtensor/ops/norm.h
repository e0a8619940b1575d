// Layer norm (Ba et al., arXiv 1607.06450) and RMS norm (Zhang and Sennrich,
// arXiv 1910.07467) over the last dimension, which may be split: two small
// sums per row are exchanged, never the rows.
#pragma once
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

// (x - mean) / sqrt(variance + eps) * gamma + beta; gamma and beta are [n].
DistTensor layer_norm(const DistTensor& x, const DistTensor& gamma,
                      const DistTensor& beta, double eps = 1e-5);
// x / sqrt(mean of squares + eps) * gamma.
DistTensor rms_norm(const DistTensor& x, const DistTensor& gamma,
                    double eps = 1e-6);

// For all_ops().
std::vector<const Op*> norm_ops();

}  // namespace dtensor
