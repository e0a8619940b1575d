// SPDX-License-Identifier: Apache-2.0
// Sums of products: everything that einsum can express.
//
// C[m,n] = sum_k A[m,k] B[k,n] is the rule "...mk,...kn->...mn"; shape,
// layouts, flops and gradient follow from it. sum, expand and permute are
// contractions of one operand.
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
// [b, m, k] times [b, k, n].
DistTensor bmm(const DistTensor&, const DistTensor&);
// For example "bshd,bthd->bhst"; spaces are ignored. As in torch, an index that
// occurs twice in one operand takes its diagonal, "..." are dimensions that
// broadcast, and without "->" the output is "..." and the sorted indices that
// occur once. Throws Error if the types differ; see cast().
//
// Three to 64 operands are contracted by pairs, in the cheapest order: its
// price is that of the pairs' flops and of the bytes that they send, by the
// prices that choose layouts (placement/choose.h), and of reducing a partial
// result. All orders of up to 6 operands compete (dynamic programming: Pfeifer
// et al., Physical Review E 90, 033315, 2014). Of more, the cheapest pair is
// contracted until 6 are left (greedy: Smith and Gray, opt_einsum, Journal of
// Open Source Software 3, 753, 2018). Indices that one operand alone has are
// summed first, and products have no indices that are not needed later. Specs
// and prices alone decide, so that all ranks take one order.
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
// Each function is made of a few contractions and sums. Every rank of the mesh
// calls them. They throw Error if shapes do not fit.

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
// The product of 2 to 51 matrices, in the order that einsum() chooses. The
// first and last may be vectors.
DistTensor multi_dot(TensorList matrices);

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

// ---- The linear layer ----
//
// Its kernel can include an activation.

enum class Activation : uint8_t { kNone, kGeluTanh };

// x weight^T + bias, as torch.nn.functional.linear. x is [..., k], weight is
// [n, k] and bias [n], or weight is [k] and bias []. The bias may be undefined.
// Types are promoted to the widest one. Then the activation is applied. Every
// rank of the mesh calls it. Throws Error if shapes do not fit.
//
// If k is split over ranks, the result stays a partial sum, to which one rank
// adds the bias. With an activation, the sum is reduced first.
//
// If x is the output of another layer's activation, the backward pass through
// this layer and that activation is one product. This requires that this layer
// has a bias or an activation, that the gradient of x has x's layout, and that
// all gradients of the other layer are requested together.
DistTensor linear(const DistTensor& x, const DistTensor& weight,
                  const DistTensor& bias = {},
                  Activation then = Activation::kNone);

// linear() with a weight of i8: row n of `weight` [n, k] stands for the row
// times scale[n]. x [..., k] and bias [n] have one float type, which is the
// result's; scale is of any float type. On the CPU, products of few rows read
// each weight once. The weight has no gradient. Every rank of the mesh calls
// it. Throws Error if shapes or types do not fit.
DistTensor int8_linear(const DistTensor& x, const DistTensor& weight,
                       const DistTensor& scale, const DistTensor& bias = {});

// A weight [n, k] of floats as int8_linear() takes it: scale[n] is the largest
// magnitude of row n divided by 127, and each weight the nearest multiple of
// it. Not recorded by autograd. Collective if k is split.
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
// the result as a sum over panels of k. For each panel, its row of ranks
// gathers these columns of a, and its column of ranks these rows of b; neither
// matrix is ever whole. A rank receives (y-1)/y of its rows of a and (x-1)/x of
// its columns of b:
//
//   mk/x (y-1)/y + kn/y (x-1)/x   elements.
//
// One all-gather of each matrix would receive as much. The size of the panels
// limits the memory.
//
// Mesh axes that split neither m nor n divide the contraction: each rank along
// them takes a part of every panel, and the result is partial over them. If a
// and b are replicated along such an axis of size c, a rank receives only 1/c
// of the elements above, and c results must be added. This is 2.5-D
// multiplication, or 3-D if c = x (Solomonik and Demmel, Euro-Par 2011).

struct SummaOptions {
  // The most bytes that a rank holds for a panel of a and of b together. 0: no
  // limit, one panel.
  int64_t panel_bytes = 0;
};

// a [m, k] times b [k, n], as matmul(a, b). The result's rows are split as a's
// rows and its columns as b's columns; it is partial over the other axes. In
// the backward pass the panels are gathered again, and the gradients return to
// the layouts of a and b panel by panel. Every rank of the mesh calls it.
// Throws Error if an axis splits both the rows of a and the columns of b, or if
// one column of a and one row of b take more than panel_bytes.
DistTensor summa(const DistTensor& a, const DistTensor& b,
                 const SummaOptions& = {});

// The number of panels of such a call.
int64_t summa_panels(const Spec* a, const Spec* b, const SummaOptions& = {});

}  // namespace dtensor
