// For cuda_test: prints what a program gets that asks for the device of this
// number; of a second one, with TF32.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "dtensor/placement/error.h"
#include "dtensor/runtime/device/cuda.h"
#include "dtensor/runtime/device/running_op.h"

int main(int argc, char** argv) {
  static constexpr std::string_view kOp = "matmul";
  dtensor::keep_running_op(&kOp);
  try {
    std::printf("%d devices\n", dtensor::cuda_devices());
    if (argc > 2) dtensor::cuda_allow_tf32(true);
    dtensor::cuda(std::atoi(argv[1]));
  } catch (const dtensor::Error& e) {
    std::printf("%s\n", e.what());
  }
}
