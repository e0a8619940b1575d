// Rows of a table by index.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

class EmbeddingKernels {
 public:
  virtual ~EmbeddingKernels() = default;
  // Row ids[i] - lo of the table [hi - lo, h] if lo <= ids[i] < hi, else zeros.
  // out is [count, h]. ids are i32 or i64. All dtypes.
  virtual void embedding(Stream, DType, DType ids_type, int64_t count,
                         int64_t h, const void* table, int64_t table_stride,
                         const void* ids, int64_t lo, int64_t hi,
                         void* out) const = 0;
  // Sets dtable [hi - lo, h], contiguous, to zero unless `accumulate`, then
  // adds dy's rows in order of i. Floats; `dtable_type` is dy's type, or f32
  // for half types.
  virtual void embedding_backward(Stream, DType, DType ids_type, int64_t count,
                                  int64_t h, const void* dy, int64_t dy_stride,
                                  const void* ids, int64_t lo, int64_t hi,
                                  DType dtable_type, bool accumulate,
                                  void* dtable) const = 0;
};

}  // namespace dtensor::kernels
