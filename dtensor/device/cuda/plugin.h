// What a program and libdtensor_cuda.so tell each other.
//
// The library has a copy of its own of what it uses of dtensor: of variables
// too, so that what belongs to the program is handed over here. Errors that it
// throws are caught by the program as any other: g++ compares exception types
// by name. (Both use the same libstdc++.so.)
#pragma once
#include <string_view>

#include "dtensor/comm/nccl/link.h"
#include "dtensor/device/device.h"

namespace dtensor {

struct CudaHost {
  std::string_view (*running_op)();
};

struct CudaPlugin {
  // version() of what the library was built from. A program of another one
  // reads nothing else of this.
  const char* version;
  int devices;
  const char* why_none;          // what CUDA says when there are none
  Device& (*device)(int index);  // 0 <= index < devices
  NcclLibrary& (*nccl)();
  void (*allow_tf32)(bool);
  void (*tune_gemm)(bool);
};

}  // namespace dtensor

// The library's only symbol. The structs last.
extern "C" [[gnu::visibility("default")]] const dtensor::CudaPlugin*
dtensor_cuda_plugin(const dtensor::CudaHost*);
