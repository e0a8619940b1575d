// SPDX-License-Identifier: Apache-2.0
// A header of the consumer. dtensor has one of the same name, dtensor/nn/nn.h;
// neither may hide the other.
#pragma once

namespace consumer {

constexpr int kLayers = 2;

}  // namespace consumer
