// SPDX-License-Identifier: Apache-2.0
// The choice of devices by --device and --ranks-per-gpu.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

#include "dtensor/device/device.h"
#include "dtensor/program/local_process.h"

namespace dtensor {

struct DeviceChoice {
  bool cuda = false;
  int first = 0;              // the GPU of rank 0
  int64_t ranks_per_gpu = 1;  // consecutive ranks share a GPU
  // The index of a rank's GPU.
  int64_t index(int64_t rank) const { return first + rank / ranks_per_gpu; }
};

// Reads "cpu", "cuda" or "cuda:1", where 1 is the first GPU to use. Throws
// Error for other texts.
DeviceChoice parse_device(std::string_view text);

// The function for RunOptions::device; empty for the CPU. Throws Error if this
// process sees fewer GPUs than `ranks` ranks need.
std::function<Device&(int64_t rank)> devices_for(const DeviceChoice&,
                                                 int64_t ranks);

// The ranks of one process of a job: `first` to `first + count - 1`. Every
// process has `count` ranks.
struct ProcessRanks {
  LocalProcess here;
  int64_t first = 0, count = 1;
};
// The same for one process of a job. The processes of a machine use its GPUs in
// order of their local rank: the first process uses the first GPUs. If
// CUDA_VISIBLE_DEVICES selects exactly as many GPUs as the process needs, and
// fewer than all processes of the machine need, the process uses these,
// whatever its local rank.
std::function<Device&(int64_t rank)> devices_for(const DeviceChoice&,
                                                 const ProcessRanks&);
// The GPU that devices_for() gives to the first rank of a process that sees
// `there` GPUs. `chosen_for_it` says whether CUDA_VISIBLE_DEVICES is set.
// Throws Error if there are too few GPUs.
int64_t gpu_of_first(const DeviceChoice&, const ProcessRanks&, int64_t there,
                     bool chosen_for_it);

}  // namespace dtensor
