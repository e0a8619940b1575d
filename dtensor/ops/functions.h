// Pointwise functions, each written once.
//
// An entry of UnaryFunctions is all a unary function needs: `value` is generic
// in V, which is a scalar, a vector register full of them (the CPU kernels),
// or Dual<V>, so that first and second derivatives come from the same text.
// Adding a struct here and its name to the list makes the function exist, on
// every device, with its derivatives and under test.
//
// Inside `value` write every constant as V(c): a bare double would turn a float
// into a double. Branches are select(condition, a, b), both sides evaluated;
// a comparison with NaN is false. `p` holds the parameters of functions that
// have them (AddScalar, Clamp, ...), and is null for those that have none.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#ifdef __CUDACC__
#define DT_HD __host__ __device__
#else
#define DT_HD
#endif

namespace dtensor::fn {

// --- Scalars ----------------------------------------------------------------
// The names that `value` may call, for float and double. Vector types bring
// their own overloads, found by argument-dependent lookup.
#define DT_SCALAR_MATH(name)                                \
  DT_HD inline float name(float x) { return std::name(x); } \
  DT_HD inline double name(double x) { return std::name(x); }
DT_SCALAR_MATH(exp)
DT_SCALAR_MATH(expm1)
DT_SCALAR_MATH(log)
DT_SCALAR_MATH(log1p)
DT_SCALAR_MATH(sqrt)
DT_SCALAR_MATH(sin)
DT_SCALAR_MATH(cos)
DT_SCALAR_MATH(tanh)
DT_SCALAR_MATH(erf)
DT_SCALAR_MATH(floor)
DT_SCALAR_MATH(ceil)
#undef DT_SCALAR_MATH
// To nearest, ties to even.
DT_HD inline float round(float x) { return std::nearbyint(x); }
DT_HD inline double round(double x) { return std::nearbyint(x); }
DT_HD inline float pow(float x, double p) {
  return std::pow(x, static_cast<float>(p));
}
DT_HD inline double pow(double x, double p) { return std::pow(x, p); }

template <class T>
requires std::is_arithmetic_v<T> DT_HD inline T select(bool c, T a, T b) {
  return c ? a : b;
}

template <class T>
requires std::is_arithmetic_v<T> DT_HD inline T abs(T x) {
  return x < T(0) ? -x : x + T(0);  // + 0: of -0 too
}
template <class V>
DT_HD inline V sign(const V& x) {
  return select(x > V(0), V(1), select(x < V(0), V(-1), V(0)));
}
// 1 / (1 + exp(-x)): 0 and 1 at the infinities.
template <class V>
DT_HD inline V sigmoid(const V& x) {
  return V(1) / (V(1) + exp(-x));
}
// log(1 + exp(x)), without overflow.
template <class V>
DT_HD inline V softplus(const V& x) {
  return select(x > V(0), x, V(0)) + log1p(exp(select(x > V(0), -x, x)));
}

// --- Forward-mode derivatives -----------------------------------------------
// A value and its derivative. Dual<Dual<V>> carries the second one.
template <class V>
struct Dual {
  V v, d;
  DT_HD Dual(const V& value, const V& derivative) : v(value), d(derivative) {}
  DT_HD explicit Dual(double c) : v(c), d(0.0) {}
};

template <class V>
DT_HD inline Dual<V> operator-(const Dual<V>& a) {
  return {-a.v, -a.d};
}
template <class V>
DT_HD inline Dual<V> operator+(const Dual<V>& a, const Dual<V>& b) {
  return {a.v + b.v, a.d + b.d};
}
template <class V>
DT_HD inline Dual<V> operator-(const Dual<V>& a, const Dual<V>& b) {
  return {a.v - b.v, a.d - b.d};
}
template <class V>
DT_HD inline Dual<V> operator*(const Dual<V>& a, const Dual<V>& b) {
  return {a.v * b.v, a.d * b.v + a.v * b.d};
}
template <class V>
DT_HD inline Dual<V> operator/(const Dual<V>& a, const Dual<V>& b) {
  const V q = a.v / b.v;
  return {q, (a.d - q * b.d) / b.v};
}
template <class V>
DT_HD inline auto operator<(const Dual<V>& a, const Dual<V>& b) {
  return a.v < b.v;
}
template <class V>
DT_HD inline auto operator>(const Dual<V>& a, const Dual<V>& b) {
  return a.v > b.v;
}
template <class V>
DT_HD inline auto operator<=(const Dual<V>& a, const Dual<V>& b) {
  return a.v <= b.v;
}
template <class M, class V>
DT_HD inline Dual<V> select(const M& c, const Dual<V>& a, const Dual<V>& b) {
  return {select(c, a.v, b.v), select(c, a.d, b.d)};
}
template <class V>
DT_HD inline Dual<V> abs(const Dual<V>& a) {
  return {abs(a.v), a.d * sign(a.v)};
}
template <class V>
DT_HD inline Dual<V> exp(const Dual<V>& a) {
  const V e = exp(a.v);
  return {e, a.d * e};
}
template <class V>
DT_HD inline Dual<V> expm1(const Dual<V>& a) {
  return {expm1(a.v), a.d * exp(a.v)};
}
template <class V>
DT_HD inline Dual<V> log(const Dual<V>& a) {
  return {log(a.v), a.d / a.v};
}
template <class V>
DT_HD inline Dual<V> log1p(const Dual<V>& a) {
  return {log1p(a.v), a.d / (V(1) + a.v)};
}
template <class V>
DT_HD inline Dual<V> sqrt(const Dual<V>& a) {
  const V s = sqrt(a.v);
  return {s, a.d / (s + s)};
}
template <class V>
DT_HD inline Dual<V> cos(const Dual<V>& a);
template <class V>
DT_HD inline Dual<V> sin(const Dual<V>& a) {
  return {sin(a.v), a.d * cos(a.v)};
}
template <class V>
DT_HD inline Dual<V> cos(const Dual<V>& a) {
  return {cos(a.v), -a.d * sin(a.v)};
}
template <class V>
DT_HD inline Dual<V> tanh(const Dual<V>& a) {
  const V t = tanh(a.v);
  return {t, a.d * (V(1) - t * t)};
}
template <class V>
DT_HD inline Dual<V> erf(const Dual<V>& a) {
  // 2 / sqrt(pi)
  return {erf(a.v), a.d * (V(1.1283791670955126) * exp(-(a.v * a.v)))};
}
// Rules of their own, since differentiating the text would give inf / inf.
template <class V>
DT_HD inline Dual<V> sigmoid(const Dual<V>& a) {
  const V s = sigmoid(a.v);
  return {s, a.d * (s * (V(1) - s))};
}
template <class V>
DT_HD inline Dual<V> softplus(const Dual<V>& a) {
  return {softplus(a.v), a.d * sigmoid(a.v)};
}
template <class V>
DT_HD inline Dual<V> floor(const Dual<V>& a) {
  return {floor(a.v), V(0)};
}
template <class V>
DT_HD inline Dual<V> ceil(const Dual<V>& a) {
  return {ceil(a.v), V(0)};
}
template <class V>
DT_HD inline Dual<V> round(const Dual<V>& a) {
  return {round(a.v), V(0)};
}
// The derivative of x^0 is 0 at every x, 0 included.
template <class V>
DT_HD inline Dual<V> pow(const Dual<V>& a, double p) {
  if (p == 0) return Dual<V>(1.0);
  return {pow(a.v, p), a.d * (V(p) * pow(a.v, p - 1))};
}

// --- The functions ----------------------------------------------------------
// `kNumParams` parameters in p (0 unless stated); `kIntegral` functions also
// exist for i32 and i64.
struct Neg {
  static constexpr const char* name = "neg";
  static constexpr bool kIntegral = true;
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return -x;
  }
};
struct Sign {  // sign(0) = 0, derivative 0
  static constexpr const char* name = "sign";
  static constexpr bool kIntegral = true;
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return sign(x);
  }
};
struct Abs {  // derivative 0 at 0
  static constexpr const char* name = "abs";
  static constexpr bool kIntegral = true;
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return abs(x);
  }
};
struct Exp {
  static constexpr const char* name = "exp";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return exp(x);
  }
};
struct Log {
  static constexpr const char* name = "log";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return log(x);
  }
};
struct Sqrt {
  static constexpr const char* name = "sqrt";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return sqrt(x);
  }
};
struct Rsqrt {
  static constexpr const char* name = "rsqrt";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return V(1) / sqrt(x);
  }
};
struct Reciprocal {
  static constexpr const char* name = "reciprocal";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return V(1) / x;
  }
};
struct Square {
  static constexpr const char* name = "square";
  static constexpr bool kIntegral = true;
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return x * x;
  }
};
struct Sin {
  static constexpr const char* name = "sin";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return sin(x);
  }
};
struct Cos {
  static constexpr const char* name = "cos";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return cos(x);
  }
};
struct Tanh {
  static constexpr const char* name = "tanh";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return tanh(x);
  }
};
struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return sigmoid(x);
  }
};
struct Relu {  // derivative 0 at 0; NaN stays NaN
  static constexpr const char* name = "relu";
  static constexpr bool kIntegral = true;
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return select(x <= V(0), V(0), x);
  }
};
struct LeakyRelu {  // slope p[0] for x <= 0
  static constexpr const char* name = "leaky_relu";
  static constexpr int kNumParams = 1;
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    return select(x <= V(0), V(p[0]) * x, x);
  }
};
struct Elu {  // p[0] (exp(x) - 1) for x <= 0
  static constexpr const char* name = "elu";
  static constexpr int kNumParams = 1;
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    const V low = select(x <= V(0), x, V(0));
    return select(x <= V(0), V(p[0]) * expm1(low), x);
  }
};
struct Gelu {  // x/2 (1 + erf(x / sqrt 2))
  static constexpr const char* name = "gelu";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return V(0.5) * x * (V(1) + erf(x * V(0.70710678118654752)));
  }
};
// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), written with the sigmoid that
// equals it: one exp and one division.
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
struct Softplus {
  static constexpr const char* name = "softplus";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return softplus(x);
  }
};
struct Log1p {
  static constexpr const char* name = "log1p";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return log1p(x);
  }
};
struct Expm1 {
  static constexpr const char* name = "expm1";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return expm1(x);
  }
};
struct Erf {
  static constexpr const char* name = "erf";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return erf(x);
  }
};
struct Floor {
  static constexpr const char* name = "floor";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return floor(x);
  }
};
struct Ceil {
  static constexpr const char* name = "ceil";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return ceil(x);
  }
};
struct Round {  // ties to even
  static constexpr const char* name = "round";
  template <class V>
  DT_HD static V value(const V& x, const double*) {
    return round(x);
  }
};
struct AddScalar {  // x + p[0]
  static constexpr const char* name = "add_scalar";
  static constexpr int kNumParams = 1;
  static constexpr bool kIntegral = true;
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    return x + V(p[0]);
  }
};
struct MulScalar {  // x p[0]
  static constexpr const char* name = "mul_scalar";
  static constexpr int kNumParams = 1;
  static constexpr bool kIntegral = true;
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    return x * V(p[0]);
  }
};
struct PowScalar {  // x ^ p[0]
  static constexpr const char* name = "pow_scalar";
  static constexpr int kNumParams = 1;
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    return pow(x, p[0]);
  }
};
struct Clamp {  // into [p[0], p[1]]; derivative 1 at both ends; NaN stays NaN
  static constexpr const char* name = "clamp";
  static constexpr int kNumParams = 2;
  static constexpr bool kIntegral = true;
  template <class V>
  DT_HD static V value(const V& x, const double* p) {
    return select(x < V(p[0]), V(p[0]), select(x > V(p[1]), V(p[1]), x));
  }
};

