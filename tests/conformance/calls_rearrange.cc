// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/bind.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {

void add_rearrange_calls(CallTable&) {}

}  // namespace dtensor::conformance
