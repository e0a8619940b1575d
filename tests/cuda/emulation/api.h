// SPDX-License-Identifier: Apache-2.0
// Helpers of the files that define CUDA's functions.
#pragma once
#include <mutex>

#include "tests/cuda/emulation/machine.h"

namespace emulation {

using Lock = std::unique_lock<std::mutex>;

// The calling thread's device. say() returns its argument, and keeps an error
// for cudaGetLastError().
int current_device();
cudaError_t say(cudaError_t);

// REQUIRES: the caller holds the machine's mutex.
inline cudaError_t failed(int device) {
  return Machine::get().devices[static_cast<size_t>(device)].failed;
}
// Returns the error for a call that cannot be captured, and ends the capture.
inline cudaError_t break_capture(Capture& c, cudaError_t why) {
  c.broken = true;
  return why;
}

}  // namespace emulation
