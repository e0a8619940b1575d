// The one list of operators.
#pragma once
#include <string_view>
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

// Every operator there is, in a fixed order. The proof driver, explain and the
// golden file of strategies walk it. einsum and the shape operators are listed
// by some representative rules.
const std::vector<const Op*>& all_ops();
// By name; null when there is none.
const Op* find_op(std::string_view name);

}  // namespace dtensor
