// The operators of each family, which all_ops() joins.
#pragma once
#include <vector>

namespace dtensor {

class Op;
using OpList = std::vector<const Op*>;

OpList attention_ops();
OpList cat_ops();
OpList contraction_ops();
OpList cross_entropy_ops();
OpList embedding_ops();
OpList experts_ops();
OpList flip_ops();
OpList gather_ops();
OpList linear_ops();
OpList norm_ops();
OpList pointwise_ops();
OpList random_ops();
OpList reduce_ops();
OpList slice_ops();
OpList softmax_ops();
OpList topk_ops();
OpList view_ops();

// The one of contraction_ops() that matmul() calls for two matrices.
const Op& matmul_op();

}  // namespace dtensor
