// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/device_choice.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "dtensor/comm/process_backend.h"
#include "dtensor/device/cuda.h"
#include "dtensor/placement/error.h"

namespace dtensor {

DeviceChoice parse_device(std::string_view text) {
  DeviceChoice choice;
  if (text == "cpu") return choice;
  choice.cuda = true;
  if (text == "cuda") return choice;
  constexpr std::string_view kIndexed = "cuda:";
  bool good = text.starts_with(kIndexed);
  if (good) {
    text.remove_prefix(kIndexed.size());
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, choice.first);
    good = error == std::errc() && at == end && choice.first >= 0;
    text = {text.data() - kIndexed.size(), text.size() + kIndexed.size()};
  }
  DT_CHECK(good, "--device", "'{}' is not a device; write cpu, cuda or cuda:0",
           text);
  return choice;
}

std::function<Device&(int64_t)> devices_for(const DeviceChoice& choice,
                                            int64_t ranks) {
  if (!choice.cuda) return nullptr;
  cuda(choice.first);  // throws the Error that says why there is no GPU
  const int64_t needed = choice.index(ranks - 1) + 1, there = cuda_devices();
  DT_CHECK(
      needed <= there, "--device",
      "{} ranks, {} per GPU from cuda:{} on, need {} GPUs, but this process "
      "sees only {} of these; run fewer ranks, or write --ranks-per-gpu {} "
      "(but not with --backend {})",
      ranks, choice.ranks_per_gpu, choice.first, needed - choice.first,
      there - choice.first, (ranks - 1) / (there - choice.first) + 1,
      gpu_backend().name);
  return [choice](int64_t rank) -> Device& {
    return cuda(static_cast<int>(choice.index(rank)));
  };
}

int64_t gpu_of_first(const DeviceChoice& choice, const ProcessRanks& ranks,
                     int64_t there, bool chosen_for_it) {
  DT_CHECK(choice.first < there, "--device",
           "cuda:{} does not exist, because this process sees {} in all; write "
           "--device cuda, which begins with cuda:0",
           choice.first, quantity(there, "GPU", "GPUs"));
  const auto [index, count] = ranks.here;
  // If the number of processes is unknown, count those up to this one.
  const int64_t processes = std::max(count, index + 1);
  const int64_t needed = choice.index(processes * ranks.count - 1) + 1,
                own = choice.index(ranks.count - 1) + 1;
  if (chosen_for_it && there == own && there < needed) return choice.first;
  DT_CHECK(needed <= there, "--device",
           "{}{} of the run's ranks are on this machine, {} per process, and "
           "need {} GPUs from cuda:{} on, but this process sees only {} of "
           "these; {}{}",
           count ? "" : "at least ", processes * ranks.count, ranks.count,
           needed - choice.first, choice.first, there - choice.first,
           processes > 1 ? "start fewer processes here"
                         : "write a smaller --ranks-per-process",
           processes > 1 && ranks.count > 1
               ? ", or write a smaller --ranks-per-process"
               : "");
  return choice.index(index * ranks.count);
}

std::function<Device&(int64_t)> devices_for(const DeviceChoice& choice,
                                            const ProcessRanks& ranks) {
  if (!choice.cuda) return nullptr;
  // Do not call cuda() yet: it would take memory on a GPU that may belong to
  // another process.
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  DeviceChoice here = choice;
  here.first = static_cast<int>(
      gpu_of_first(choice, ranks, cuda_devices(), visible && *visible));
  return [here, first = ranks.first](int64_t rank) -> Device& {
    return cuda(static_cast<int>(here.index(rank - first)));
  };
}

}  // namespace dtensor
