// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/id_range.h"

#include <utility>

#include "dtensor/data_check.h"
#include "dtensor/ops/kernels/cross_entropy.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/placement/error.h"

namespace dtensor {

IdSentence no_index(int64_t n, int64_t dim) {
  return [n, dim](int64_t id) {
    return fmt::format(
        "index {} is not in [0, {}), the indices of dimension {} of the "
        "tensor; pass indices in that range",
        id, n, dim);
  };
}

void check_ids_in(RankContext& ctx, std::string_view op, const Tensor& ids,
                  const Spec& layout, int64_t n, std::optional<int64_t> ignored,
                  IdSentence sentence) {
  const Tensor ends = Tensor::empty({2}, DType::kI64);
  kernels_of(*ctx.device)
      .run(ctx.stream, kernels::CeRange{.target_type = ids.dtype(),
                                        .n = ids.numel(),
                                        .targets = ids.data(),
                                        .ignored = ignored.value_or(0),
                                        .ignores = ignored ? 1 : 0,
                                        .ends = ends.mutable_ptr<int64_t>()});
  check_id_ends(ctx, op, ends, layout, n, std::move(sentence));
}

void check_id_ends(RankContext& ctx, std::string_view op, const Tensor& ends,
                   const Spec& layout, int64_t n, IdSentence sentence) {
  if (ctx.dry_run) return;
  check(ctx,
        {.op = std::string(op),
         .found = ends,
         .mesh = layout.mesh(),
         .axes = layout.split_axes(),
         .judge = [=, op = std::string(op), sentence = std::move(sentence)](
                      std::span<const int64_t> found) {
           const int64_t largest = found[0], smallest = ~found[1];
           if (largest >= n) fail(op, "{}", sentence(largest));
           if (smallest < 0) fail(op, "{}", sentence(smallest));
         }});
}

}  // namespace dtensor
