// Element-wise functions.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::fn {
enum class By : uint8_t;  // functions/function.h
}

namespace dtensor::kernels {

// Inputs of one shape, each with its own strides, and contiguous outputs. `out`
// may be in[i] if that input is contiguous and its items have the output's
// size. `second` may be another such input.
struct Pointwise {
  Shape shape;
  void* out = nullptr;
  void* second = nullptr;  // for By::kBoth: the derivative by b
  const void* in[3] = {};
  Shape strides[3];
};

class PointwiseKernels {
 public:
  virtual ~PointwiseKernels() = default;
  // A function of fn::UnaryFunctions, by index. Order 0: out = f(in[0]). Orders
  // 1 and 2: out = f'(in[0]) in[1] and f''(in[0]) in[1], for functions that are
  // not linear. For the types that the function takes. `params` is host memory;
  // null if it has no parameters.
  virtual void unary(Stream, int index, int order, DType, const double* params,
                     const Pointwise&) const = 0;
  // A function of fn::BinaryFunctions, by index; or its derivative by the named
  // operands times in[2]. By::kBoth has two outputs. Outputs (of unary(), too)
  // have the given type, or bool if the function gives bools.
  virtual void binary(Stream, int index, fn::By, DType, const double* params,
                      const Pointwise&) const = 0;
  // out = in[0] (bool) ? in[1] : in[2]. All dtypes.
  virtual void where(Stream, DType, const Pointwise&) const = 0;
};

}  // namespace dtensor::kernels
