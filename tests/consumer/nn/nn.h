// SPDX-License-Identifier: Apache-2.0
// A header that dtensor has too, as dtensor/nn/nn.h.
#pragma once

namespace consumer {

constexpr int kLayers = 2;

}  // namespace consumer
