// SPDX-License-Identifier: Apache-2.0
// Fake GPUs for programs that run as several processes on machines without
// GPUs. Such a program is linked with this file instead of device/cuda.cc. The
// GPUs are RecordingDevices, whose work runs later, and their NCCL exchanges
// data in files. Environment variables:
//   FAKE_GPUS=n           the number of GPUs of this machine; 4 if unset
//   CUDA_VISIBLE_DEVICES  the GPUs that are shown, such as "2,0"; all if unset
//   FAKE_HOST=n           the number of this machine; 0 if unset
//   FILE_NCCL=DIR         the folder for FakeNccl::make()
#include <charconv>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/device/cuda.h"
#include "dtensor/placement/error.h"
#include "tests/dtensor/device/recording_device.h"
#include "tests/dtensor/fake_nccl.h"

namespace dtensor {
namespace {

std::string variable(const char* name, const char* otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? text : otherwise;
}

// The numbers of the GPUs that are shown.
const std::vector<int>& gpus() {
  static const std::vector<int> all = [] {
    std::vector<int> shown;
    const std::string text = variable("CUDA_VISIBLE_DEVICES", "");
    for (std::string_view rest = text; !rest.empty();) {
      int i = 0;
      const char* end = rest.data() + rest.size();
      rest.remove_prefix(static_cast<size_t>(
          std::from_chars(rest.data(), end, i).ptr - rest.data()));
      if (!rest.empty()) rest.remove_prefix(1);  // the comma
      shown.push_back(i);
    }
    for (int i = 0; text.empty() && i < std::stoi(variable("FAKE_GPUS", "4"));
         ++i)
      shown.push_back(i);
    return shown;
  }();
  return all;
}

std::mutex mutex;
std::map<int, std::unique_ptr<RecordingDevice>>& made() {
  static auto* const all = new std::map<int, std::unique_ptr<RecordingDevice>>;
  return *all;
}

NcclLibrary::Gpu gpu_of(Stream stream) {
  std::lock_guard lock(mutex);
  for (const auto& [number, device] : made())
    if (device->has(stream)) {
      NcclLibrary::Gpu gpu{};
      gpu[0] = static_cast<char>(number + 1);
      gpu[1] = static_cast<char>(std::stoi(variable("FAKE_HOST", "0")));
      return gpu;
    }
  fail("nccl", "a stream of no GPU");
}

}  // namespace

int cuda_devices() { return static_cast<int>(gpus().size()); }

Device& cuda(int index) {
  DT_CHECK(0 <= index && index < cuda_devices(), "cuda", "cuda:{} is not there",
           index);
  std::lock_guard lock(mutex);
  auto& device = made()[gpus()[static_cast<size_t>(index)]];
  if (!device) device = RecordingDevice::make();
  return *device;
}

void cuda_set_options(const CudaOptions&) {}

NcclLibrary& cuda_nccl() {
  static auto* const library =
      testing::FakeNccl::make(variable("FILE_NCCL", "/none"), gpu_of).release();
  return *library;
}

}  // namespace dtensor
