// SPDX-License-Identifier: Apache-2.0
// A program that cuda_test runs: asks for the CUDA device with the number
// argv[1] and prints what it gets. If argv[2] is "tf32", "tuned" or
// "deterministic", it sets that option before.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "dtensor/device/cuda.h"
#include "dtensor/device/running_op.h"
#include "dtensor/placement/error.h"

int main(int argc, char** argv) {
  static constexpr std::string_view kOp = "matmul";
  dtensor::keep_running_op(&kOp);
  try {
    std::printf("%d devices\n", dtensor::cuda_devices());
    const std::string_view how = argc > 2 ? argv[2] : "";
    if (!how.empty())
      dtensor::cuda_set_options({.tf32 = how == "tf32",
                                 .tune_gemm = how == "tuned",
                                 .deterministic = how == "deterministic"});
    dtensor::cuda(std::atoi(argv[1]));
  } catch (const dtensor::Error& e) {
    std::printf("%s\n", e.what());
  }
}
