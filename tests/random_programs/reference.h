// SPDX-License-Identifier: Apache-2.0
// Computes a program by loops over row-major numbers, without any layout.
//
// Computes gradients in forward mode, by one element of one leaf at a time, on
// numbers that carry their derivative (Dual). So each operator has one
// implementation for value and derivative, and it shares nothing with the
// library's backward rules, which it tests.
#pragma once
#include <string>
#include <vector>

#include "tests/random_programs/program.h"

namespace dtensor::random_programs {

// Thrown for a program whose results are not defined: shapes that do not fit
// together, or numbers for which rounding decides the result (near a jump, or
// ill-conditioned).
struct Unfit {};

struct Expected {
  std::vector<testing::Array> values;     // by step
  std::vector<testing::Array> gradients;  // of leaves with wants_grad, in order
  bool differentiable = false;            // whether any gradient is not 0
};

// Computes the expected results. The values of the operator `wrong` are made
// wrong on purpose, to test that the comparison notices it. Throws Unfit.
Expected reference(const Program&, std::string_view wrong = "");

// The value of a step. `values` are those of the steps before it. Throws Unfit.
testing::Array value_of(const Step&, const std::vector<testing::Array>& values);

}  // namespace dtensor::random_programs
