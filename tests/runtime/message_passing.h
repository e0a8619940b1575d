// Ranks that share no memory: all that one gets from another are byte buffers,
// through queues. A complete communicator, written as one between processes
// would be, so that whatever passes on it needs nothing that only threads have.
#pragma once
#include <cstdint>
#include <memory>

#include "dtensor/runtime/comm/backend.h"

namespace dtensor::testing {

// For RunOptions::backend. What a rank receives is counted from the sizes of
// the messages. Reductions give the same bits as on thread ranks.
std::shared_ptr<Backend> message_passing_backend(int64_t world);

}  // namespace dtensor::testing
