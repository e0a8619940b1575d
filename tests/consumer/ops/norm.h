// SPDX-License-Identifier: Apache-2.0
// A header that dtensor has too, as dtensor/ops/norm.h.
#pragma once

namespace consumer {

constexpr double norm(double x) { return x < 0 ? -x : x; }

}  // namespace consumer
