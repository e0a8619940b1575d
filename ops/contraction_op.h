// The operator behind every sum of products; contraction.h has the functions.
#pragma once
#include <string>
#include <string_view>

#include "dtensor/ops/op.h"

namespace dtensor {

// The sizes of the factors that only the output has, in the rule's order.
struct ContractionArgs {
  static constexpr Fields kFields = {"sizes"};
  Shape sizes;
};

// The letters of the factors that no input has, whose size has to be said.
std::string only_in_output(const Rule&);

// A rule's text with the notes of a sum of products, linear in each operand
// alone; parsed once per thread. Throws Error when the text is no rule.
const Rule& product_rule(std::string_view text);

// The contraction of that rule, under that name; lives as long as the process.
const Op& contraction_op(std::string_view name, const Rule&);
// That of product_rule(text).
const Op& product_op(std::string_view name, std::string_view text);

// The gradient of one operand: the product of the cotangent, which takes the
// operand's place, and the other operand. Made once per decision.
struct ProductGradient {
  const Op* op;
  Attrs attrs;
  Assignment assignment;
};
ProductGradient product_gradient(std::string_view name, const BoundRule&,
                                 const Assignment& forward, size_t operand);

}  // namespace dtensor
