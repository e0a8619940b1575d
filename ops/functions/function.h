// SPDX-License-Identifier: Apache-2.0
// The description of a pointwise function: a struct with a name and a `value`,
// and the facts below that differ from their defaults.
//
//   struct LeakyRelu {  // slope p[0] for x <= 0
//     static constexpr const char* name = "leaky_relu";
//     static constexpr Param params[] = {{"negative_slope", 0.01}};
//     template <class V>
//     DT_HD static V value(const V& x, const double* p) {
//       return select(x <= V(0), V(p[0]) * x, x);
//     }
//   };
//
// A binary function takes (const V& a, const V& b, const double* p). It is
// enough to write the struct and its line in the list at the end of its
// family's header. The function then exists on every device, for every type in
// `takes`, with its first three derivatives (if it takes floats and does not
// give bools), as an operator with a rule that the proof driver
// (tests/ops/proof.h) checks, and as a public function (DT_FUNCTION: f(x),
// DT_FUNCTION_P: with parameters). tests/ops/rules.golden has to list its rule.
//
// `value` is generic in V, which is a scalar, a vector register, an Int, or a
// Dual of one of them (math.h, dual.h). Write every constant as V(c); a plain
// double would turn a float into a double. Branches are
// select(condition, a, b), which evaluates both sides. Comparisons with NaN are
// false, except !=. `p` holds the parameters in order. It is not read if there
// are none.
#pragma once
#include <cstdint>
#include <iterator>
#include <limits>
#include <string_view>
#include <type_traits>

#include "dtensor/ops/functions/dual.h"
#include "dtensor/ops/functions/math.h"

namespace dtensor::fn {

// A parameter and its default; NaN means that it must be given. `sample` is the
// value that the proof driver uses instead, unless it is 0.
struct Param {
  const char* name;
  double fallback = std::numeric_limits<double>::quiet_NaN();
  double sample = 0;
};

// The types that a function has a value for. Operands of other types are
// converted, or Error is thrown.
enum class Takes : uint8_t {
  kFloats,    // floats; integers and bools become f32
  kNumbers,   // floats and integers; Error for bools
  kCounts,    // floats and integers; bools become i64
  kAll,       // floats, integers and bools
  kIntegers,  // integers; Error for floats and bools
  kBits       // integers and bools; Error for floats
};
constexpr bool takes_floats(Takes t) { return t < Takes::kIntegers; }
constexpr bool takes_integers(Takes t) { return t != Takes::kFloats; }
constexpr bool takes_bools(Takes t) {
  return t == Takes::kAll || t == Takes::kBits;
}

// A range within the function's domain, from which the proof driver samples an
// operand (not at its ends). At an end of the domain the slope may be infinite,
// so the derivatives of a function that declares a Domain do not take the
// cotangent as a partial sum.
struct Domain {
  double lo = -2, hi = 3;
};

// The facts of a function.
struct Function {
  std::string_view name;
  // How the function acts on partial inputs: the notes of a rule
  // (placement/rule.h). For a unary function, "linear 0" says that f(x) = c x,
  // and "affine 0" that f(x) = x + c. The gradient of a linear function uses
  // only operators that let partials pass, too. The only linear binary
  // functions are add, sub, mul and lerp.
  std::string_view notes = "";
  Takes takes = Takes::kFloats;
  // The output is bool, and there is no derivative.
  bool gives_bool = false;
  // Parameters take part in type promotion, as operands do: clamp(i64, 0.5, 2)
  // is f32.
  bool promotes = false;
  // Infinite parameters stand for the largest and lowest finite value of the
  // type.
  bool finite = false;
  // The function also takes bf16 and f16. It computes in f32 and rounds.
  bool rounds = true;
  // Whether a binary function has a derivative by its first operand.
  bool slope_a = true;
  const Param* params = nullptr;
  int num_params = 0;
  int num_required = 0;  // parameters without a default
  // The domains of the operands, from the struct's `domain` and `domain_b`.
  bool has_domain = false;
  Domain domain[2] = {};

