// SPDX-License-Identifier: Apache-2.0
// Losses under torch's names, which by default give a mean; and, for vectors,
// cosine_similarity() and normalize(). Every rank of the mesh calls these
// functions.
#pragma once
#include <string_view>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// kBatchMean divides the sum by the first size, as kl_div() needs for the
// mathematical value.
enum class Reduction { kNone, kMean, kSum, kBatchMean };

// mse_loss() is (x - y)^2, and l1_loss() is |x - y|.
DistTensor mse_loss(const DistTensor& x, const DistTensor& y,
                    Reduction = Reduction::kMean);
DistTensor l1_loss(const DistTensor& x, const DistTensor& y,
                   Reduction = Reduction::kMean);
// With d = |x - y|, huber_loss() is d^2 / 2 if d <= delta, else
// delta * (d - delta / 2). smooth_l1_loss() is huber_loss() with delta = beta,
// divided by beta; for beta 0 it is l1_loss().
DistTensor huber_loss(const DistTensor& x, const DistTensor& y,
                      Reduction = Reduction::kMean, double delta = 1);
DistTensor smooth_l1_loss(const DistTensor& x, const DistTensor& y,
                          Reduction = Reduction::kMean, double beta = 1);

// -(y * log(p) + (1 - y) * log(1 - p)). The form without logits counts a
// logarithm below -100 as -100. The form with logits takes x, where p =
// sigmoid(x), and does not overflow. `weight` (may be undefined) multiplies
// each term.
DistTensor binary_cross_entropy(const DistTensor& p, const DistTensor& y,
                                Reduction = Reduction::kMean,
                                const DistTensor& weight = {});
DistTensor binary_cross_entropy_with_logits(const DistTensor& x,
                                            const DistTensor& y,
                                            Reduction = Reduction::kMean,
                                            const DistTensor& weight = {});

// y * (log(y) - x) for log-probabilities x. With log_target, the argument y is
// log(y).
DistTensor kl_div(const DistTensor& x, const DistTensor& y,
                  Reduction = Reduction::kMean, bool log_target = false);

// -weight[target] * x[target] for log-probabilities x [n, classes, ...] and
// targets [n, ...]. The mean divides by the sum of the targets' weights.
// Targets equal to ignore_index are skipped. `weight` [classes] may be
// undefined.
DistTensor nll_loss(const DistTensor& x, const DistTensor& targets,
                    Reduction = Reduction::kMean, const DistTensor& weight = {},
                    int64_t ignore_index = -100);

// With log_input, exp(x) - y * x, else x - y * log(x + eps). `full` adds
// Stirling's approximation of log(y!) where y > 1.
DistTensor poisson_nll_loss(const DistTensor& x, const DistTensor& y,
                            Reduction = Reduction::kMean, bool log_input = true,
                            bool full = false, double eps = 1e-8);
// (log(v) + (x - y)^2 / v) / 2 for v = max(variance, eps), which counts as the
// variance itself in the gradient. `full` adds log(2 pi) / 2. As in torch, a
// variance of x's shape without the last dimension has one number for each row;
// any other variance broadcasts.
DistTensor gaussian_nll_loss(const DistTensor& x, const DistTensor& y,
                             const DistTensor& variance,
                             Reduction = Reduction::kMean, bool full = false,
                             double eps = 1e-6);

// The negative log-likelihood of texts under connectionist temporal
// classification (Graves et al., ICML 2006): log-probabilities [t, n, classes],
// targets [n, s] (integers, the text of each element, padded behind its end
// with any class), and the lengths [n] of both. The mean is over elements, each
// divided by its text's length. That of f16 is f32. If no path has the length,
// the loss is inf, or 0 with zero_infinity. Classes may be split: the ranks add
// the log- probabilities of the text's labels, and never gather the others.
DistTensor ctc_loss(const DistTensor& log_probs, const DistTensor& targets,
                    const DistTensor& input_lengths,
                    const DistTensor& target_lengths, int64_t blank = 0,
                    Reduction = Reduction::kMean, bool zero_infinity = false);

// ---- Margins ----
//
// y has the numbers 1 and -1.

