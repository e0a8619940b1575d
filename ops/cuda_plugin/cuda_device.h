// SPDX-License-Identifier: Apache-2.0
// GPUs as devices. Only in libdtensor_cuda.so: programs use cuda() of
// device/cuda.h.
#pragma once
#include <memory>
#include <string>

#include "dtensor/device/device.h"

namespace dtensor::cuda {

// The number of GPUs. If it is 0, `why` becomes CUDA's reason.
int count(std::string& why);

// The device with CUDA's number `index`. Made once, and never destroyed.
std::unique_ptr<Device> make_device(int index, const KernelTable&);

// Lets the work of each device read and write memory that the other one has
// allocated or will allocate, if the machine can do that (can_access_peer()).
// Required even if CUDA reports peer access, which does not include memory from
// cudaMallocAsync, and that is where devices allocate.
void give_access(Device&, Device&);

}  // namespace dtensor::cuda
