// Element by element, with NumPy's broadcasting and PyTorch's names.
//
// Operands of different types meet at promote() of the two; a plain number
// keeps the tensor's type. All are differentiable where the function is.
#pragma once
#include <string_view>
#include <vector>

#include "dtensor/ops/op.h"
#include "dtensor/runtime/dist_tensor.h"

namespace dtensor {

DistTensor add(const DistTensor&, const DistTensor&);
DistTensor sub(const DistTensor&, const DistTensor&);
DistTensor mul(const DistTensor&, const DistTensor&);
DistTensor div(const DistTensor&, const DistTensor&);
DistTensor pow(const DistTensor&, const DistTensor&);
DistTensor maximum(const DistTensor&, const DistTensor&);
DistTensor minimum(const DistTensor&, const DistTensor&);
DistTensor add(const DistTensor&, double);
DistTensor sub(const DistTensor&, double);
DistTensor mul(const DistTensor&, double);
DistTensor div(const DistTensor&, double);
DistTensor pow(const DistTensor&, double);

// bool outputs, not differentiable.
DistTensor eq(const DistTensor&, const DistTensor&);
DistTensor ne(const DistTensor&, const DistTensor&);
DistTensor lt(const DistTensor&, const DistTensor&);
DistTensor le(const DistTensor&, const DistTensor&);
DistTensor gt(const DistTensor&, const DistTensor&);
DistTensor ge(const DistTensor&, const DistTensor&);
DistTensor logical_and(const DistTensor&, const DistTensor&);
DistTensor logical_or(const DistTensor&, const DistTensor&);

// condition ? a : b.
DistTensor where(const DistTensor& condition, const DistTensor& a,
                 const DistTensor& b);
DistTensor cast(const DistTensor&, DType);

DistTensor neg(const DistTensor&);
DistTensor abs(const DistTensor&);
DistTensor exp(const DistTensor&);
DistTensor log(const DistTensor&);
DistTensor sqrt(const DistTensor&);
DistTensor rsqrt(const DistTensor&);
DistTensor square(const DistTensor&);
DistTensor sin(const DistTensor&);
DistTensor cos(const DistTensor&);
DistTensor tanh(const DistTensor&);
DistTensor sigmoid(const DistTensor&);
DistTensor relu(const DistTensor&);
DistTensor gelu(const DistTensor&);       // exact: x Phi(x)
DistTensor gelu_tanh(const DistTensor&);  // the tanh approximation
DistTensor silu(const DistTensor&);
DistTensor clamp(const DistTensor&, double lo, double hi);
// Any function of fn::UnaryFunctions by name ("softplus").
DistTensor unary(std::string_view function, const DistTensor&);

// For the list of operators.
std::vector<const Op*> pointwise_ops();

inline DistTensor operator+(const DistTensor& a, const DistTensor& b) {
  return add(a, b);
}
inline DistTensor operator-(const DistTensor& a, const DistTensor& b) {
  return sub(a, b);
}
inline DistTensor operator*(const DistTensor& a, const DistTensor& b) {
  return mul(a, b);
}
inline DistTensor operator/(const DistTensor& a, const DistTensor& b) {
  return div(a, b);
}
inline DistTensor operator-(const DistTensor& a) { return neg(a); }
inline DistTensor operator+(const DistTensor& a, double b) { return add(a, b); }
inline DistTensor operator-(const DistTensor& a, double b) { return sub(a, b); }
inline DistTensor operator*(const DistTensor& a, double b) { return mul(a, b); }
inline DistTensor operator/(const DistTensor& a, double b) { return div(a, b); }

}  // namespace dtensor
