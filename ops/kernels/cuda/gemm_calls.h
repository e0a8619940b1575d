// A product of matrices with any strides, as what cuBLASLt takes: products of
// column-major matrices, several at once where one stride leads from each to
// the next.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "dtensor/ops/kernels/folded_gemm.h"

namespace dtensor::kernels::cuda {

// As it lies in memory: element [i, j] of rows x cols at i + j ld.
struct ColumnMajor {
  int64_t rows = 0, cols = 0, ld = 0;
  bool transposed = false;  // the product is with its transpose
  int64_t next = 0;         // from the matrix of one product to the next's
  bool operator==(const ColumnMajor&) const = default;
};

// c[i] (+)= left[i] right[i] for i in [0, count); c is not transposed.
struct GemmCall {
  int64_t count = 1;
  ColumnMajor left, right, c;
  bool operator==(const GemmCall&) const = default;
};

struct GemmCalls {
  GemmCall call;
  // Whether left is b, and c is written as its transpose.
  bool swapped = false;
  // Whether several calls add to the same c.
  bool sums = false;
  // What the call is repeated for.
  GemmBatch repeated[kMaxDims];
  int num_repeated = 0;
  std::span<const GemmBatch> repeats() const {
    return {repeated, static_cast<size_t>(num_repeated)};
  }
};

// Nothing when cuBLASLt cannot take one of the matrices: neither of its strides
// is 1, it overlaps itself, or one of its sizes is 0.
std::optional<GemmCalls> gemm_calls(const FoldedGemm&);

// Can an epilogue be part of the calls? cuBLASLt has the bias along the columns
// of column-major matrices, and the sums of an operand or c in a single
// product; `item` is the size of an element of c. (Which types it takes is not
// said.)
bool takes_epilogue(const GemmCalls&, const FoldedGemm&, const Gemm&,
                    int64_t item);

}  // namespace dtensor::kernels::cuda
