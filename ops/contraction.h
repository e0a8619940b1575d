// Sums of products: everything that einsum can express.
//
// C[m,n] = sum_k A[m,k] B[k,n] is the rule "...mk,...kn->...mn"; shape,
// layouts, flops and gradient follow from it. sum, expand and permute are
// contractions of one operand.
#pragma once
#include <string_view>
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
DistTensor einsum(std::string_view rule, const std::vector<DistTensor>&);

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

}  // namespace dtensor
