// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/calls.h"

namespace dtensor::conformance {

CallTable all_calls() {
  CallTable table;
  add_pointwise_calls(table);
  add_binary_calls(table);
  add_shape_calls(table);
  add_sum_calls(table);
  add_layer_calls(table);
  add_making_calls(table);
  add_rearrange_calls(table);
  add_losses_and_norms_calls(table);
  add_special_calls(table);
  add_linalg_calls(table);
  add_order_calls(table);
  add_windows_calls(table);
  add_by_index_calls(table);
  add_searching_calls(table);
  return table;
}

}  // namespace dtensor::conformance
