// Giving work to a CUDA stream. For sources that see the CUDA Runtime.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "dtensor/runtime/device/device.h"

namespace dtensor::cuda {

// The stream as CUDA knows it; its device is the calling thread's from now on.
cudaStream_t enter(Stream);

// Throws the Error that says what CUDA says, of `what` ("copy"): nothing for
// cudaSuccess. See cuda_device.cc for errors of work that runs later.
void check(cudaError_t, const char* what);

// give(cudaStream_t), which launches kernels, and an Error if CUDA took them
// not.
template <class Give>
void launch(Stream s, Give&& give) {
  give(enter(s));
  check(cudaGetLastError(), "launch");
}

// A kernel that will be launched with so much dynamic shared memory: more than
// 48 KiB have to be asked for, once.
void allow_fast_memory(const void* kernel, int64_t bytes);

}  // namespace dtensor::cuda
