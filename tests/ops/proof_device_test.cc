// SPDX-License-Identifier: Apache-2.0
// Runs a sample of the proof of every operator on devices whose memory the host
// may not touch and whose work runs late. No operator may touch that memory, or
// use results before it has waited for them, and all results must be right in
// every type.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/dtensor/device/late_device.h"
#include "tests/ops/proof.h"

namespace dtensor {
namespace {

// The proof cannot make a row's statistics, which are f32 even for halves. The
// operators that take them run as gradients of those that make them.
// (nextafter's result in a half is not that in f64.) Factors of matrices and
// sums of bags are not halves.
constexpr std::string_view kNotOfHalves[] = {"attention_backward",
                                             "cross_entropy_backward",
                                             "layer_norm_backward",
                                             "layer_norm_backward_add",
                                             "rms_norm_backward",
                                             "rms_norm_backward_add",
                                             "layer_norm_backward_input",
                                             "layer_norm_backward_add_input",
                                             "rms_norm_backward_input",
                                             "rms_norm_backward_add_input",
                                             "standardized_sums",
                                             "standardized_backward",
                                             "embedding_bag",
                                             "nextafter",
                                             "cholesky",
                                             "det",
                                             "eigh",
                                             "lu",
                                             "matrix_exp",
                                             "qr",
                                             "solve",
                                             "solve_triangular",
                                             "svd"};

using NamedOp = std::pair<std::string, const Op*>;

class ProofOnDevice
    : public testing::TestWithParam<std::tuple<LateDevice, NamedOp>> {
 protected:
  void SetUp() override {
    device_ = make_device(std::get<0>(GetParam()));
    if (!device_) GTEST_SKIP() << no_gpu();
  }

  void prove(proof::Options options) {
    const Op& op = *std::get<1>(GetParam()).second;
    options.device = device_.get();
    const int64_t before = device_->waits();
    const proof::Report report = proof::prove(op, options);
    std::cout << name(options.dtype) << " " << report.line() << std::endl;
    EXPECT_GT(device_->waits(), before);
    EXPECT_EQ(report.failed, 0);
    for (const std::string& f : report.failures) ADD_FAILURE() << f;
  }

  std::shared_ptr<Device> device_;
};

TEST_P(ProofOnDevice, GivesWhatTheCpuGives) {
  prove({.meshes = {"1", "2", "3", "2x2"}, .chosen = 2});
}

TEST_P(ProofOnDevice, GivesItInShorterFloats) {
  std::vector<DType> dtypes = {DType::kF32};
  if (!std::ranges::count(kNotOfHalves, std::get<1>(GetParam()).first))
    dtypes.insert(dtypes.end(), {DType::kBF16, DType::kF16});
  for (const DType dtype : dtypes)
    prove({.meshes = {"1", "2", "3"}, .chosen = 2, .dtype = dtype});
}

INSTANTIATE_TEST_SUITE_P(
    Ops, ProofOnDevice,
    testing::Combine(testing::ValuesIn(kLateDevices),
                     testing::ValuesIn(proof::named_ops())),
    [](const auto& info) {
      return name(std::get<0>(info.param)) + "_" +
             std::get<1>(info.param).first;
    });

}  // namespace
}  // namespace dtensor
