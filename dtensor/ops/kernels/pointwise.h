// Functions of each element by itself.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// Inputs of one shape with strides of their own, a contiguous output. `out` may
// be in[i] itself where that input is contiguous and of the output's item size.
struct Pointwise {
  Shape shape;
  void* out = nullptr;
  const void* in[3] = {};
  Shape strides[3];
};

class PointwiseKernels {
 public:
  virtual ~PointwiseKernels() = default;
  // A function of fn::UnaryFunctions, by index. order 0: out = f(in[0]).
  // order 1, 2: out = f'(in[0]) in[1], f''(in[0]) in[1]. Floats; i32 and i64 at
  // order 0 where fn::integral_of(index). `params` are the
  // host's, and may be null if it has none.
  virtual void unary(Stream, int index, int order, DType, const double* params,
                     const Pointwise&) const = 0;
  // A function of fn::BinaryFunctions, by index, on two operands of type `in`;
  // the output is bool where fn::gives_bool(index), else `in`. bool operands:
  // the comparisons and logical functions only. Integers wrap around; integer
  // division rounds towards zero, and x / 0 is 0; x ^ negative is 0, but for
  // x = 1 and -1.
  virtual void binary(Stream, int index, DType in, const Pointwise&) const = 0;
  // out = in[0] (bool) ? in[1] : in[2]. All dtypes.
  virtual void where(Stream, DType, const Pointwise&) const = 0;
  // in[0] converted. Float to integer truncates, and saturates where the value
  // does not fit (NaN: 0); to bool is != 0.
  virtual void cast(Stream, DType from, DType to, const Pointwise&) const = 0;
};

}  // namespace dtensor::kernels
