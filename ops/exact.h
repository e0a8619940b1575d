// SPDX-License-Identifier: Apache-2.0
// Sums that do not depend on the mesh (RunOptions::reproducible).
//
// The parts of a sum that ranks may split are of type exact
// (placement/exact.h): they add up to the same bits in any order. The gradients
// of weights are tensors of that type until they are reduced, and other partial
// sums are P(exact) (ReduceOp::kExactSum). No other sum of floats may be split,
// and none of f64: what they add is gathered (OpFacts::Sums).
#pragma once
#include "dtensor/dist_tensor.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/rank_context.h"

namespace dtensor {

// Whether this run adds values of this type reproducibly.
inline bool reproducible(DType t) {
  return is_float(t) && RankContext::current().reproducible;
}

// Whether the parts of sums of this type are exact in this run.
inline bool has_exact_sums(DType t) {
  return t != DType::kF64 && reproducible(t);
}

// Ranks may cut a sum of products at multiples of this many terms.
inline int64_t sum_granule() {
  const RankContext* ctx = RankContext::current_or_null();
  return ctx && ctx->reproducible ? kernels::Gemm::kLeaf : 1;
}

// a + b. If one of them is exact, so is the sum.
DistTensor add_cotangents(const DistTensor& a, const DistTensor& b);

}  // namespace dtensor
