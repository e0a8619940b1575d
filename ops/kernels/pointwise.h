// Functions of each element by itself.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::fn {
enum class By : uint8_t;  // functions/function.h
}

namespace dtensor::kernels {

// Inputs of one shape with strides of their own, contiguous outputs. `out` may
// be in[i] itself where that input is contiguous and of the output's item size;
// so may `second`, if it is another one.
struct Pointwise {
  Shape shape;
  void* out = nullptr;
  void* second = nullptr;  // of By::kBoth: the derivative by b
  const void* in[3] = {};
  Shape strides[3];
};

class PointwiseKernels {
 public:
  virtual ~PointwiseKernels() = default;
  // A function of fn::UnaryFunctions, by index. order 0: out = f(in[0]).
  // order 1, 2: out = f'(in[0]) in[1], f''(in[0]) in[1], unless the function is
  // linear. Of the types that it takes; `params` are the host's, and may be
  // null if it has none.
  virtual void unary(Stream, int index, int order, DType, const double* params,
                     const Pointwise&) const = 0;
  // A function of fn::BinaryFunctions, by index, on two operands of the type,
  // or its derivative by the operands named, times in[2]; by both, two outputs.
  // Both: the output is bool where the function gives one, else of the type.
  virtual void binary(Stream, int index, fn::By, DType, const double* params,
                      const Pointwise&) const = 0;
  // out = in[0] (bool) ? in[1] : in[2]. All dtypes.
  virtual void where(Stream, DType, const Pointwise&) const = 0;
};

}  // namespace dtensor::kernels
