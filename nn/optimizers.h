// SPDX-License-Identifier: Apache-2.0
// The optimizers of torch.optim, and Lion. (Muon is in matrix_optimizers.h.)
// Updates, options and their defaults are torch's, except where a comment says
// otherwise. The rate is UpdateOptions::lr; "rate 0.01" gives torch's default.
// Constructors throw Error for options out of range.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

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
  // The same update by operators, with the states "exp_avg" and "exp_avg_sq":
  // for classes that give some parameters another one.
  static DistTensor updated(ParameterUpdate&, const AdamWOptions&);

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

// ---- L-BFGS ----

enum class LineSearch : uint8_t { kNone, kStrongWolfe };

// As torch.optim.LBFGS. Rate 1.
struct LBFGSOptions {
  int64_t max_iter = 20;
  int64_t max_eval = 0;  // 0: max_iter * 5 / 4
  double tolerance_grad = 1e-7;
  double tolerance_change = 1e-9;
  // The states "old_dirs" and "old_stps" have room for so many parameters.
  int64_t history_size = 100;
  // kStrongWolfe: minimize() looks for a step whose loss and slope meet the
  // strong Wolfe conditions, by Nocedal and Wright's algorithms 3.5 and 3.6
  // with cubic interpolation, and calls the closure for each length that it
  // tries. All ranks compare the same numbers.
  LineSearch line_search_fn = LineSearch::kNone;
};

// Nocedal and Wright, Numerical Optimization, algorithm 7.4, for parameters of
// one mesh. step() makes one iteration with the gradients at the parameters. It
// all-reduces three numbers for each pair of the history, which begins empty,
// and three more. So a step's bytes grow until the history is full: in a
// Trainer, set check_bytes to false.
class LBFGS : public Optimizer {
 public:
  // Throws Error if parameters are on several meshes, or a group has a weight
  // decay.
  explicit LBFGS(const ParameterGroups&, const LBFGSOptions& = {});
  // Called on every rank. Returns the loss, a number tensor without dimensions,
  // and its gradients, as step() takes them.
  struct Evaluation {
    DistTensor loss;
    std::vector<DistTensor> gradients;
  };
  using Closure = std::function<Evaluation()>;
  // torch's step(closure): iterations until an option ends them. The closure
  // evaluates the parameters before each. Returns the first loss. The host
  // waits for each evaluation. A line search throws Error for options that
  // scale, clip or skip, since the loss and the gradients would not agree.
  double minimize(const Closure&, const UpdateOptions& = {.lr = 1});

 private:
  Evaluation search(const Closure&, const std::vector<DistTensor>& from,
                    const Evaluation& at_start, int64_t most, int64_t& calls);
  bool together() const override { return true; }
  std::vector<DistTensor> update_all(std::span<ParameterUpdate>) override;
  LBFGSOptions options_;
  bool level_ = false;  // the last update's direction does not descend
};

// ---- Clipping ----

// The gradients times clip_scale(), as torch's clip_grad_norm_ makes them of
// the stored ones. The host waits for the norm; UpdateOptions::clip does
// without. Collective as grad_norm() is. Throws Error for a tensor that
// requires a gradient, as parameters do.
std::vector<DistTensor> clip_grad_norm(const std::vector<DistTensor>& grads,
                                       double max_norm,
                                       bool error_if_nonfinite = false);

}  // namespace dtensor::nn
