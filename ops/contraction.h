// Sums of products: everything that einsum can say.
//
// C[m,n] = sum_k A[m,k] B[k,n] is the rule "...mk,...kn->...mn"; shape,
// layouts, flops and gradient follow from it. sum, expand and permute are
// contractions of one operand.
#pragma once
#include <string_view>
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

// NumPy's matmul: a matrix is the last two dimensions, which others broadcast
// in front of; a vector is a row on the left and a column on the right. As in
// einsum(), both operands have one type; see cast().
DistTensor matmul(const DistTensor&, const DistTensor&);
DistTensor bmm(const DistTensor&, const DistTensor&);
// "bshd,bthd->bhst"; spaces are ignored; an index twice in one operand is its
// diagonal. More than two operands are contracted from the left.
DistTensor einsum(std::string_view rule, const std::vector<DistTensor>&);

// Over the given dimensions (all when empty); removed unless keepdim. Sums of
// integers and booleans are i64.
DistTensor sum(const DistTensor&, std::vector<int> dims = {},
               bool keepdim = false);
DistTensor mean(const DistTensor&, std::vector<int> dims = {},
                bool keepdim = false);

// The sum over the dimensions that broadcasting from `shape` to x's repeated:
// the gradient of a broadcast.
DistTensor sum_to(const DistTensor& x, const Shape& shape);

// For the list of operators.
const Op& matmul_op();
std::vector<const Op*> contraction_ops();

}  // namespace dtensor
