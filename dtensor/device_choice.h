// What --device and --ranks-per-gpu say.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

#include "dtensor/comm/local_process.h"
#include "dtensor/device/device.h"

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

// The same for a process of a job, with ranks from `first` on, as many as every
// other has. A machine's processes take turns in their order: the first one the
// first GPUs. Where CUDA_VISIBLE_DEVICES shows a process as many GPUs as its
// ranks need, and fewer than the machine's processes do, they are its own.
struct ProcessRanks {
  LocalProcess here;
  int64_t first = 0, count = 1;
};
std::function<Device&(int64_t rank)> devices_for(const DeviceChoice&,
                                                 const ProcessRanks&);
// What that chooses: the GPU of the first rank, of so many that are there.
// Throws Error when these are not enough.
int64_t gpu_of_first(const DeviceChoice&, const ProcessRanks&, int64_t there,
                     bool chosen_for_it);

}  // namespace dtensor
