// GPUs as devices. In libdtensor_cuda.so: programs take cuda() of
// device/cuda.h.
#pragma once
#include <memory>
#include <string>

#include "dtensor/runtime/device/device.h"

namespace dtensor::cuda {

// How many there are; of 0 `why` becomes what CUDA says.
int count(std::string& why);

// The device CUDA numbers so. To be made once, and to live for ever.
std::unique_ptr<Device> make_device(int index, const Kernels&);

}  // namespace dtensor::cuda
