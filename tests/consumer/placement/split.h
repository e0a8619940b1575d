// SPDX-License-Identifier: Apache-2.0
// A header of the consumer. dtensor has one of the same name,
// dtensor/placement/split.h; neither may hide the other.
#pragma once

namespace consumer {
inline constexpr int kRows = 6;
}  // namespace consumer
