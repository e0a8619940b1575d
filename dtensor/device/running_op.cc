// SPDX-License-Identifier: Apache-2.0
#include "dtensor/device/running_op.h"

namespace dtensor {
namespace {
thread_local const std::string_view* kept = nullptr;
thread_local int64_t kept_rank = -1;
}  // namespace

std::string_view running_op() { return kept ? *kept : std::string_view(); }

int64_t running_rank() { return kept_rank; }

void keep_running_op(const std::string_view* name, int64_t rank) {
  kept = name;
  kept_rank = rank;
}

}  // namespace dtensor
