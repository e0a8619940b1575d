// SPDX-License-Identifier: Apache-2.0
// SOAP, an optimizer of whole matrices: AdamW in the eigenbasis of Shampoo's.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/nn/matrix_optimizers.h"

namespace dtensor::nn {

// Vyas et al., arXiv 2409.11321, algorithm 3, with the defaults of the authors'
// program. Rate 0.003.
struct SOAPOptions {
  double beta1 = 0.95, beta2 = 0.95;
  double shampoo_beta = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.01;
  int64_t precondition_frequency = 10;
  // A side of the matrix that is longer than this keeps its own basis.
  int64_t max_precond_dim = 10000;
};

// AdamW in the eigenbasis of Shampoo's matrices, which are averages here:
// "left" [m, m] of G G^T and "right" [n, n] of G^T G. As in that program, the
// first step only computes the bases "left_basis" and "right_basis", by eigh(),
// and every precondition_frequency steps after it, one step of power iteration
// and qr() follows the update. "exp_avg" is the average gradient; "exp_avg_sq"
// is in the bases. Every matrix has an owner, which has its states: a factor of
// a matrix is not split.
class SOAP : public MatrixOptimizer {
 public:
  // Throws Error if one of the `matrices` is not a matrix.
  explicit SOAP(const ParameterGroups& matrices, const SOAPOptions& = {},
                const ParameterGroups& others = std::vector<ParameterGroup>{},
                const AdamWOptions& = {});

 private:
  DistTensor matrix(ParameterUpdate&) override;
  DistTensor work(ParameterUpdate&, const DistTensor&) override;
  DistTensor finish(ParameterUpdate&, const DistTensor&) override;
  SOAPOptions options_;
};

}  // namespace dtensor::nn
