// The real NCCL. Only in libdtensor_cuda.so, which passes it to the program.
#pragma once
#include "dtensor/comm/nccl/link.h"

namespace dtensor {

NcclLibrary& nccl_library();

}  // namespace dtensor
