// SPDX-License-Identifier: Apache-2.0
// Adds checksums to the messages of any transport (--checksum).
#pragma once
#include <memory>

#include "dtensor/comm/transport.h"

namespace dtensor {

// Each message is followed by a short one, on the same channel, with its size
// and its checksum (64-bit XXH3). done() throws an Error that names the two
// ranks if the bytes that have arrived do not match these; the batch then
// counts as done. Both ends of a channel use checked messages, or neither does.
std::unique_ptr<PendingMessages> checked_messages(
    std::unique_ptr<PendingMessages>);

}  // namespace dtensor
