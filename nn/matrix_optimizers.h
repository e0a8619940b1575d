// SPDX-License-Identifier: Apache-2.0
// Optimizers of whole matrices: Muon and Shampoo. Constructors throw Error for
// options out of range.
#pragma once
#include <array>
#include <optional>

#include "dtensor/nn/optimizers.h"

namespace dtensor::nn {

// ---- Muon ----

// The factor of Muon's rate for a matrix [m, n]: sqrt(max(1, m / n)), 0.2
// sqrt(max(m, n)) (Liu et al., arXiv 2502.16982), or sqrt(m / n).
enum class AdjustLr { kOriginal, kMatchRmsAdamW, kSpectralUnclamped };

// Jordan et al., kellerjordan.github.io/posts/muon. Rate 0.001.
struct MuonOptions {
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};
  double eps = 1e-7;
  int ns_steps = 5;
  AdjustLr adjust_lr_fn = AdjustLr::kOriginal;
  // The type in which the iterations compute; that of the update if not set.
  // torch computes in bf16.
  std::optional<DType> ns_dtype = {};
};

// The update of a matrix is its averaged gradient with all singular values near
// 1, by ns_steps iterations of Newton and Schulz on the whole matrix, in any
// layout. Other parameters, and embeddings and heads as a rule, are `others`
// and get the update of AdamW.
//
// A matrix whose sizes are m <= n is split along n for the iterations, over the
// axes that split its gradient: if they split m, the matrix is moved there and
// back. Each iteration all-reduces the product [m, m] of the matrix with its
// transpose, and multiplies the matrix by it twice; or if n >= 2 m, once by a
// polynomial of it, which each rank computes in part. Over p ranks with equal
// parts, each rank does 1 / p of the work, and receives
//
//   ns_steps * c m^2 (p - 1) / p  +  2 m n (p - 1) / p^2 if it is moved
//
// elements, where c is 2, or 3 if n >= 2 m, and one all-reduced number. (To
// gather the matrix would send m n (p - 1) / p, and leave each rank with all
// the work.)
class Muon : public Optimizer {
 public:
  // Throws Error if one of the `matrices` is not a matrix.
  explicit Muon(const ParameterGroups& matrices, const MuonOptions& = {},
                const ParameterGroups& others = std::vector<ParameterGroup>{},
                const AdamWOptions& = {});

 private:
  DistTensor update(ParameterUpdate&) override;
  MuonOptions options_;
  AdamWOptions others_;
};

// ---- Shampoo ----

// Gupta, Koren and Singer, arXiv 1802.09568, algorithm 1: the gradient G [m, n]
// becomes left^(-1/4) G right^(-1/4), where left [m, m] and right [n, n] begin
// with epsilon on the diagonal, and each step adds G G^T and G^T G. The decay
// is added to the gradient, and the momentum is that of SGD.
struct ShampooOptions {
  double momentum = 0;
  double weight_decay = 0;
  double epsilon = 1e-4;
};

// The states "left" and "right" have their rows split over the axes that split
// the gradient, and so has the work. The roots are computed in f64, by
// kIterations steps, each of which gathers two matrices: over p ranks, a step
// sends 2 kIterations (m^2 + n^2) (p - 1) / p f64 elements to each, and a few
// matrices more. `others` get the update of AdamW.
class Shampoo : public Optimizer {
 public:
  // Throws Error if one of the `matrices` is not a matrix.
  explicit Shampoo(
      const ParameterGroups& matrices, const ShampooOptions& = {},
      const ParameterGroups& others = std::vector<ParameterGroup>{},
      const AdamWOptions& = {});
  // Enough for f64, if the largest eigenvalue is at most 1e12 times the least.
  static constexpr int kIterations = 40;

 private:
  DistTensor update(ParameterUpdate&) override;
  ShampooOptions options_;
  AdamWOptions others_;
};

}  // namespace dtensor::nn
