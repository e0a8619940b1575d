// GPUs as devices. In libdtensor_cuda.so: programs take cuda() of
// device/cuda.h.
#pragma once
#include <memory>
#include <string>

#include "dtensor/device/device.h"

namespace dtensor::cuda {

// How many there are; of 0 `why` becomes what CUDA says.
int count(std::string& why);

// The device CUDA numbers so. To be made once, and to live for ever.
std::unique_ptr<Device> make_device(int index, const Kernels&);

// Of two of these: from now on the work of each reads and writes what the other
// one has allocated, or will, if the machine can do that (can_access_peer()).
// Nobody else's memory is theirs, though CUDA says that it could be: not that
// of cudaMallocAsync, which is what devices allocate.
void give_access(Device&, Device&);

}  // namespace dtensor::cuda
