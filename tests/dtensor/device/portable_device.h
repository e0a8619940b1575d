// The host as a device that computes with what is written once for all of them,
// which a GPU computes with.
#pragma once
#include "dtensor/device/device.h"

namespace dtensor {

// In the calling thread, and at once. Lives for ever.
Device& portable_device();

}  // namespace dtensor
