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

// Throws an Error with CUDA's text about `what` ("copy") unless the code is
// cudaSuccess. See failure.h for errors of work that failed later.
void check(cudaError_t, const char* what);

// Whether the stream's work is recorded for a graph instead of run.
inline bool captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "querying a capture");
  return status != cudaStreamCaptureStatusNone;
}
// The number of the capture that records the stream's work, which no other
// capture of this process has; 0 if the work is run.
inline unsigned long long capture_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  check(cudaStreamGetCaptureInfo(stream, &status, &id), "querying a capture");
  return status == cudaStreamCaptureStatusActive ? id : 0;
}

// Allocates from the pool of the stream's device, for work of that stream. If
// the pool has too little left, adds 1 to `waits`, and lets the host wait for
// the work of all streams of the device, except captured ones, because that
// work may free memory. Returns null if there is still too little.
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

// Allows launches of the kernel with `bytes` bytes of dynamic shared memory. A
// kernel must request more than 48 KiB from CUDA; this includes its static
// shared memory, at most kOwnShared bytes. Throws Error if the device does not
// have that much.
inline constexpr int64_t kOwnShared = 4 << 10;
void allow_shared_memory(const void* kernel, int64_t bytes);

}  // namespace dtensor::cuda
