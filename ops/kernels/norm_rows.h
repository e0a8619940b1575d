// SPDX-License-Identifier: Apache-2.0
// A norm's operands as typed pointers, for the kernels of every device. Private
// to ops/kernels.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/norm.h"

namespace dtensor::kernels {

// S is the type of elements, C the type in which they are computed.
template <class S, class C>
struct NormRows {
  int64_t rows, n;
  Matrix x, residual, dy, dsum;
  const S *gamma, *beta;
  S* sum;
  const C *mean, *rstd;
  bool by_leaves;

  explicit NormRows(const Norm& a)
      : rows(a.x.rows),
        n(a.x.n),
        x(a.x),
        residual(a.residual),
        dy(a.dy),
        dsum(a.dsum),
        gamma(static_cast<const S*>(a.gamma)),
        beta(static_cast<const S*>(a.beta)),
        sum(static_cast<S*>(a.sum)),
        mean(static_cast<const C*>(a.mean)),
        rstd(static_cast<const C*>(a.rstd)),
        by_leaves(a.by_leaves) {}

  DT_HD const S* x_row(int64_t r) const { return row_at<S>(x, r); }
  DT_HD const S* dy_row(int64_t r) const { return row_at<S>(dy, r); }
  DT_HD C mean_of(int64_t r) const { return mean ? mean[r] : C(0); }
};

}  // namespace dtensor::kernels
