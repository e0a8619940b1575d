#include "dtensor/ops/id_range.h"

#include <utility>

#include "dtensor/data_check.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/placement/error.h"

namespace dtensor {

void check_ids_in(Compute& c, const Tensor& ids, const Spec& layout, int64_t n,
                  std::optional<int64_t> ignored, IdSentence sentence) {
  const Tensor ends = c.scratch({2}, DType::kI64);
  c.run(kernels::CeRange{.target_type = ids.dtype(),
                         .n = ids.numel(),
                         .targets = ids.data(),
                         .ignored = ignored.value_or(0),
                         .ignores = ignored ? 1 : 0,
                         .ends = ends.mutable_ptr<int64_t>()});
  check_id_ends(c, ends, layout, n, std::move(sentence));
}

void check_id_ends(Compute& c, const Tensor& ends, const Spec& layout,
                   int64_t n, IdSentence sentence) {
  if (c.context.dry_run) return;
  check(c.context,
        {.op = c.op.name(),
         .found = ends,
         .mesh = c.mesh(),
         .axes = layout.split_axes(),
         .judge = [=, op = c.op.name(), sentence = std::move(sentence)](
                      std::span<const int64_t> found) {
           const int64_t largest = found[0], smallest = ~found[1];
           if (largest >= n) fail(op, "{}", sentence(largest));
           if (smallest < 0) fail(op, "{}", sentence(smallest));
         }});
}

}  // namespace dtensor
