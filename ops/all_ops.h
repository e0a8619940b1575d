// SPDX-License-Identifier: Apache-2.0
// The list of all operators. Each source file adds those that it defines.
#pragma once
#include <string_view>
#include <vector>

namespace dtensor {

class Op;
using OpList = std::vector<const Op*>;

// The only operator of this class, which lives until the process ends.
template <class T>
const Op& op_of() {
  static const T op;
  return op;
}

// Registers the operators of a source file. The file defines an object at
// namespace scope:
//
//   static const OpFamily kFamily("cat", [] { return OpList{&op_of<Cat>()}; });
class OpFamily {
 public:
  // all_ops() lists the families in the order of their names. It calls make()
  // once; op_family() calls it every time.
  OpFamily(std::string_view name, OpList (*make)());
};

// All operators, in a fixed order, for the tests that check every operator, and
// for the explain program. Only a few examples stand for the rules of einsum,
// the shape operators, and the derivatives of element-wise functions.
const OpList& all_ops();
// The operators of one family; empty if there is no family of that name.
OpList op_family(std::string_view name);
// The first operator with this name, or null.
const Op* find_op(std::string_view name);

// The operator that matmul() calls unless an operand is a vector.
const Op& matmul_op();

}  // namespace dtensor
