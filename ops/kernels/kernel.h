// What all kernels share.
//
// A kernel takes raw pointers, sizes and a stream; no tensor, mesh or autograd
// type. Throughout:
//  - A kernel is work for the stream's device, which may run after the call has
//    returned (device.h): structs and Shapes are read before it does, and so
//    are the few arrays that are said to be the host's; all other pointers are
//    to memory of the device.
//  - Strides are in elements, and may be 0 (broadcast) for inputs. "Row stride"
//    is that of a [rows, n] operand whose rows are contiguous.
//  - Outputs are contiguous row-major unless a stride is given for them, and do
//    not overlap an input unless the kernel says that they may.
//  - Sizes of 0 are ordinary: nothing is read, and outputs that do not depend
//    on the empty dimension get the value of an empty sum, maximum, ...
//  - "Floats" are f32, f64, bf16 and f16. The two halves compute in f32 and
//    round once, at the end. `stat` is the type of per-row statistics: f64 for
//    f64, else f32.
//  - Throws Error only for a dtype or function that a kernel does not have;
//    nothing depends on data.
//  - A CPU kernel runs in the calling thread. oneDNN and OpenMP would start
//    threads of their own: the caller sets omp_set_num_threads(1) once in each
//    rank's thread. Kernels keep scratch and oneDNN primitives per thread.
//  - A value's bits depend on its operands alone, not on its position in the
//    array or on alignment (reductions and products: on the sizes too).
#pragma once
#include <cstdint>

#include "dtensor/device/device.h"
#include "dtensor/placement/dtype.h"
#include "dtensor/placement/shape.h"

namespace dtensor::kernels {

// f64 for f64, else f32.
constexpr DType stat_of(DType t) {
  return t == DType::kF64 ? DType::kF64 : DType::kF32;
}

}  // namespace dtensor::kernels
