// Elements of rows, selected by rank or by index.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

class SelectKernels {
 public:
  virtual ~SelectKernels() = default;
  // The k largest (or smallest) elements of each row of [rows, n], best first,
  // and their ids. Among equal elements, lower ids come first. A NaN counts as
  // largest. Element i has the id ids[row, i], or first + i if `ids` is null. x
  // has a row stride; everything else is contiguous. All dtypes but bool.
  // REQUIRES: k <= n, and the ids of a row are distinct.
  virtual void topk_rows(Stream, DType, int64_t rows, int64_t n, const void* x,
                         int64_t x_stride, const int64_t* ids, int64_t first,
                         int64_t k, bool largest, void* values,
                         int64_t* value_ids) const = 0;
  // out[r, j] = x[r, index[r, j] - lo] if lo <= index < hi, else 0. out and
  // index are [rows, k], contiguous. All dtypes.
  virtual void take_rows(Stream, DType, int64_t rows, int64_t k, const void* x,
                         int64_t x_stride, const int64_t* index, int64_t lo,
                         int64_t hi, void* out) const = 0;
  // The transpose of take_rows(): sets dx [rows, hi - lo] to 0, then adds dy[r,
  // j] to dx[r, index[r, j] - lo], in order of j. All but dy is contiguous.
  // Floats.
  virtual void put_rows(Stream, DType, int64_t rows, int64_t k, const void* dy,
                        int64_t dy_stride, const int64_t* index, int64_t lo,
                        int64_t hi, void* dx) const = 0;
};

}  // namespace dtensor::kernels
