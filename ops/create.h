// Tensors like others, ranges, and masks of matrices.
#pragma once
#include "dtensor/dist_tensor.h"
#include "dtensor/ops/random.h"

namespace dtensor {

// Of x's shape and type, split as x is (and whole where x is partial).
DistTensor zeros_like(const DistTensor& x);
DistTensor ones_like(const DistTensor& x);
DistTensor full_like(const DistTensor& x, double value);

// start, start + step, ... before end: ceil((end - start) / step) numbers.
DistTensor arange(double start, double end, double step, const Mesh&,
                  const Placements& = {}, DType = DType::kF32);
// n numbers from start to end, both included, at equal distances.
DistTensor linspace(double start, double end, int64_t n, const Mesh&,
                    const Placements& = {}, DType = DType::kF32);
// 1 where row and column agree, 0 elsewhere.
DistTensor eye(int64_t rows, int64_t columns, const Mesh&, DType = DType::kF32);

// x [..., m, n], and 0 above (below) the diagonal that lies `diagonal` above
// the main one.
DistTensor tril(const DistTensor& x, int64_t diagonal = 0);
DistTensor triu(const DistTensor& x, int64_t diagonal = 0);
// The sum of the diagonal of a matrix.
DistTensor trace(const DistTensor& x);
// x, and `value` where the mask (bool, broadcasts to x) is true.
DistTensor masked_fill(const DistTensor& x, const DistTensor& mask,
                       const DistTensor& value);
DistTensor masked_fill(const DistTensor& x, const DistTensor& mask,
                       double value);
// [..., classes], 1 at each index (i32 or i64) and 0 elsewhere, as i64.
DistTensor one_hot(const DistTensor& indices, int64_t classes);

}  // namespace dtensor
