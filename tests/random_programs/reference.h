// SPDX-License-Identifier: Apache-2.0
// Computes a program by loops over row-major numbers, without any layout.
//
// Gradients are taken in forward mode, by one element of one leaf at a time, on
// numbers that carry their derivative (Dual). So each operator stands here
// once, for value and derivative, and shares nothing with the backward rules of
// the library, which this is to judge.
#pragma once
#include <string>
#include <vector>

#include "tests/random_programs/program.h"

namespace dtensor::random_programs {

// Thrown for a program that does not say what it computes: shapes that do not
// go together, or numbers where rounding decides (near a jump,
// ill-conditioned).
struct Unfit {};

struct Expected {
  std::vector<testing::Array> values;     // of each step
  std::vector<testing::Array> gradients;  // of leaves that want one
  bool differentiable = false;            // the loss depends on one of those
};

// With `wrong`, the values of that operator come out wrong, to see that this is
// noticed.
Expected reference(const Program&, std::string_view wrong = "");

// The value of one more step. `values` are those of the steps before it.
testing::Array value_of(const Step&, const std::vector<testing::Array>& values);

}  // namespace dtensor::random_programs
