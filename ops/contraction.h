// SPDX-License-Identifier: Apache-2.0
// Sums of products: everything that einsum can express.
//
// C[m,n] = sum_k A[m,k] * B[k,n] is the rule "...mk,...kn->...mn"; shape,
// layouts, flops and gradient follow from it. sum and expand are contractions
// of one operand.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// NumPy's matmul. The last two dimensions are the matrix, and the others
// broadcast; a vector is a row on the left and a column on the right. Throws
// Error if the operands have different dtypes; see cast().
DistTensor matmul(const DistTensor&, const DistTensor&);
// Multiplies stacks of matrices: [b, m, k] times [b, k, n].
DistTensor bmm(const DistTensor&, const DistTensor&);
// Computes the sum of products that the rule describes, for example
// "bshd,bthd->bhst". Spaces are ignored. As in torch, an index that occurs
// twice in one operand takes its diagonal, "..." are dimensions that broadcast,
// and without "->" the output is "..." and the sorted indices that occur once.
// Throws Error if the types differ; see cast().
//
// Three to 64 operands are contracted in pairs, in the cheapest order. The
// price of an order includes its flops, the bytes that it sends, and the
// reduction of a partial result, at the prices that choose layouts
// (placement/choose.h). Up to 6 operands, all orders compete (dynamic
// programming: Pfeifer et al., Physical Review E 90, 033315, 2014). If there
// are more, the cheapest pair is contracted until 6 are left (greedy: Smith and
// Gray, opt_einsum, Journal of Open Source Software 3, 753, 2018). An index
// that only one operand has, and not the output, is summed first. A product
// keeps only the indices that are needed later. The order depends only on specs
// and prices, so it is the same on all ranks.
DistTensor einsum(std::string_view rule, TensorList);

// Sum or mean over the given dimensions (all if empty), which are removed
// unless keepdim. Sums of integers and bools are i64; mean() throws Error for
// them.
DistTensor sum(const DistTensor&, std::vector<int> dims = {},
               bool keepdim = false);
DistTensor mean(const DistTensor&, std::vector<int> dims = {},
                bool keepdim = false);

// Sums x over the dimensions in which broadcasting `shape` to x's shape repeats
// elements: the gradient of a broadcast.
DistTensor sum_to(const DistTensor& x, const Shape& shape);

// ---- Linear algebra, under torch's names ----
//
// Each function is made of a few contractions, products and sums. Every rank of
// the mesh calls it. It throws Error if shapes do not fit.

// sum_i a[i] b[i] of two vectors of one size; the result has no dimensions.
DistTensor dot(const DistTensor& a, const DistTensor& b);
// Sums a * b over a dimension, after broadcasting a and b.
DistTensor vecdot(const DistTensor& a, const DistTensor& b, int dim = -1);
// Multiplies a matrix [m, k] by a vector [k].
DistTensor mv(const DistTensor& matrix, const DistTensor& vector);
// The outer product of vectors [m] and [n], a matrix [m, n].
DistTensor outer(const DistTensor& a, const DistTensor& b);
// Contracts the last dimensions of both: [..., k] and [---, k] give [..., ---].
// An operand without dimensions scales the other one.
DistTensor inner(const DistTensor& a, const DistTensor& b);
// Contracts dims_a[i] of a with dims_b[i] of b. The form with a number
// contracts the last `dims` dimensions of a with the first `dims` of b.
DistTensor tensordot(const DistTensor& a, const DistTensor& b,
                     const std::vector<int>& dims_a,
                     const std::vector<int>& dims_b);
DistTensor tensordot(const DistTensor& a, const DistTensor& b, int dims);
// Kronecker product: each element of a times all of b.
DistTensor kron(const DistTensor& a, const DistTensor& b);
// The product of 2 to 51 matrices, in the order that einsum() chooses. The
// first and last may be vectors.
DistTensor multi_dot(TensorList matrices);

