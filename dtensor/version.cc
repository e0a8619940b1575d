// SPDX-License-Identifier: Apache-2.0
#include "dtensor/version.h"

namespace dtensor {

std::string_view version() { return DTENSOR_VERSION; }

}  // namespace dtensor
