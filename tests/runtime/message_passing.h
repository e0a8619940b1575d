// Ranks that share no memory, in one process: a run of several processes but
// for their wire, which is queues of byte buffers. What passes on it needs
// nothing that only threads have.
#pragma once
#include <cstdint>
#include <memory>

#include "dtensor/runtime/comm/backend.h"

namespace dtensor::testing {

// For RunOptions::backend: each rank is a process of its own. Reductions give
// the same bits as on thread ranks.
std::shared_ptr<Backend> message_passing_backend(int64_t world);
// Two ranks are threads of each process.
std::shared_ptr<Backend> processes_of_2(int64_t world);

}  // namespace dtensor::testing
