// SPDX-License-Identifier: Apache-2.0
// Activations of neural networks, by their names in torch.nn.functional, which
// lacks gelu_tanh and swiglu.
//
// Where a derivative jumps, it is 0 if the function is flat on one side, as in
// PyTorch: relu'(0) = 0. Otherwise it has the value of the left side, except
// that hardswish'(3) = 1. relu(-0.0) is 0.0. gelu, gelu_tanh, silu and mish are
// NaN at -inf (-inf times 0).
#pragma once
#include "dtensor/ops/functions/function.h"

namespace dtensor::fn {

struct Relu {  // NaN stays NaN
  static constexpr const char* name = "relu";
  static constexpr const char* notes = "up 0";
  static constexpr Takes takes = Takes::kNumbers;
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return select(x <= V(0), V(0), x);
  }
};
struct LeakyRelu {
  static constexpr const char* name = "leaky_relu";
  static constexpr Param params[] = {{"negative_slope", 0.01}};
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    return select(x <= V(0), V(p[0]) * x, x);
  }
};
struct Elu {  // alpha * (exp(x) - 1) for x <= 0
  static constexpr const char* name = "elu";
  static constexpr Param params[] = {{"alpha", 1, 1.25}};
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    const V low = select(x <= V(0), x, V(0));
    return select(x <= V(0), V(p[0]) * expm1(low), x);
  }
};
struct Celu {  // alpha * (exp(x / alpha) - 1) for x <= 0
  static constexpr const char* name = "celu";
  static constexpr Param params[] = {{"alpha", 1, 1.25}};
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    const V low = select(x <= V(0), x, V(0));
    return select(x <= V(0), V(p[0]) * expm1(low / V(p[0])), x);
  }
};
struct Selu {
  static constexpr const char* name = "selu";
  static constexpr const char* notes = "up 0";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    const V scale(1.0507009873554805), below(1.7580993408473769);
    const V low = select(x <= V(0), x, V(0));
    return select(x <= V(0), below * expm1(low), scale * x);
  }
};
struct Gelu {  // x/2 * (1 + erf(x / sqrt(2))) = x * Phi(x)
  static constexpr const char* name = "gelu";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return V(0.5) * x * (V(1) + erf(x * V(0.70710678118654752)));
  }
};
// x/2 * (1 + tanh(z)) for z = sqrt(2/pi) * (x + 0.044715 * x^3), computed as
// x * sigmoid(2 z), which takes one exp and one division. In torch:
// gelu(x, approximate="tanh").
struct GeluTanh {
  static constexpr const char* name = "gelu_tanh";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    // 2 sqrt(2/pi), and that times 0.044715
    return x * sigmoid(x * (V(1.5957691216057308) +
                            V(0.071354816272600249) * (x * x)));
  }
};
struct Silu {
  static constexpr const char* name = "silu";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return x * sigmoid(x);
  }
};
struct Mish {
  static constexpr const char* name = "mish";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return x * tanh(softplus(x));
  }
};
DT_ELEMENTARY(Sigmoid, sigmoid, const char* notes = "up 0")
struct LogSigmoid {
  static constexpr const char* name = "logsigmoid";
  static constexpr const char* notes = "up 0";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return -softplus(-x);
  }
};
// log(1 + exp(beta * x)) / beta, or x itself if beta * x > threshold. At the
// threshold the value drops a little, so the function lacks "up 0".
struct Softplus {
  static constexpr const char* name = "softplus";
  static constexpr Param params[] = {{"beta", 1}, {"threshold", 20}};
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    const V z = V(p[0]) * x;
    return select(z > V(p[1]), x, softplus(z) / V(p[0]));
  }
};
struct Hardtanh {  // clamps to [p[0], p[1]]; derivative 0 at both ends
  static constexpr const char* name = "hardtanh";
  static constexpr const char* notes = "up 0";
  static constexpr Param params[] = {{"min_val", -1}, {"max_val", 1}};
  static constexpr Takes takes = Takes::kNumbers;
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    const V lo(p[0]), hi(p[1]);
    return select(x <= lo, lo, select(x >= hi, hi, x));
  }
};
struct Relu6 {  // clamps to [0, 6]
  static constexpr const char* name = "relu6";
  static constexpr const char* notes = "up 0";
  static constexpr Takes takes = Takes::kNumbers;
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return select(x <= V(0), V(0), select(x >= V(6), V(6), x));
  }
};
// relu6(x + 3) / 6. Between -3 and 3, the gradient is dy times 1/6, which is
// rounded to the type of the computation; PyTorch rounds it to f32.
struct Hardsigmoid {
  static constexpr const char* name = "hardsigmoid";
  static constexpr const char* notes = "up 0";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return select(x <= V(-3), V(0), select(x >= V(3), V(1), (x + V(3)) / V(6)));
  }
};
struct Hardswish {  // x * hardsigmoid(x)
  static constexpr const char* name = "hardswish";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return select(x <= V(-3), V(0),
                  select(x >= V(3), x, x * (x + V(3)) / V(6)));
  }
};
struct Softsign {  // x / (1 + |x|)
  static constexpr const char* name = "softsign";
  static constexpr const char* notes = "up 0";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return x / (V(1) + abs(x));
  }
};
struct Tanhshrink {
  static constexpr const char* name = "tanhshrink";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return x - tanh(x);
  }
};
struct Softshrink {  // moves x towards 0 by lambd, at most to 0
  static constexpr const char* name = "softshrink";
  static constexpr Param params[] = {{"lambd", 0.5}};
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    const V l(p[0]), inside = select(x == x, V(0), x);
    return select(x > l, x - l, select(x < -l, x + l, inside));
  }
};
struct Hardshrink {  // 0 in [-lambd, lambd]
  static constexpr const char* name = "hardshrink";
  static constexpr Param params[] = {{"lambd", 0.5}};
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    const V l(p[0]);
    return select((x <= l) & (x >= -l), V(0), x);
  }
};
struct Threshold {  // p[1] for x <= p[0]
  static constexpr const char* name = "threshold";
  static constexpr Param params[] = {{"threshold", NAN, 0.25},
                                     {"value", NAN, -1.5}};
  static constexpr Takes takes = Takes::kNumbers;
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    return select(x <= V(p[0]), V(p[1]), x);
  }
};

