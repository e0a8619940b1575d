// SPDX-License-Identifier: Apache-2.0
// Element-wise functions.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::fn {
enum class By : uint8_t;  // functions/function.h
}

namespace dtensor::kernels {

// Inputs of one shape, each with its own strides, and contiguous outputs. `out`
// may be in[i] if that input is contiguous and its items have the size of the
// output's. `second` may be another input, under the same condition.
struct Pointwise {
  DType type = DType::kF32;
  Shape shape = {};
  void* out = nullptr;
  void* second = nullptr;  // for By::kBoth: the derivative for b
  std::array<const void*, 3> in = {};
  std::array<Shape, 3> strides = {};
};

// A function of fn::UnaryFunctions, by index. Order 0: out = f(in[0]). Orders 1
// to 3: out = in[1] times the first to third derivative at in[0], for functions
// that are neither linear nor affine. Takes the types that the function takes.
// REQUIRES: at least as many `params` as the function has.
struct Unary {
  int index = 0, order = 0;
  std::span<const double> params = {};
  Pointwise of;
};

// A function of fn::BinaryFunctions, by index; or, if `by` is not kNone, its
// derivative with respect to the operands that `by` names, times in[2].
// By::kBoth has two outputs. Outputs, also those of Unary, have the type
// Pointwise::type, or bool if the function gives bools.
struct Binary {
  int index = 0;
  fn::By by = {};  // kNone
  std::span<const double> params = {};
  Pointwise of;
};

// out = in[0] (bool) ? in[1] : in[2] (Pointwise::type). Takes all dtypes.
struct Where {
  Pointwise of;
};

// out = in[0] + in[1] * in[2]. Takes floats; halves are rounded once.
struct MulAdd {
  Pointwise of;
};

}  // namespace dtensor::kernels
