// For cuda_test: prints what a program gets that asks for the device of this
// number; with "tf32" behind it, or "tuned", after asking for that.
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
    if (how == "tf32") dtensor::cuda_allow_tf32(true);
    if (how == "tuned") dtensor::cuda_tune_gemm(true);
    dtensor::cuda(std::atoi(argv[1]));
  } catch (const dtensor::Error& e) {
    std::printf("%s\n", e.what());
  }
}
