// SPDX-License-Identifier: Apache-2.0
// Kernels that compute with `host` when a recording device's stream runs them.
#pragma once
#include <memory>

#include "dtensor/ops/kernels/kernels.h"
#include "tests/dtensor/device/recording_device.h"

namespace dtensor {

std::unique_ptr<const Kernels> recording_kernels(RecordingDevice&,
                                                 const Kernels& host);

}  // namespace dtensor
