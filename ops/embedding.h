// Table look-up.
#pragma once

#include "dtensor/dist_tensor.h"

namespace dtensor {

struct EmbeddingOptions {
  // Ids outside of the table give zeros and no gradient, instead of an Error.
  bool zeros_outside = false;
};

// The rows `ids` of the table [v, h], as [..., h]. ids [...] are i32 or i64. If
// the table's rows are split, the result is a partial sum. Every rank of the
// mesh calls it. Throws Error on every rank if an id is not in [0, v); if ids
// are split, the ranks exchange 16 bytes to find out (id_range.h).
DistTensor embedding(const DistTensor& table, const DistTensor& ids,
                     const EmbeddingOptions& = {});

}  // namespace dtensor
