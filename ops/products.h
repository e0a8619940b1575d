// Products of linear algebra by torch's names, each a line of contractions
// (contraction.h) and sums.
#pragma once
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// sum_i a[i] b[i] of two vectors of one size, without dimensions.
DistTensor dot(const DistTensor& a, const DistTensor& b);
// The same along a dimension, the others broadcast.
DistTensor vecdot(const DistTensor& a, const DistTensor& b, int dim = -1);
// [m, k] times [k].
DistTensor mv(const DistTensor& matrix, const DistTensor& vector);
// [m] and [n] give [m, n].
DistTensor outer(const DistTensor& a, const DistTensor& b);
// Over the last dimension of both: [..., k] and [---, k] give [..., ---]. A
// product with a tensor without dimensions scales.
DistTensor inner(const DistTensor& a, const DistTensor& b);
// Over those dimensions of a and of b, in pairs; with a number, over the last
// ones of a and the first ones of b.
DistTensor tensordot(const DistTensor& a, const DistTensor& b,
                     const std::vector<int>& dims_a,
                     const std::vector<int>& dims_b);
DistTensor tensordot(const DistTensor& a, const DistTensor& b, int dims);
// Kronecker's: every element of a times b.
DistTensor kron(const DistTensor& a, const DistTensor& b);
// The matrices' product, from the left; the first and the last may be vectors.
DistTensor multi_dot(const std::vector<DistTensor>& matrices);

// beta input + alpha a b, where `input` broadcasts: of matrices; of a matrix
// and a vector; of two vectors (outer); of stacks of matrices; of stacks whose
// products are summed. With beta 0 nothing of input counts, not even a NaN.
DistTensor addmm(const DistTensor& input, const DistTensor& a,
                 const DistTensor& b, double beta = 1, double alpha = 1);
DistTensor addmv(const DistTensor& input, const DistTensor& matrix,
                 const DistTensor& vector, double beta = 1, double alpha = 1);
DistTensor addr(const DistTensor& input, const DistTensor& a,
                const DistTensor& b, double beta = 1, double alpha = 1);
DistTensor baddbmm(const DistTensor& input, const DistTensor& a,
                   const DistTensor& b, double beta = 1, double alpha = 1);
DistTensor addbmm(const DistTensor& input, const DistTensor& a,
                  const DistTensor& b, double beta = 1, double alpha = 1);

// y[..., o] = sum_ij a[..., i] weight[o, i, j] b[..., j] + bias[o].
DistTensor bilinear(const DistTensor& a, const DistTensor& b,
                    const DistTensor& weight, const DistTensor& bias = {});

}  // namespace dtensor
