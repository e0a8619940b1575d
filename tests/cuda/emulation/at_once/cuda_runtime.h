// SPDX-License-Identifier: Apache-2.0
// As much of CUDA's runtime as portable/cuda_executor.cuh uses, on the host,
// for tests of kernels alone: a launch runs in the calling thread, on the
// host's memory, and returns when it is done.
#pragma once
#define EMULATION_LOCAL thread_local
#include <cstdint>
#include <cstdlib>

#include "tests/cuda/emulation/block.h"

enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation };
using cudaStream_t = void*;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

template <class... Parameters, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* c,
                               void (*kernel)(Parameters...), Args... args) {
  emulation::Block::here().run(c->gridDim.x, c->blockDim.x, c->dynamicSmemBytes,
                               [&] { kernel(args...); });
  return cudaSuccess;
}

inline cudaError_t cudaMallocAsync(void** data, size_t bytes, cudaStream_t) {
  // Exactly as many bytes, so that the address sanitizer sees accesses behind
  // them.
  if (posix_memalign(data, 256, bytes) == 0) return cudaSuccess;
  return cudaErrorMemoryAllocation;
}
inline cudaError_t cudaFreeAsync(void* data, cudaStream_t) {
  std::free(data);
  return cudaSuccess;
}
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone,
  cudaStreamCaptureStatusActive
};
// The number of the capture to which all streams belong; 0 if none is active.
inline unsigned long long at_once_capture = 0;
inline cudaError_t cudaStreamGetCaptureInfo(cudaStream_t,
                                            cudaStreamCaptureStatus* status,
                                            unsigned long long* id) {
  *status = at_once_capture ? cudaStreamCaptureStatusActive
                            : cudaStreamCaptureStatusNone;
  *id = at_once_capture;
  return cudaSuccess;
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t s,
                                         cudaStreamCaptureStatus* status) {
  unsigned long long id;
  return cudaStreamGetCaptureInfo(s, status, &id);
}
