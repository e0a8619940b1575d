// SPDX-License-Identifier: Apache-2.0
// Eigen's product, in a file of its own so that no other one includes Eigen's
// headers. Private to ops/kernels.
#pragma once
#include <cstdint>

namespace dtensor::kernels::cpu {

// Row-major [m, k] (or [k, m] if ta) times row-major [k, n] (or [n, k] if tb)
// into row-major c [m, n]. lda, ldb and ldc are the distances between rows.
// With `accumulate`, adds to c.
void gemm_f64(bool ta, bool tb, int64_t m, int64_t n, int64_t k,
              const double* a, int64_t lda, const double* b, int64_t ldb,
              bool accumulate, double* c, int64_t ldc);

}  // namespace dtensor::kernels::cpu
