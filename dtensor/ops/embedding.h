// Table look-up.
#pragma once
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

// Row ids[...] of the table [v, h], as [..., h]. ids are i32 or i64 in [0, v);
// one outside gives zeros. A table whose rows are split gives a partial sum.
DistTensor embedding(const DistTensor& table, const DistTensor& ids);

// For all_ops().
std::vector<const Op*> embedding_ops();

}  // namespace dtensor
