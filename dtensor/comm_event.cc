// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm_event.h"

#include <algorithm>

#include "dtensor/rank_context.h"

namespace dtensor {

CommRecord::CommRecord()
    : context_(RankContext::current()),
      outer_(context_.record),
      first_(outer_ ? context_.events.size() : 0) {
  if (!outer_) context_.events.clear();
  context_.record = true;
}

CommRecord::~CommRecord() {
  context_.record = outer_;
  if (!outer_) context_.events.clear();
}

std::span<const CommEvent> CommRecord::events() const {
  const std::span<const CommEvent> all = context_.events;
  return all.subspan(std::min(first_, all.size()));
}

}  // namespace dtensor
