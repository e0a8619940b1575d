// SPDX-License-Identifier: Apache-2.0
// Kernels of the host's memory, given to a recording device's streams.
#pragma once
#include <memory>

#include "dtensor/ops/kernels/kernels.h"
#include "tests/dtensor/device/recording_device.h"

namespace dtensor {

std::unique_ptr<const Kernels> recording_kernels(RecordingDevice&,
                                                 const Kernels& host);

}  // namespace dtensor
