// SPDX-License-Identifier: Apache-2.0
// The optimizers of torch.optim, Lion and Shampoo. Updates, options and their
// defaults are torch's, except where a comment says otherwise. The rate is
// UpdateOptions::lr; "rate 0.01" gives torch's default. Constructors throw
// Error for options out of range.
#pragma once
#include <array>
#include <optional>

#include "dtensor/nn/optimizer.h"

namespace dtensor::nn {

// ---- Updates by a kernel ----

struct SGDOptions {
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

class SGD : public Optimizer {
 public:
  explicit SGD(const ParameterGroups&, const SGDOptions& = {});

 private:
  std::string_view kernel_name() const override { return "sgd"; }
  void update_parts(const Parts&) override;
  SGDOptions options_;
};

// Weight decay applies to every parameter unless its group says otherwise, as
// in torch; see decay_matrices().
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

class AdamW : public Optimizer {
 public:
  explicit AdamW(const ParameterGroups&, const AdamWOptions& = {});

 private:
  std::string_view kernel_name() const override { return "adamw"; }
  void update_parts(const Parts&) override;
  Rates rates(double lr, int64_t step) const override;
  AdamWOptions options_;
};

// ---- Updates by operators ----
//
// Adam, Adagrad, RMSprop and Lion are element-wise, and their updates send
// nothing.

// Rate 0.001. The weight decay is added to the gradient; AdamW's is not.
struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
};

class Adam : public Optimizer {
 public:
  explicit Adam(const ParameterGroups&, const AdamOptions& = {});

 private:
  DistTensor update(ParameterUpdate&) override;
  AdamOptions options_;
};

// Rate 0.01.
struct AdagradOptions {
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
};

class Adagrad : public Optimizer {
 public:
  explicit Adagrad(const ParameterGroups&, const AdagradOptions& = {});

 private:
  DistTensor update(ParameterUpdate&) override;
  AdagradOptions options_;
};

// Rate 0.01.
struct RMSpropOptions {
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool maximize = false;
};

class RMSprop : public Optimizer {
 public:
  explicit RMSprop(const ParameterGroups&, const RMSpropOptions& = {});

 private:
  DistTensor update(ParameterUpdate&) override;
  RMSpropOptions options_;
};

// Chen et al., arXiv 2302.06675: the sign of an average of gradients, and
// decoupled weight decay. Rate 0.0001; the state "exp_avg".
struct LionOptions {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
};

class Lion : public Optimizer {
 public:
  explicit Lion(const ParameterGroups&, const LionOptions& = {});

 private:
  DistTensor update(ParameterUpdate&) override;
  LionOptions options_;
};

// Shazeer and Stern, arXiv 1804.04235, as torch.optim.Adafactor computes it.
// Rate 0.01. A parameter [..., m, n] has the states "row_var" [..., m, 1] and
// "col_var" [..., 1, n], which are replicated over axes that split the missing
// dimension; a vector has "variance". For a split parameter, a step all-reduces
// those of its two means that a split crosses, the mean of row_var, and the
// norms of parameter and update: about m + n numbers, never the matrix.
struct AdafactorOptions {
  double beta2_decay = -0.8;
  // The least square root of the variance. Not set: the smallest number that
  // makes a difference to 1 in the type of the update, which is f32 for bf16
  // and f16 (in torch, it is the parameter's type).
  std::optional<double> eps1 = {};
  double eps2 = 1e-3;
  double d = 1;
  double weight_decay = 0;
  bool maximize = false;
};

class Adafactor : public Optimizer {
 public:
  explicit Adafactor(const ParameterGroups&, const AdafactorOptions& = {});

 private:
  DistTensor update(ParameterUpdate&) override;
  AdafactorOptions options_;
};

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
