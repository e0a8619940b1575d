// SPDX-License-Identifier: Apache-2.0
// The kernels of the device for which the compiler compiles. The files of this
// folder are written once: nvcc compiles them for CUDA, and g++ for the CPU,
// which has its own files for some kernels (../cpu).
#pragma once
#include "dtensor/ops/kernels/kernel_set.h"
#include "dtensor/ops/kernels/portable/executor.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {

// All kernels that sources define with DT_KERNEL.
inline KernelSet& defined_kernels() {
  static KernelSet set;
  return set;
}

template <class Args, void (*run)(Stream, const Args&)>
struct DefineKernel {
  DefineKernel() {
    defined_kernels().set(kernel_name<Args>(), &run_kernel<Args, run>);
  }
};

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels

// Declares run(Stream, const Args&) and adds it to defined_kernels():
//
//   DT_KERNEL(Softmax)
//   void run(Stream s, const Softmax& a) {
//     ...
//   }
#define DT_KERNEL(Args)          \
  void run(Stream, const Args&); \
  DT_LINK_KERNEL(Args)           \
  static const DefineKernel<Args, run> defined_##Args;
#ifdef __CUDACC__
#define DT_LINK_KERNEL(Args)
#else
#define DT_LINK_KERNEL(Args) \
  template <>                \
  void on_host::link_kernel<Args>() {}
#endif
