// A sample of the proof of every operator on a recording device: no operator
// touches memory of the device from the host, or counts on work that it has not
// waited for.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/ops/proof.h"
#include "tests/runtime/device/recording_device.h"

namespace dtensor {
namespace {

class ProofOnDevice
    : public testing::TestWithParam<std::pair<std::string, const Op*>> {};

TEST_P(ProofOnDevice, GivesWhatTheCpuGives) {
  const Op& op = *GetParam().second;
  const auto device = RecordingDevice::make();
  proof::Options options;
  options.meshes = {"2", "2x2"};
  options.chosen = 2;
  options.device = device.get();
  const proof::Report report = proof::prove(op, options, op.name() == "view");
  std::cout << report.line() << std::endl;
  EXPECT_GT(device->works(), 0);
  EXPECT_EQ(report.failed, 0);
  for (const std::string& f : report.failures) ADD_FAILURE() << f;
}

INSTANTIATE_TEST_SUITE_P(Ops, ProofOnDevice,
                         testing::ValuesIn(proof::named_ops()),
                         [](const auto& info) { return info.param.first; });

}  // namespace
}  // namespace dtensor
