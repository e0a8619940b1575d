// SPDX-License-Identifier: Apache-2.0
// The streams of this program. Code that only enqueues work needs only
// launch.cuh.
#pragma once
#include "dtensor/device/device.h"

namespace dtensor {

struct CudaHost;

namespace cuda {

// Sets the functions of the program that this library calls
// (device/cuda_plugin.h). The CudaHost is never copied, so it must outlive the
// library. Call this before anything else.
void set_host(const CudaHost*);

// Makes this device the calling thread's current device.
void use(int device);

// Creates a stream, which is never destroyed.
Stream open_stream(int device);

// Forgets the operators that were noted for the stream's work so far
// (failure.h). Call it once the host has waited for that work.
void waited(Stream);

}  // namespace cuda
}  // namespace dtensor
