// SPDX-License-Identifier: Apache-2.0
// Enqueues work on a CUDA stream, for sources that include the CUDA runtime.
#pragma once
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "dtensor/device/device.h"

namespace dtensor::cuda {

// Returns the stream's CUDA handle, and makes its device the calling thread's
// current device.
cudaStream_t enter(Stream);

// Throws Error with CUDA's text and `what` (the request, "copy") unless the
// code is cudaSuccess. If the code reports that work of an earlier call has
// failed, the text says so (failure.h).
void check(cudaError_t, const char* what);

// Whether the stream's work is recorded for a graph instead of run.
inline bool captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "querying a capture");
  return status != cudaStreamCaptureStatusNone;
}
// CUDA's id of the capture that records the stream's work; every capture in
// this process has a different one. 0 if the work is run.
inline unsigned long long capture_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  check(cudaStreamGetCaptureInfo(stream, &status, &id), "querying a capture");
  return status == cudaStreamCaptureStatusActive ? id : 0;
}

// Allocates from the pool of the stream's device, which is the current one, for
// work of that stream. If the device has too little memory left, adds 1 to
// `waits`, and lets the host wait for the work of the device's streams (not for
// captured ones), after which their freed memory is available. Returns null if
// there is still too little.
void* allocate(cudaStream_t, int64_t bytes,
               std::atomic<int64_t>* waits = nullptr);
// Like allocate(), but for use within one function. Instead of returning null,
// throws an Error with the requested size. Free the memory in the same stream,
// after the work that uses it.
void* allocate_scratch(cudaStream_t, int64_t bytes);
// Returns memory for work of the stream that is captured into a Graph. The
// memory lasts as long as the Graph (dtensor/device/graph_memory.h). Null if
// the calling thread is not making a Graph.
void* graph_memory(cudaStream_t, int64_t bytes);
// Frees memory from allocate() or allocate_scratch() after the stream's earlier
// work. If that work has failed, the memory stays allocated.
void release(void*, cudaStream_t) noexcept;

// Allows launches of the kernel with `bytes` bytes of dynamic shared memory.
// CUDA requires this if dynamic and static shared memory together exceed 48
// KiB. REQUIRES: the kernel has at most kOwnShared bytes of static shared
// memory. Throws Error if the device does not have that much.
inline constexpr int64_t kOwnShared = 4 << 10;
void allow_shared_memory(const void* kernel, int64_t bytes);

}  // namespace dtensor::cuda
