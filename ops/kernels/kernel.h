// SPDX-License-Identifier: Apache-2.0
// The conventions of all kernels.
//
// A kernel takes a stream and a struct of raw pointers and sizes, but no
// tensor, mesh or autograd type. Throughout:
//  - A kernel is work for the stream's device, and may run after the call has
//    returned (device.h). The struct and the arrays of its spans are in host
//    memory, and read before the call returns. Pointers are to device memory.
//  - Strides are in elements, and may be 0 (broadcast) for inputs.
//  - Outputs are contiguous row-major unless a stride is given for them. They
//    must not overlap an input unless the kernel allows it.
//  - Sizes may be 0. Then nothing is read, and outputs that do not depend on
//    the empty dimension get the value of an empty sum, maximum, and so on.
//  - "Floats" are f32, f64, bf16 and f16. The half types (bf16, f16) compute in
//    f32 and usually round once, at the end. `stat` is the type of per-row
//    statistics: f64 for f64, else f32. "All dtypes" are all but i8 (dtype.h).
//  - A kernel throws Error for arguments that it does not support, such as a
//    dtype, or if a library or an allocation fails; never because of data.
//  - A CPU kernel runs in the calling thread. The caller must call
//    omp_set_num_threads(1) once in each rank's thread, or oneDNN and OpenMP
//    start threads of their own. Scratch and oneDNN primitives are per thread.
//  - A value's bits depend only on its operands (those of reductions and
//    products also on sizes and strides), not on its position or on alignment.
//    There are two exceptions: if addresses are aligned to less than 16 bytes,
//    a GPU may use another algorithm for a product or for attention; and
//    CudaOptions has options on which a GPU's bits depend.
#pragma once
#include <cstdint>

#include "dtensor/device/device.h"
#include "dtensor/ops/kernels/operands.h"
#include "dtensor/placement/dtype.h"
#include "dtensor/placement/shape.h"

namespace dtensor::kernels {

// The type of per-row statistics: f64 for f64, else f32.
constexpr DType stat_of(DType t) {
  return t == DType::kF64 ? DType::kF64 : DType::kF32;
}

}  // namespace dtensor::kernels