// beta * input + alpha * (product of a and b); `input` broadcasts. addmm()
// multiplies two matrices, addmv() a matrix and a vector, and baddbmm() two
// stacks of matrices. addr() takes the outer product of two vectors. addbmm()
// also sums the products of its two stacks. If beta is 0, `input` is ignored,
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

// ---- The linear layer ----
//
// Its kernel can include an activation.

enum class Activation : uint8_t { kNone, kGeluTanh };

// Computes x weight^T + bias, like torch.nn.functional.linear, and then the
// activation. x is [..., k], weight is [n, k] and bias [n], or weight is [k]
// and bias []. The bias may be undefined. Different types are promoted to one.
// Every rank of the mesh calls it. Throws Error if shapes do not fit.
//
// If k is split over ranks, the result stays a partial sum, to which one rank
// adds the bias. With an activation, the sum is reduced first.
DistTensor linear(const DistTensor& x, const DistTensor& weight,
                  const DistTensor& bias = {},
                  Activation then = Activation::kNone);

// linear() with an i8 weight [n, k], whose row i stands for scale[i] times that
// row. x [..., k] and bias [n] have one float type, and so has the result;
// scale is of any float type. On the CPU, if x has few rows, each weight is
// read only once. The weight has no gradient. Every rank of the mesh calls it.
// Throws Error if shapes or types do not fit.
DistTensor int8_linear(const DistTensor& x, const DistTensor& weight,
                       const DistTensor& scale, const DistTensor& bias = {});

// Converts a float weight [n, k] to the form that int8_linear() takes. scale[i]
// is the largest magnitude in row i divided by 127, and each weight of the row
// becomes the nearest multiple of scale[i]. Autograd does not record it.
// Collective if k is split.
struct Int8Weight {
  DistTensor weight;  // i8
  DistTensor scale;   // f32; f64 for f64
};
Int8Weight to_int8(const DistTensor& weight);

// ---- SUMMA ----
//
// Multiplies two matrices that are both split in two dimensions, by panels.
//
// SUMMA (van de Geijn and Watts, Concurrency: Practice and Experience 9, 1997)
// multiplies a [m, k] and b [k, n] on a mesh x by y. m is split over x, n over
// y, and k over the other axis in each operand. A rank computes its block of
// the result as a sum over panels of k. For each panel, the ranks of a row of
// the mesh gather the panel's columns of a, and the ranks of a column gather
// its rows of b. If x and y are above 1, no rank ever holds a whole matrix. A
// rank receives (y-1)/y of its rows of a and (x-1)/x of its columns of b:
//
//   m*k/x * (y-1)/y  +  k*n/y * (x-1)/x   elements.
//
// A single all-gather of each matrix would receive as much. The size of the
// panels limits the memory.
//
// Mesh axes that split neither m nor n divide the contraction: each rank along
// them takes a part of every panel, and the result is partial over them. If a
// and b are replicated along such an axis of size c, a rank receives only 1/c
// of the elements above, and c results must be added. This is 2.5-D
// multiplication, or 3-D if c = x (Solomonik and Demmel, Euro-Par 2011).

struct SummaOptions {
  // The most bytes that a rank gathers for a panel of a and of b together. 0:
  // no limit, one panel. Ignored if nothing has to be gathered.
  int64_t panel_bytes = 0;
};

// Multiplies a [m, k] by b [k, n], as matmul(a, b). The result's rows are split
// as a's rows and its columns as b's columns; it is partial over the other
// axes. In the backward pass the panels are gathered again, and the gradients
// return to the layouts of a and b panel by panel. Every rank of the mesh calls
// it. Throws Error if an axis splits both the rows of a and the columns of b,
// or if one column of a and one row of b take more than panel_bytes.
DistTensor summa(const DistTensor& a, const DistTensor& b,
                 const SummaOptions& = {});

// The number of panels that summa() takes for such operands.
int64_t summa_panels(const Spec* a, const Spec* b, const SummaOptions& = {});

}  // namespace dtensor