  constexpr bool linear() const { return notes.starts_with("linear"); }
  constexpr bool affine() const { return notes.starts_with("affine"); }
  constexpr bool differentiable() const {
    return !gives_bool && takes_floats(takes);
  }
};

template <class F>
constexpr Function facts() {
  Function f;
  f.name = F::name;
  if constexpr (requires { F::notes; }) f.notes = F::notes;
  if constexpr (requires { F::takes; }) f.takes = F::takes;
  if constexpr (requires { F::gives_bool; }) f.gives_bool = F::gives_bool;
  if constexpr (requires { F::promotes; }) f.promotes = F::promotes;
  if constexpr (requires { F::finite; }) f.finite = F::finite;
  if constexpr (requires { F::rounds; }) f.rounds = F::rounds;
  if constexpr (requires { F::slope_a; }) f.slope_a = F::slope_a;
  if constexpr (requires { F::params; }) {
    f.params = F::params;
    f.num_params = static_cast<int>(std::size(F::params));
    for (const Param& p : F::params) f.num_required += p.fallback != p.fallback;
  }
  if constexpr (requires { F::domain; }) {
    f.has_domain = true;
    f.domain[0] = F::domain;
  }
  if constexpr (requires { F::domain_b; }) {
    f.has_domain = true;
    f.domain[1] = F::domain_b;
  }
  return f;
}

// Defines a function of one operand that math.h has under the same name, from
// this name and one fact, such as `Domain domain{-1, 1}`.
#define DT_ELEMENTARY(F, function, ...)               \
  struct F {                                          \
    static constexpr const char* name = #function;    \
    static constexpr __VA_ARGS__;                     \
    template <class V>                                \
    DT_HD static V value(const V& x, const double*) { \
      return function(x);                             \
    }                                                 \
  };
// Defines a function of two operands from the operator between them.
#define DT_INFIX(F, text, its_notes, its_takes, op)               \
  struct F {                                                      \
    static constexpr const char* name = text;                     \
    static constexpr const char* notes = its_notes;               \
    static constexpr Takes takes = its_takes;                     \
    template <class V>                                            \
    DT_HD static V value(const V& a, const V& b, const double*) { \
      return a op b;                                              \
    }                                                             \
  };

// The most parameters that a function may have.
inline constexpr int kMaxParams = 4;
// The highest order of a function's derivatives.
inline constexpr int kMaxOrder = 3;

// --- Derivatives ------------------------------------------------------------
// Returns x as n nested dual numbers. Number k (0 is the innermost) has the
// derivative 1 if bit k of `moves` is set, else 0.
template <int n, class V>
DT_HD inline auto nested(const V& x, [[maybe_unused]] int moves) {
  if constexpr (n == 0) {
    return x;
  } else {
    const auto inner = nested<n - 1>(x, moves);
    using D = std::remove_const_t<decltype(inner)>;
    return Dual<D>(inner, D(moves >> (n - 1) & 1 ? 1.0 : 0.0));
  }
}
// The mixed derivative with respect to all n numbers of nested().
template <int n, class D>
DT_HD inline auto innermost(const D& x) {
  if constexpr (n == 0)
    return x;
  else
    return innermost<n - 1>(x.d);
}

// The k-th derivative of F at x (k = 0: the value).
template <class F, int k, class V>
DT_HD inline V derivative(const V& x, const double* p) {
  static_assert(k >= 0 && k <= kMaxOrder);
  return innermost<k>(F::value(nested<k>(x, (1 << k) - 1), p));
}

// With respect to which operands a binary function is differentiated: kAAB is
// the third derivative, twice by a and once by b. kBoth: both first derivatives
// together.
enum class By : uint8_t {
  kNone,
  kA,
  kB,
  kBoth,
  kAA,
  kAB,
  kBB,
  kAAA,
  kAAB,
  kABB,
  kBBB
};
inline constexpr int kNumBy = 11;
constexpr int order_of(By by) {
  return by == By::kNone ? 0 : by < By::kAA ? 1 : by < By::kAAA ? 2 : 3;
}
// How often `by` differentiates by b. Not for kBoth.
constexpr int times_b(By by) {
  constexpr By kFirst[] = {By::kNone, By::kA, By::kAA, By::kAAA};
  return static_cast<int>(by) - static_cast<int>(kFirst[order_of(by)]);
}
// `by`, differentiated once more: with respect to the operand b if `b` is true,
// else to a. Not for kBoth or the highest order.
constexpr By also_by(By by, bool b) {
  return static_cast<By>(static_cast<int>(by) + (by == By::kNone ? 1 : 3) +
                         (b ? 1 : 0));
}
static_assert(also_by(By::kA, false) == By::kAA);
static_assert(also_by(By::kAB, true) == By::kABB);

template <class F, By by, class V>
DT_HD inline V derivative(const V& a, const V& b, const double* p) {
  static_assert(by != By::kBoth);
  constexpr int n = order_of(by), all = (1 << n) - 1,
                moves_b = (1 << times_b(by)) - 1;
  return innermost<n>(
      F::value(nested<n>(a, all - moves_b), nested<n>(b, moves_b), p));
}

}  // namespace dtensor::fn
