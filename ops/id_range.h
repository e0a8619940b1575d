// Ids that name a row, or a class: are they in range?
#pragma once
#include <functional>
#include <optional>

#include "dtensor/ops/op.h"

namespace dtensor {

// Throws Error, on every rank of the mesh alike, what `sentence` says of an id
// that is not in [0, n), `ignored` aside: at once on the CPU, and on other
// devices as dtensor/data_check.h says. `ids`, i32 or i64, are this rank's part
// of an input whose layout is `layout`. Ranks that hold other ids send each
// other 16 bytes, which no budget counts. Does nothing in a dry run.
void check_ids_in(Compute&, const Tensor& ids, const Spec& layout, int64_t n,
                  std::optional<int64_t> ignored,
                  std::function<std::string(int64_t id)> sentence);

}  // namespace dtensor
