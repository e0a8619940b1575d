// SPDX-License-Identifier: Apache-2.0
// The list of all operators, to which each source file adds its own.
#pragma once
#include <string_view>
#include <vector>

namespace dtensor {

class Op;
using OpList = std::vector<const Op*>;

// The operators of a source file, which registers them with an object at
// namespace scope:
//
//   static const OpFamily kFamily("cat", [] { return OpList{&cat_op()}; });
class OpFamily {
 public:
  // The names order the families. make() is called when the list is first used.
  OpFamily(std::string_view name, OpList (*make)());
};

// All operators, in a fixed order. The proof driver, explain and the golden
// file of strategies iterate over it. einsum, the shape operators and slopes
// are represented by a few example rules.
const OpList& all_ops();
// Those of one family; empty if there is none of that name.
OpList op_family(std::string_view name);
// The first operator with this name, or null.
const Op* find_op(std::string_view name);

// The operator that matmul() calls for two matrices.
const Op& matmul_op();

}  // namespace dtensor
