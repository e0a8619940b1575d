// SPDX-License-Identifier: Apache-2.0
// Expresses a product of matrices with arbitrary strides in the form that
// cuBLASLt takes: products of column-major matrices, several at once if one
// stride leads from each to the next.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "dtensor/ops/kernels/folded_gemm.h"

namespace dtensor::kernels::cuda {

// A matrix in memory: element [i, j] of rows x cols is at i + j * ld.
struct ColumnMajor {
  int64_t rows = 0, cols = 0, ld = 0;
  bool transposed = false;  // the product uses its transpose
  int64_t next = 0;         // distance to the matrix of the next product
  bool operator==(const ColumnMajor&) const = default;
};

// c[i] (+)= left[i] * right[i] for i in [0, count); c is not transposed.
struct GemmCall {
  int64_t count = 1;
  ColumnMajor left, right, c;
  bool operator==(const GemmCall&) const = default;
};

struct GemmCalls {
  GemmCall call;
  // Whether left is b instead of a, and the call writes the transpose of c.
  bool swapped = false;
  // Whether several calls add to the same c.
  bool sums = false;
  // The batch dimensions for which the call is repeated.
  GemmBatch repeated[kMaxDims];
  int num_repeated = 0;
  std::span<const GemmBatch> repeats() const {
    return {repeated, static_cast<size_t>(num_repeated)};
  }
};

// nullopt if cuBLASLt cannot take one of the matrices: neither of its strides
// is 1, it overlaps itself, or one of its sizes is 0.
std::optional<GemmCalls> gemm_calls(const FoldedGemm&);

// Whether an epilogue can be part of the calls. cuBLASLt adds a bias only along
// the columns of column-major matrices, and computes b_sum only for a single
// product. (This does not check the types.)
bool takes_epilogue(const GemmCalls&, const FoldedGemm&, const Gemm&);

}  // namespace dtensor::kernels::cuda
