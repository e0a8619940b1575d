// The operands of a norm with their types, on every device. Private to
// ops/kernels.
#pragma once
#include <cstdint>

#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/norm.h"

namespace dtensor::kernels {

// S is the type of elements, C the type in which they are computed.
template <class S, class C>
struct NormRows {
  int64_t rows, n;
  const S *x, *gamma, *beta, *residual, *dsum;
  S* sum;
  int64_t x_stride, residual_stride, dsum_stride;
  const C *mean, *rstd;
  const S* dy;
  int64_t dy_stride;

  NormRows(const Norm& a, const void* mean_, const void* rstd_,
           const void* dy_ = nullptr, int64_t dy_stride_ = 0)
      : rows(a.rows),
        n(a.n),
        x(static_cast<const S*>(a.x)),
        gamma(static_cast<const S*>(a.gamma)),
        beta(static_cast<const S*>(a.beta)),
        residual(static_cast<const S*>(a.residual)),
        dsum(static_cast<const S*>(a.dsum)),
        sum(static_cast<S*>(a.sum)),
        x_stride(a.x_stride),
        residual_stride(a.residual_stride),
        dsum_stride(a.dsum_stride),
        mean(static_cast<const C*>(mean_)),
        rstd(static_cast<const C*>(rstd_)),
        dy(static_cast<const S*>(dy_)),
        dy_stride(dy_stride_) {}

  // Row r of a matrix. Null, the address of an empty one, stays null.
  template <class T>
  DT_HD static T* row(T* p, int64_t r, int64_t stride) {
    return p ? p + r * stride : p;
  }
  DT_HD const S* x_row(int64_t r) const { return row(x, r, x_stride); }
  DT_HD const S* dy_row(int64_t r) const { return row(dy, r, dy_stride); }
  DT_HD C mean_of(int64_t r) const { return mean ? mean[r] : C(0); }
};

}  // namespace dtensor::kernels
