// Eigen's product, in a file of its own for the compiler's sake. Private.
#pragma once
#include <cstdint>

namespace dtensor::kernels::cpu {

// Row-major [m,k] (or, transposed, [k,m]) times row-major [k,n] ([n,k]) into
// row-major c, with the given distances between rows.
void gemm_f64(bool ta, bool tb, int64_t m, int64_t n, int64_t k,
              const double* a, int64_t lda, const double* b, int64_t ldb,
              bool accumulate, double* c, int64_t ldc);

}  // namespace dtensor::kernels::cpu
