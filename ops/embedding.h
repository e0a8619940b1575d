// Table look-up.
#pragma once
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

struct EmbeddingOptions {
  // An id outside the table gives zeros, and no gradient, rather than an Error.
  bool zeros_outside = false;
};

// Row ids[...] of the table [v, h], as [..., h]. ids are i32 or i64. A table
// whose rows are split gives a partial sum. Throws Error on every rank when an
// id is not in [0, v); where ids are split, ranks send each other 16 bytes for
// that (id_range.h).
DistTensor embedding(const DistTensor& table, const DistTensor& ids,
                     const EmbeddingOptions& = {});

// For all_ops().
std::vector<const Op*> embedding_ops();

}  // namespace dtensor
