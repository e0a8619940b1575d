// SPDX-License-Identifier: Apache-2.0
// The interface between a program and libdtensor_cuda.so.
//
// The library contains its own copy of the parts of dtensor that it uses,
// including variables, so the program gives access to its own variables by
// CudaHost. The program can catch Errors that the library throws, because g++
// compares exception types by name (and both use the same libstdc++.so).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "dtensor/device/cuda_options.h"
#include "dtensor/device/device.h"

namespace dtensor {

class NcclLibrary;

struct CudaHost {
  std::string_view (*running_op)();
  void* (*graph_memory)(int64_t bytes, Stream);
};

struct CudaPlugin {
  // The version() of the sources from which the library was built. A program of
  // another version must not read the other members.
  const char* version;
  int devices;
  const char* why_none;          // CUDA's reason if `devices` is 0
  Device& (*device)(int index);  // 0 <= index < devices
  NcclLibrary& (*nccl)();
  void (*set_options)(const CudaOptions&);
  std::map<std::string, int64_t> (*declined)();
};

}  // namespace dtensor

// The library's only exported symbol. Both structs stay valid until the program
// ends.
extern "C" [[gnu::visibility("default")]] const dtensor::CudaPlugin*
dtensor_cuda_plugin(const dtensor::CudaHost*);
