// Tensors like others, ranges, and masks of matrices. Every rank of the mesh
// calls these functions.
#pragma once
#include "dtensor/dist_tensor.h"
#include "dtensor/ops/random.h"

namespace dtensor {

// Tensors of x's shape and dtype, split as x is, and whole where x is partial.
DistTensor zeros_like(const DistTensor& x);
DistTensor ones_like(const DistTensor& x);
DistTensor full_like(const DistTensor& x, double value);

// start, start + step, ... up to end, exclusive: ceil((end - start) / step)
// numbers. Throws Error if step is 0 or has the wrong sign.
DistTensor arange(double start, double end, double step, const Mesh&,
                  const Placements& = {}, DType = DType::kF32);
// n numbers from start to end, both included, at equal distances.
DistTensor linspace(double start, double end, int64_t n, const Mesh&,
                    const Placements& = {}, DType = DType::kF32);
// 1 on the main diagonal, 0 elsewhere.
DistTensor eye(int64_t rows, int64_t columns, const Mesh&, DType = DType::kF32);

// Copies of x [..., m, n] with zeros above (tril) or below (triu) the diagonal
// that lies `diagonal` columns to the right of the main one.
DistTensor tril(const DistTensor& x, int64_t diagonal = 0);
DistTensor triu(const DistTensor& x, int64_t diagonal = 0);
// The sum of the diagonal of a matrix.
DistTensor trace(const DistTensor& x);
// x, with `value` where the mask is true. The mask (bool) broadcasts to x.
DistTensor masked_fill(const DistTensor& x, const DistTensor& mask,
                       const DistTensor& value);
DistTensor masked_fill(const DistTensor& x, const DistTensor& mask,
                       double value);
// [..., classes] in i64: 1 at each index (i32 or i64), 0 elsewhere.
DistTensor one_hot(const DistTensor& indices, int64_t classes);

}  // namespace dtensor
