// SPDX-License-Identifier: Apache-2.0
// A header that dtensor has too, as dtensor/placement/split.h.
#pragma once

namespace consumer {
inline constexpr int kRows = 6;
}  // namespace consumer