struct SwiGlu {  // silu(a) * b: a is the gate of b
  static constexpr const char* name = "swiglu";
  template <class V>
  DT_HD static V value(const V& a, const V& b, const double*) {
    return a * sigmoid(a) * b;
  }
};

#define DT_ACTIVATION_UNARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(Relu, relu)                               \
  DT_FUNCTION_P(LeakyRelu, leaky_relu)                  \
  DT_FUNCTION_P(Elu, elu)                               \
  DT_FUNCTION_P(Celu, celu)                             \
  DT_FUNCTION(Selu, selu)                               \
  DT_FUNCTION(Gelu, gelu)                               \
  DT_FUNCTION(GeluTanh, gelu_tanh)                      \
  DT_FUNCTION(Silu, silu)                               \
  DT_FUNCTION(Mish, mish)                               \
  DT_FUNCTION(Sigmoid, sigmoid)                         \
  DT_FUNCTION(LogSigmoid, logsigmoid)                   \
  DT_FUNCTION_P(Softplus, softplus)                     \
  DT_FUNCTION_P(Hardtanh, hardtanh)                     \
  DT_FUNCTION(Relu6, relu6)                             \
  DT_FUNCTION(Hardsigmoid, hardsigmoid)                 \
  DT_FUNCTION(Hardswish, hardswish)                     \
  DT_FUNCTION(Softsign, softsign)                       \
  DT_FUNCTION(Tanhshrink, tanhshrink)                   \
  DT_FUNCTION_P(Softshrink, softshrink)                 \
  DT_FUNCTION_P(Hardshrink, hardshrink)                 \
  DT_FUNCTION_P(Threshold, threshold)
#define DT_ACTIVATION_BINARY(DT_FUNCTION, DT_FUNCTION_P) \
  DT_FUNCTION(SwiGlu, swiglu)

}  // namespace dtensor::fn