// log(1 + exp(-y * x)).
DistTensor soft_margin_loss(const DistTensor& x, const DistTensor& y,
                            Reduction = Reduction::kMean);
// x where y is 1, and max(0, margin - x) where y is -1.
DistTensor hinge_embedding_loss(const DistTensor& x, const DistTensor& y,
                                Reduction = Reduction::kMean,
                                double margin = 1);
// max(0, margin - y * (a - b)).
DistTensor margin_ranking_loss(const DistTensor& a, const DistTensor& b,
                               const DistTensor& y,
                               Reduction = Reduction::kMean, double margin = 0);
// For vectors a and b [n] or [b, n], and y [] or [b]: 1 - c where y is 1, and
// max(0, c - margin) where y is -1, with c the cosine of their angle.
DistTensor cosine_embedding_loss(const DistTensor& a, const DistTensor& b,
                                 const DistTensor& y,
                                 Reduction = Reduction::kMean,
                                 double margin = 0);

struct TripletOptions {
  double margin = 1, p = 2, eps = 1e-6;
  bool swap = false;  // the negative is compared with the nearer of the others
};
// max(0, margin + d(anchor, positive) - d(anchor, negative)), where d is
// pairwise_distance() with p and eps.
DistTensor triplet_margin_loss(const DistTensor& anchor,
                               const DistTensor& positive,
                               const DistTensor& negative,
                               Reduction = Reduction::kMean,
                               const TripletOptions& = {});

// In the three functions below, x is [b, classes] or [classes]. Each row gives
// one number: the mean over its classes i of the given term.
//
// max(0, margin - x[y] + x[i])^p * weight[y] for all classes i except y, the
// class in `targets` [b] or, for a vector x, [] (i32 or i64). p is 1 or 2.
// `weight` [classes] may be undefined. Throws Error on every rank if a class
// does not exist.
DistTensor multi_margin_loss(const DistTensor& x, const DistTensor& targets,
                             Reduction = Reduction::kMean, int p = 1,
                             double margin = 1, const DistTensor& weight = {});
// The sum of max(0, 1 - x[j] + x[i]) over the classes j of the row in
// `targets`, for classes i that are not among them. A row of `targets` (i64,
// x's shape) ends at its first negative number. Computes [b, classes, classes]
// numbers.
DistTensor multilabel_margin_loss(const DistTensor& x,
                                  const DistTensor& targets,
                                  Reduction = Reduction::kMean);
// binary_cross_entropy_with_logits() of each class.
DistTensor multilabel_soft_margin_loss(const DistTensor& x, const DistTensor& y,
                                       Reduction = Reduction::kMean,
                                       const DistTensor& weight = {});

// ---- Vectors ----
// (a . b) / (max(|a|, eps) * max(|b|, eps)) along a dimension.
DistTensor cosine_similarity(const DistTensor& a, const DistTensor& b,
                             int dim = 1, double eps = 1e-8);
// x / max(|x|_p, eps) along a dimension.
DistTensor normalize(const DistTensor& x, double p = 2, int dim = 1,
                     double eps = 1e-12);

// ---- Cross entropy ----
//
// The logits may be split along the vocabulary; then a rank never holds more
// than its own columns.

// -log softmax(logits)[target] for logits [..., v] and targets [...] (i32 or
// i64), in f32 (in f64 for f64 logits). Targets equal to ignore_index are
// skipped, also in the mean. label_smoothing e gives the target the weight 1-e
// and spreads e evenly over all classes. `weight` [v] (may be undefined)
// multiplies the term of each class; the mean then divides by the sum of the
// targets' weights. Every rank of the mesh calls it. A target outside of
// [0, v), unless it is ignore_index, throws Error on every rank, at once on the
// CPU, and later on other devices (id_range.h). If targets are split, the ranks
// exchange 16 bytes to find out.
//
// Targets of a float type are probabilities [..., v]; the loss is then the sum
// of -weight * log softmax(logits) * targets over the classes, and no target is
// skipped.
DistTensor cross_entropy(const DistTensor& logits, const DistTensor& targets,
                         Reduction = Reduction::kMean,
                         int64_t ignore_index = -100,
                         double label_smoothing = 0,
                         const DistTensor& weight = {});

}  // namespace dtensor
