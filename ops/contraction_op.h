// SPDX-License-Identifier: Apache-2.0
// The operator behind all sums of products; contraction.h has the functions.
#pragma once
#include <string>
#include <string_view>

#include "dtensor/ops/op.h"

namespace dtensor {

// The sizes of the factors that occur only in the output, in the rule's order.
struct ContractionArgs {
  static constexpr Fields kFields = {"sizes"};
  Shape sizes;
};

// The letters of the factors that occur only in the output.
std::string only_in_output(const Rule&);

// Throws Error if the operands of a product have different types or are i8.
void check_types(std::string_view op, TensorList);

// The rule that the text states, with the notes "linear 0", "linear 1", ...
// (placement/rule.h), one for each operand. Each thread keeps the rules that it
// parsed, up to a limit. Throws Error if the text is not a rule.
const Rule& product_rule(std::string_view text);

// The operator with this name and rule. It lives as long as the process. With
// `exact`, the output is an exact sum (exact.h).
const Op& contraction_op(std::string_view name, const Rule&,
                         bool exact = false);
// contraction_op(name, product_rule(text), exact).
const Op& product_op(std::string_view name, std::string_view text,
                     bool exact = false);

// sum_to(), but exact in a reproducible run: for a gradient.
DistTensor cotangent_sum(const DistTensor& x, const Shape&);

// A call that computes the gradient of one operand: its inputs are those of the
// forward pass, with the cotangent in the place of that operand. Callers keep
// it in Decision::memo. In a reproducible run, the gradient of the second
// operand is exact: it is the weight, and ranks split what its gradient sums.
struct ProductGradient {
  const Op* op;
  Attrs attrs;
  Assignment assignment;
};
ProductGradient product_gradient(std::string_view name, const BoundRule&,
                                 const Assignment& forward, size_t operand,
                                 bool reproducible);

}  // namespace dtensor
