// Losses by torch's names, as means over all elements unless told otherwise.
// Cross entropy has a header of its own.
#pragma once
#include "dtensor/dist_tensor.h"
#include "dtensor/ops/cross_entropy.h"

namespace dtensor {

// (x - y)^2; |x - y|.
DistTensor mse_loss(const DistTensor& x, const DistTensor& y,
                    Reduction = Reduction::kMean);
DistTensor l1_loss(const DistTensor& x, const DistTensor& y,
                   Reduction = Reduction::kMean);
// (x - y)^2 / 2 below delta, delta (|x - y| - delta / 2) beyond; and that
// divided by beta = delta.
DistTensor huber_loss(const DistTensor& x, const DistTensor& y,
                      Reduction = Reduction::kMean, double delta = 1);
DistTensor smooth_l1_loss(const DistTensor& x, const DistTensor& y,
                          Reduction = Reduction::kMean, double beta = 1);

// -(y log p + (1 - y) log(1 - p)), the logarithms at least -100; of p =
// sigmoid(x) without overflow. `weight` (may be undefined) multiplies each.
DistTensor binary_cross_entropy(const DistTensor& p, const DistTensor& y,
                                Reduction = Reduction::kMean,
                                const DistTensor& weight = {});
DistTensor binary_cross_entropy_with_logits(const DistTensor& x,
                                            const DistTensor& y,
                                            Reduction = Reduction::kMean,
                                            const DistTensor& weight = {});

// y (log y - x) for log-probabilities x; with log_target y is given as log y.
DistTensor kl_div(const DistTensor& x, const DistTensor& y,
                  Reduction = Reduction::kMean, bool log_target = false);

// -weight[target] x[target] for log-probabilities x [n, classes, ...] and
// targets [n, ...]; a mean is weighted. Targets equal to ignore_index count for
// nothing. `weight` [classes] may be undefined.
DistTensor nll_loss(const DistTensor& x, const DistTensor& targets,
                    Reduction = Reduction::kMean, const DistTensor& weight = {},
                    int64_t ignore_index = -100);

// a . b / (max(|a|, eps) max(|b|, eps)) along a dimension.
DistTensor cosine_similarity(const DistTensor& a, const DistTensor& b,
                             int dim = 1, double eps = 1e-8);
// x / max(|x|_p, eps) along a dimension.
DistTensor normalize(const DistTensor& x, double p = 2, int dim = 1,
                     double eps = 1e-12);

}  // namespace dtensor
