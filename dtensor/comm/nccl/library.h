// NCCL itself. In libdtensor_cuda.so alone, which hands it to the program.
#pragma once
#include "dtensor/comm/nccl/link.h"

namespace dtensor {

NcclLibrary& nccl_library();

}  // namespace dtensor
