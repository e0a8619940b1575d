// NCCL among processes of this machine, for tests: what members send each other
// lies in files of a folder. Calls return before they are settled, as NCCL's
// do; what does not fit together, where NCCL would hang, is an Error.
// Reductions add up in member order.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "dtensor/comm/nccl/link.h"

namespace dtensor::testing {

// What a stream is of, as this process knows it and as all do.
struct FileGpu {
  Device* device;
  NcclLibrary::Gpu gpu;
};

// The folder is there, and empty at first. In the environment FILE_NCCL_KILL=
// "MEMBER CALL" kills the process of that member where it makes that call of a
// link, from 1.
std::unique_ptr<NcclLibrary> file_nccl(std::string folder,
                                       std::function<FileGpu(Stream)> gpu_of);

}  // namespace dtensor::testing
