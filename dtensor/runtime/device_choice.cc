#include "dtensor/runtime/device_choice.h"

#include <charconv>

#include "dtensor/placement/error.h"
#include "dtensor/runtime/device/cuda.h"

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
  DT_CHECK(good, "--device", "'{}' is no device; write cpu, cuda or cuda:0",
           text);
  return choice;
}

std::function<Device&(int64_t)> devices_for(const DeviceChoice& choice,
                                            int64_t ranks) {
  if (!choice.cuda) return nullptr;
  cuda(choice.first);  // says why, if there is none
  const int64_t needed = choice.index(ranks - 1) + 1, there = cuda_devices();
  DT_CHECK(needed <= there, "--device",
           "{} ranks, {} to a GPU, from cuda:{} on need {} GPUs, and this "
           "machine has {}; write --ranks-per-gpu {}, or run fewer ranks",
           ranks, choice.ranks_per_gpu, choice.first, needed - choice.first,
           there, (ranks - 1) / (there - choice.first) + 1);
  return [choice](int64_t rank) -> Device& {
    return cuda(static_cast<int>(choice.index(rank)));
  };
}

}  // namespace dtensor
