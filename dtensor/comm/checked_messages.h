// SPDX-License-Identifier: Apache-2.0
// Messages with a checksum, over any transport (--checksum).
#pragma once
#include <memory>

#include "dtensor/comm/transport.h"

namespace dtensor {

// Each message is followed by a short one, on the same channel, with its size
// and its checksum (64-bit XXH3). done() throws an Error that names the two
// ranks if the bytes that have come have another checksum; the batch is then
// over. Both ends of a channel use checked messages, or neither does.
std::unique_ptr<PendingMessages> checked_messages(
    std::unique_ptr<PendingMessages>);

}  // namespace dtensor
