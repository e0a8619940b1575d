// Products of linear algebra under torch's names, each made of a few
// contractions (contraction.h) and sums. Every rank of the mesh calls them.
// They throw Error if shapes do not fit.
#pragma once
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// sum_i a[i] b[i] of two vectors of one size; the result has no dimensions.
DistTensor dot(const DistTensor& a, const DistTensor& b);
// Sum of a * b, which broadcast, over a dimension.
DistTensor vecdot(const DistTensor& a, const DistTensor& b, int dim = -1);
// [m, k] times [k].
DistTensor mv(const DistTensor& matrix, const DistTensor& vector);
// [m] and [n] give [m, n].
DistTensor outer(const DistTensor& a, const DistTensor& b);
// Contracts the last dimensions of both: [..., k] and [---, k] give [..., ---].
// A tensor without dimensions scales the other.
DistTensor inner(const DistTensor& a, const DistTensor& b);
// Contracts dims_a[i] of a with dims_b[i] of b. The other form contracts the
// last `dims` dimensions of a with the first `dims` of b.
DistTensor tensordot(const DistTensor& a, const DistTensor& b,
                     const std::vector<int>& dims_a,
                     const std::vector<int>& dims_b);
DistTensor tensordot(const DistTensor& a, const DistTensor& b, int dims);
// Kronecker product: each element of a times all of b.
DistTensor kron(const DistTensor& a, const DistTensor& b);
// The product of all, from left to right. The first and last may be vectors.
DistTensor multi_dot(const std::vector<DistTensor>& matrices);

// beta input + alpha a b, where `input` broadcasts. The products are: matrix
// and matrix; matrix and vector; outer product of two vectors; stacks of
// matrices; stacks, with the products summed. If beta is 0, `input` is ignored,
// even NaNs.
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
