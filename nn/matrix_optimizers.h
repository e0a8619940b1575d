// SPDX-License-Identifier: Apache-2.0
// Optimizers of whole matrices: Muon and Shampoo. (SOAP is in soap.h.) Their
// work is much more than that of other updates, so ranks divide it.
// Constructors throw Error for options out of range.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/nn/optimizers.h"

namespace dtensor::nn {

// Which ranks work on a matrix. kSplit: all that have parts of it, each on its
// own part. kOwned: one rank, its owner, on the whole matrix. kByPrice: the one
// of these that takes less time at the run's prices (placement/cost.h). Owners
// have about equally much to do (assign_owners() in owners.h).
enum class MatrixWork { kByPrice, kSplit, kOwned };

// The parts of matrices that have owners go there in one exchange, all
// matrices together, and the parts of their updates come back in another.
class MatrixOptimizer : public Optimizer {
 public:
  // For each matrix, in the order of parameters(), the mesh rank of its owner;
  // -1 if all ranks work on it.
  const std::vector<int64_t>& owners() const { return setup_.owners; }
  // The bytes that this rank receives in a step for matrices with owners: its
  // part of each matrix once, or for one of its own, the parts that it lacks.
  // Updates on whole matrices cannot do with fewer.
  int64_t owner_bytes() const;

 protected:
  // The prices of the work on a matrix: see MatrixTask in owners.h.
  struct Price {
    int64_t split_ps, whole_ps;
  };
  struct Setup {
    ParameterGroups groups = std::vector<ParameterGroup>{};
    AdamWOptions others = {};
    std::vector<SpecRef> sent = {};  // the matrices, as owners get them
    std::vector<int64_t> owners = {};
  };
  // Throws Error if one of the `matrices` is not a matrix. `others` get the
  // update of AdamW. `sent` is the type in which matrices go to owners, that of
  // the update if not set.
  static Setup setup(std::string_view optimizer,
                     const ParameterGroups& matrices,
                     const ParameterGroups& others, const AdamWOptions&,
                     MatrixWork, std::optional<DType> sent,
                     const std::function<Price(const Spec*)>&);
  // The states of one matrix, and its owner.
  using MatrixStates =
      std::function<std::vector<NamedTensor>(const DistTensor&, int64_t owner)>;
  MatrixOptimizer(Setup, double weight_decay, const MatrixStates&);

  // An update has three parts, which are called like update(). matrix() returns
  // the matrix [m, n] to work on, in the layout of the gradient. work() gets
  // that, or [1, m, n], of which the owner has all; it returns another such
  // matrix. finish() gets that, in the layout of the gradient, and returns the
  // new value of the parameter.
  virtual DistTensor matrix(ParameterUpdate&) = 0;
  virtual DistTensor work(ParameterUpdate&, const DistTensor&) = 0;
  virtual DistTensor finish(ParameterUpdate&, const DistTensor&) = 0;
  // A state [m, n] of an owned matrix as [1, m, n], for work(), and back.
  static DistTensor stacked(const DistTensor& state, const DistTensor& like);
  static DistTensor unstacked(const DistTensor& stack, const DistTensor& like);

 private:
  bool together() const final { return true; }
  std::vector<DistTensor> update_all(std::span<ParameterUpdate>) final;
  Setup setup_;
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
  MatrixWork work = MatrixWork::kByPrice;
};

// The update of a matrix is its averaged gradient with all singular values near
// 1, by ns_steps iterations of Newton and Schulz on the whole matrix, in any
// layout. Other parameters, and embeddings and heads as a rule, are `others`
// and get the update of AdamW.
//
// If all ranks work on a matrix whose sizes are m <= n, it is split along n for
// the iterations, over the axes that split its gradient: if they split m, the
// matrix is moved there and back. Each iteration all-reduces the product [m, m]
// of the matrix with its transpose, and multiplies the matrix by it twice; or
// if n >= 2 m, once by a polynomial of it, which each rank computes in part.
// Over p ranks with equal parts, each rank does 1 / p of the work, and receives
//
//   ns_steps * c m^2 (p - 1) / p  +  2 m n (p - 1) / p^2 if it is moved
//
// elements, where c is 2, or 3 if n >= 2 m, and one all-reduced number. An
// owner does all the work, and owner_bytes() is what ranks receive.
class Muon : public MatrixOptimizer {
 public:
  // Throws Error if one of the `matrices` is not a matrix.
  explicit Muon(const ParameterGroups& matrices, const MuonOptions& = {},
                const ParameterGroups& others = std::vector<ParameterGroup>{},
                const AdamWOptions& = {});

 private:
  DistTensor matrix(ParameterUpdate&) override;
  DistTensor work(ParameterUpdate&, const DistTensor&) override;
  DistTensor finish(ParameterUpdate&, const DistTensor&) override;
  MuonOptions options_;
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
  // The roots of left and right are computed in step 1 and every update_freq
  // steps after that. If it is above 1, they are states too: "left_root" and
  // "right_root".
  int64_t update_freq = 1;
  MatrixWork work = MatrixWork::kByPrice;
};

// If all ranks work on a matrix, the states have their rows split over the axes
// that split the gradient, and so has the work. The roots are computed in f64,
// by kIterations steps, each of which gathers two matrices: over p ranks, a
// step that computes them sends 2 kIterations (m^2 + n^2) (p - 1) / p f64
// elements to each, and a few matrices more. (Unless update_freq is 1, steps
// then differ in their bytes; in a Trainer, set check_bytes to false.) An owner
// has the states of its matrices.
class Shampoo : public MatrixOptimizer {
 public:
  // Throws Error if one of the `matrices` is not a matrix.
  explicit Shampoo(
      const ParameterGroups& matrices, const ShampooOptions& = {},
      const ParameterGroups& others = std::vector<ParameterGroup>{},
      const AdamWOptions& = {});
  // Enough for f64, if the largest eigenvalue is at most 1e12 times the least.
  static constexpr int kIterations = 40;

 private:
  DistTensor matrix(ParameterUpdate&) override;
  DistTensor work(ParameterUpdate&, const DistTensor&) override;
  DistTensor finish(ParameterUpdate&, const DistTensor&) override;
  ShampooOptions options_;
};

}  // namespace dtensor::nn
