// What the files that define CUDA's functions share.
#pragma once
#include <mutex>

#include "tests/cuda/emulation/machine.h"

namespace emulation {

using Lock = std::unique_lock<std::mutex>;

// The calling thread's device, and what a call says: kept as its last error.
int current_device();
cudaError_t say(cudaError_t);

// Of what the machine's mutex guards.
inline cudaError_t failed(int device) {
  return Machine::get().devices[static_cast<size_t>(device)].failed;
}
// What cannot be captured is told, and the capture cannot go on.
inline cudaError_t break_capture(Capture& c, cudaError_t why) {
  c.broken = true;
  return why;
}

}  // namespace emulation
