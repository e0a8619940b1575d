// SPDX-License-Identifier: Apache-2.0
// For tests that need a GPU, and are skipped where there is none:
//
//   if (!gpu()) GTEST_SKIP() << no_gpu();
#pragma once
#include <string>

#include "dtensor/device/cuda.h"
#include "dtensor/placement/error.h"

namespace dtensor {

// Why there is none; "" when there is one.
inline std::string no_gpu() {
  try {
    cuda_devices();
    return "";
  } catch (const Error& e) {
    return std::string("no GPU: ") + e.what();
  }
}

// cuda:0; null when there is none.
inline Device* gpu() { return no_gpu().empty() ? &cuda(0) : nullptr; }

}  // namespace dtensor
