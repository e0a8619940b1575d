// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cpu/gemm_f64.h"

#include <Eigen/Core>

namespace dtensor::kernels::cpu {
namespace {

template <int order>
using In = Eigen::Map<const Eigen::Matrix<double, -1, -1, order>, 0,
                      Eigen::OuterStride<>>;
using Out = Eigen::Map<Eigen::Matrix<double, -1, -1, Eigen::RowMajor>, 0,
                       Eigen::OuterStride<>>;

template <int order_a, int order_b>
void product(int64_t m, int64_t n, int64_t k, const double* a, int64_t lda,
             const double* b, int64_t ldb, bool accumulate, double* c,
             int64_t ldc) {
  const In<order_a> ma(a, m, k, Eigen::OuterStride<>(lda));
  const In<order_b> mb(b, k, n, Eigen::OuterStride<>(ldb));
  Out mc(c, m, n, Eigen::OuterStride<>(ldc));
  if (accumulate)
    mc.noalias() += ma * mb;
  else
    mc.noalias() = ma * mb;
}

}  // namespace

void gemm_f64(bool ta, bool tb, int64_t m, int64_t n, int64_t k,
              const double* a, int64_t lda, const double* b, int64_t ldb,
              bool accumulate, double* c, int64_t ldc) {
  constexpr int R = Eigen::RowMajor, C = Eigen::ColMajor;
  const auto f = ta ? (tb ? product<C, C> : product<C, R>)
                    : (tb ? product<R, C> : product<R, R>);
  f(m, n, k, a, lda, b, ldb, accumulate, c, ldc);
}

}  // namespace dtensor::kernels::cpu
