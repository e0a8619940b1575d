// SPDX-License-Identifier: Apache-2.0
#include "dtensor/all_gather_bytes.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "dtensor/comm/communicator.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"

namespace dtensor {

std::vector<std::string> all_gather_bytes(std::string_view op,
                                          uint64_t fingerprint,
                                          std::string_view mine) {
  RankContext& context = RankContext::current();
  if (context.dry_run) return {std::string(mine)};
  const auto world = static_cast<size_t>(context.world_size);
  std::vector<int64_t> ranks(world);
  std::iota(ranks.begin(), ranks.end(), 0);
  Communicator& all = context.communicator(ranks);
  const Call call{
      .kind = StepKind::kAllGatherBytes, .op = op, .fingerprint = fingerprint};
  const int64_t size = std::ssize(mine);
  std::vector<int64_t> sizes(world);
  all.all_gather_bytes(call, &size, sizeof(size), sizes.data());
  std::vector<std::string> texts(world);
  const auto most =
      static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end()));
  if (most == 0) return texts;
  std::string padded(mine), together(most * world, ' ');
  padded.resize(most, ' ');
  all.all_gather_bytes(call, padded.data(), static_cast<int64_t>(most),
                       together.data());
  for (size_t r = 0; r < world; ++r)
    texts[r] = together.substr(r * most, static_cast<size_t>(sizes[r]));
  return texts;
}

std::string broadcast_value(std::string_view mine, int64_t from) {
  const int64_t world = RankContext::current().world_size;
  DT_CHECK(from >= 0 && from < world, "broadcast_value",
           "this run has no rank {}; pass 0 to {}", from, world - 1);
  std::vector<std::string> all = all_gather_bytes("broadcast_value", 0, mine);
  return std::move(all[all.size() == 1 ? 0 : static_cast<size_t>(from)]);
}

}  // namespace dtensor
