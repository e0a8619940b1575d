// SPDX-License-Identifier: Apache-2.0
// Calls the library's public functions by the names that torch gives them.
#pragma once
#include "tests/conformance/arguments.h"

namespace dtensor::conformance {

// A table with every operator of torch that the library has. An entry only says
// which public function it is, and which argument goes where.
CallTable all_calls();

void add_pointwise_calls(CallTable&);
void add_binary_calls(CallTable&);
void add_shape_calls(CallTable&);
void add_sum_calls(CallTable&);
void add_layer_calls(CallTable&);
void add_making_calls(CallTable&);
void add_rearrange_calls(CallTable&);
void add_losses_and_norms_calls(CallTable&);
void add_special_calls(CallTable&);
void add_linalg_calls(CallTable&);
void add_order_calls(CallTable&);
void add_windows_calls(CallTable&);
void add_by_index_calls(CallTable&);
void add_searching_calls(CallTable&);

}  // namespace dtensor::conformance
