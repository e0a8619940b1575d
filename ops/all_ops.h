// The list of all operators.
#pragma once
#include <string_view>

#include "dtensor/ops/op.h"
#include "dtensor/ops/op_lists.h"

namespace dtensor {

// All operators, in a fixed order. The proof driver, explain and the golden
// file of strategies iterate over it. einsum and the shape operators are
// represented by a few example rules.
const OpList& all_ops();
// The operator with this name, or null.
const Op* find_op(std::string_view name);

}  // namespace dtensor
