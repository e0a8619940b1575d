// SPDX-License-Identifier: Apache-2.0
// GPUs as devices. This is part of libdtensor_cuda.so alone; programs use
// cuda() of device/cuda.h.
#pragma once
#include <memory>
#include <string>

#include "dtensor/device/device.h"

namespace dtensor::cuda {

// Returns the number of GPUs. If it is 0, sets `why` to the reason.
int count(std::string& why);

// Makes the device with CUDA's number `index`. Make it once; never destroy it.
std::unique_ptr<Device> make_device(int index, const KernelTable&);

// Lets the work of each device read and write memory that the other one has
// allocated or will allocate, if the machine can do that (can_access_peer()).
// Required even if CUDA reports peer access, which does not include memory from
// cudaMallocAsync(). Devices allocate with that function.
void give_access(Device&, Device&);

}  // namespace dtensor::cuda