// The k-th derivative of F at x (k = 0: the value).
template <class F, int k, class V>
DT_HD inline V derivative(const V& x, const double* p) {
  static_assert(k >= 0 && k <= 2);
  if constexpr (k == 0) {
    return F::value(x, p);
  } else if constexpr (k == 1) {
    return F::value(Dual<V>(x, V(1)), p).d;
  } else {
    using D = Dual<V>;
    return F::value(Dual<D>(D(x, V(1)), D(V(1), V(0))), p).d.d;
  }
}

// --- The lists --------------------------------------------------------------
template <class... F>
struct FunctionList {
  static constexpr int size = sizeof...(F);
};

using UnaryFunctions =
    FunctionList<Neg, Abs, Exp, Log, Sqrt, Rsqrt, Reciprocal, Square, Sin, Cos,
                 Tanh, Sigmoid, Relu, LeakyRelu, Elu, Gelu, GeluTanh, Silu,
                 Softplus, Log1p, Expm1, Erf, Sign, Floor, Ceil, Round,
                 AddScalar, MulScalar, PowScalar, Clamp>;

// Two-operand functions; the kernels implement them by name. Maximum and
// Minimum give NaN when either operand is one. Those from Eq on give bool.
struct Add {
  static constexpr const char* name = "add";
};
struct Sub {
  static constexpr const char* name = "sub";
};
struct Mul {
  static constexpr const char* name = "mul";
};
struct Div {
  static constexpr const char* name = "div";
};
struct Pow {
  static constexpr const char* name = "pow";
};
struct Maximum {
  static constexpr const char* name = "maximum";
};
struct Minimum {
  static constexpr const char* name = "minimum";
};
struct Eq {
  static constexpr const char* name = "eq";
};
struct Ne {
  static constexpr const char* name = "ne";
};
struct Lt {
  static constexpr const char* name = "lt";
};
struct Le {
  static constexpr const char* name = "le";
};
struct Gt {
  static constexpr const char* name = "gt";
};
struct Ge {
  static constexpr const char* name = "ge";
};
struct LogicalAnd {
  static constexpr const char* name = "logical_and";
};
struct LogicalOr {
  static constexpr const char* name = "logical_or";
};

