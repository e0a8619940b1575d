// Elements of rows by their rank and by index.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

class SelectKernels {
 public:
  virtual ~SelectKernels() = default;
  // The k largest (or smallest) of each row of [rows, n], the best first, and
  // their ids; of equal ones those of the lowest id. A NaN is larger than all
  // else. Element i has the id ids[row, i], or first + i when `ids` is null. x
  // has a row stride, all else is contiguous. All dtypes but bool. REQUIRES:
  // k <= n, and no two ids of a row are equal.
  virtual void topk_rows(Stream, DType, int64_t rows, int64_t n, const void* x,
                         int64_t x_stride, const int64_t* ids, int64_t first,
                         int64_t k, bool largest, void* values,
                         int64_t* value_ids) const = 0;
  // out[r, j] = x[r, index[r, j] - lo] where lo <= index < hi, else 0; out and
  // index are [rows, k], contiguous. All dtypes.
  virtual void take_rows(Stream, DType, int64_t rows, int64_t k, const void* x,
                         int64_t x_stride, const int64_t* index, int64_t lo,
                         int64_t hi, void* out) const = 0;
  // The transpose: dx [rows, hi - lo] = 0, then dx[r, index[r, j] - lo] +=
  // dy[r, j], in order of j. All contiguous but dy. Floats.
  virtual void put_rows(Stream, DType, int64_t rows, int64_t k, const void* dy,
                        int64_t dy_stride, const int64_t* index, int64_t lo,
                        int64_t hi, void* dx) const = 0;
};

}  // namespace dtensor::kernels
