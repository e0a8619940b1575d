// SPDX-License-Identifier: Apache-2.0
// For tests that need a GPU, and are skipped if there is none:
//
//   if (!gpu()) GTEST_SKIP() << no_gpu();
#pragma once
#include <string>

#include "dtensor/device/cuda.h"
#include "dtensor/placement/error.h"

namespace dtensor {

// Why tests cannot use a GPU; "" if they can.
inline std::string no_gpu() {
  try {
    cuda_devices();
    return "";
  } catch (const Error& e) {
    return std::string("no GPU: ") + e.what();
  }
}

// The GPU cuda:0; null if there is none.
inline Device* gpu() { return no_gpu().empty() ? &cuda(0) : nullptr; }

}  // namespace dtensor
