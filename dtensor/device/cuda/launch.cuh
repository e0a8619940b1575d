// Giving work to a CUDA stream. For sources that see the CUDA Runtime.
#pragma once
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "dtensor/device/device.h"

namespace dtensor::cuda {

// The stream as CUDA knows it; its device is the calling thread's from now on.
cudaStream_t enter(Stream);

// Throws the Error that says what CUDA says, of `what` ("copy"): nothing for
// cudaSuccess. See cuda_device.cc for errors of work that runs later.
void check(cudaError_t, const char* what);

// Memory for the work of that stream, of its device's pool. When there is none
// left the host waits for what all streams of the device freed, but for those
// that are captured; null when there is none then, either. `waits` counts that.
void* allocate(cudaStream_t, int64_t bytes,
               std::atomic<int64_t>* waits = nullptr);
// The same for the length of a function; throws the Error that says how much
// there is not. To be freed behind its work.
void* allocate_scratch(cudaStream_t, int64_t bytes);

// The kernel will be launched with so much dynamic shared memory: more than
// 48 KiB have to be asked for, with what it has of its own, of which there may
// be kOwnShared. Throws Error when the device has less.
inline constexpr int64_t kOwnShared = 4 << 10;
void allow_shared_memory(const void* kernel, int64_t bytes);

}  // namespace dtensor::cuda
