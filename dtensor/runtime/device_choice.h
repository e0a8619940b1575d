// What --device and --ranks-per-gpu say.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

#include "dtensor/runtime/device/device.h"

namespace dtensor {

struct DeviceChoice {
  bool cuda = false;
  int first = 0;              // the GPU of rank 0
  int64_t ranks_per_gpu = 1;  // so many ranks compute on each, in their order
  // The GPU of a rank.
  int64_t index(int64_t rank) const { return first + rank / ranks_per_gpu; }
};

// Reads "cpu", "cuda", or "cuda:1": the first GPU. Throws Error for other
// texts.
DeviceChoice parse_device(std::string_view text);

// For RunOptions::device; nothing for the CPU. Throws Error when this machine
// has not the GPUs that so many ranks need.
std::function<Device&(int64_t rank)> devices_for(const DeviceChoice&,
                                                 int64_t ranks);

}  // namespace dtensor