using BinaryFunctions =
    FunctionList<Add, Sub, Mul, Div, Pow, Maximum, Minimum, Eq, Ne, Lt, Le, Gt,
                 Ge, LogicalAnd, LogicalOr>;

namespace internal {
template <class F, class List>
struct IndexIn;
template <class F, class... Rest>
struct IndexIn<F, FunctionList<F, Rest...>> {
  static constexpr int value = 0;
};
template <class F, class G, class... Rest>
struct IndexIn<F, FunctionList<G, Rest...>> {
  static constexpr int value = 1 + IndexIn<F, FunctionList<Rest...>>::value;
};
template <class F>
constexpr int num_params() {
  if constexpr (requires { F::kNumParams; }) return F::kNumParams;
  return 0;
}
template <class F>
constexpr bool integral() {
  if constexpr (requires { F::kIntegral; }) return F::kIntegral;
  return false;
}
template <class List>
struct Table;
template <class... F>
struct Table<FunctionList<F...>> {
  static constexpr std::string_view name[] = {F::name...};
  static constexpr int params[] = {num_params<F>()...};
  static constexpr bool integral[] = {internal::integral<F>()...};
};
}  // namespace internal

inline constexpr int kNumUnary = UnaryFunctions::size;
inline constexpr int kNumBinary = BinaryFunctions::size;

// The index by which kernels::unary and kernels::binary know a function.
// REQUIRES: F is in the list.
template <class F>
inline constexpr int index_of = internal::IndexIn<F, UnaryFunctions>::value;
template <class F>
inline constexpr int binary_index_of =
    internal::IndexIn<F, BinaryFunctions>::value;

// REQUIRES: 0 <= index < kNumUnary (kNumBinary for the binary ones).
constexpr std::string_view name_of(int index) {
  return internal::Table<UnaryFunctions>::name[index];
}
constexpr int num_params_of(int index) {
  return internal::Table<UnaryFunctions>::params[index];
}
// Whether the function also exists for i32 and i64.
constexpr bool integral_of(int index) {
  return internal::Table<UnaryFunctions>::integral[index];
}
constexpr std::string_view binary_name_of(int index) {
  return internal::Table<BinaryFunctions>::name[index];
}
// Whether the binary function's output is bool.
constexpr bool gives_bool(int index) { return index >= binary_index_of<Eq>; }

}  // namespace dtensor::fn
