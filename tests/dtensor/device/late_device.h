// SPDX-License-Identifier: Apache-2.0
// The devices whose memory the host may not touch and whose work runs later,
// for tests that must pass on each of them:
//
//   class OnDevice : public testing::TestWithParam<LateDevice> {};
//   TEST_P(OnDevice, ...) {
//     const std::shared_ptr<Device> device = make_device(GetParam());
//     if (!device) GTEST_SKIP() << no_gpu();
//   INSTANTIATE_TEST_SUITE_P(
//       Devices, OnDevice, testing::ValuesIn(kLateDevices),
//       [](const auto& info) { return name(info.param); });
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "tests/dtensor/device/gpu.h"
#include "tests/dtensor/device/recording_device.h"

namespace dtensor {

enum class LateDevice : uint8_t {
  kRecording,  // a recording device, which computes with the CPU's kernels
  kGpu         // cuda:0, which all ranks share
};
inline constexpr LateDevice kLateDevices[] = {LateDevice::kRecording,
                                              LateDevice::kGpu};

inline std::string name(LateDevice d) {
  return d == LateDevice::kGpu ? "Gpu" : "Recording";
}

// Makes the device; null for kGpu if there is no GPU.
inline std::shared_ptr<Device> make_device(LateDevice d) {
  if (d == LateDevice::kGpu) return {std::shared_ptr<void>(), gpu()};
  return RecordingDevice::make(int64_t{1} << 32);
}

}  // namespace dtensor
