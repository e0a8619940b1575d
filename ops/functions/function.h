// What a pointwise function may say of itself. A function is a struct with a
// name and a `value`, and, where the default is not right, the facts below:
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
// A binary one takes (const V& a, const V& b, const double* p). The struct and
// its line in the list at the end of its family's header make the function
// exist: on every device, for every type, with first and second derivatives, as
// an operator with a rule, under proof, and as a public function (DT_FUNCTION:
// f(x), DT_FUNCTION_P: with parameters). tests/ops/rules.golden then shows its
// rule.
//
// `value` is generic in V, which is a scalar, a register full of them, an Int,
// or a Dual of one (math.h, dual.h). Write every constant as V(c): a bare
// double would turn a float into a double. Branches are select(condition, a,
// b), both sides evaluated; a comparison with NaN is false. `p` holds the
// parameters in order and is not read without any.
#pragma once
#include <cstdint>
#include <iterator>
#include <limits>
#include <string_view>

#include "dtensor/ops/functions/dual.h"
#include "dtensor/ops/functions/math.h"

namespace dtensor::fn {

// A parameter, and what it is when a caller leaves it out; NaN: it must be
// given. `sample` is what the proof uses instead, where that is not 0.
struct Param {
  const char* name;
  double fallback = std::numeric_limits<double>::quiet_NaN();
  double sample = 0;
};

// The types that a function has a value for. An operand of another type is
// converted or refused.
enum class Takes : uint8_t {
  kFloats,    // integers and bools become f32
  kNumbers,   // integers too; a bool is refused
  kCounts,    // integers too; a bool becomes i64
  kAll,       // integers and bools too
  kIntegers,  // a float or a bool is refused
  kBits       // integers and bools; a float is refused
};
constexpr bool takes_floats(Takes t) { return t < Takes::kIntegers; }
constexpr bool takes_integers(Takes t) { return t != Takes::kFloats; }
constexpr bool takes_bools(Takes t) {
  return t == Takes::kAll || t == Takes::kBits;
}

// Where the proof samples an operand: inside the function's domain, away from
// its ends. A function with a domain may have an infinite slope at its ends.
struct Domain {
  double lo = -2, hi = 3;
};

// The facts, as data.
struct Function {
  std::string_view name;
  // For inputs that are partial: the notes of a rule (placement/rule.h).
  // "linear 0" of a unary function says that f(x) = c x, "affine 0" that
  // f(x) = x + c. Gradients of linear functions are made of operators, so that
  // partials pass there too: of binary ones, add, sub and mul alone.
  std::string_view notes = "";
  Takes takes = Takes::kFloats;
  // The output is bool; there is no derivative.
  bool gives_bool = false;
  // Numbers given as parameters take part in the choice of the type, as
  // operands do: clamp(i64, 0.5, 2) is f32.
  bool promotes = false;
  // An infinite parameter stands for the type's largest finite value.
  bool finite = false;
  // Has a value in bf16 and f16, which compute in f32 and round.
  bool rounds = true;
  const Param* params = nullptr;
  int num_params = 0;
  int num_required = 0;  // those that have no default
  // Of the operands: `domain`, and `domain_b` of the second.
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

// The most parameters that a function has.
inline constexpr int kMaxParams = 4;

// --- Derivatives ------------------------------------------------------------
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

// Of a binary function: by which operands. kBoth: the first derivatives by the
// one and by the other, together.
enum class By : uint8_t { kNone, kA, kB, kBoth, kAA, kAB, kBB };
inline constexpr int kNumBy = 7;
constexpr int order_of(By by) {
  return by == By::kNone ? 0 : by < By::kAA ? 1 : 2;
}

template <class F, By by, class V>
DT_HD inline V derivative(const V& a, const V& b, const double* p) {
  static_assert(by != By::kBoth);
  using D = Dual<V>;
  const V one(1), zero(0);
  if constexpr (by == By::kNone) {
    return F::value(a, b, p);
  } else if constexpr (by == By::kA || by == By::kB) {
    constexpr bool kFirst = by == By::kA;
    return F::value(D(a, kFirst ? one : zero), D(b, kFirst ? zero : one), p).d;
  } else {
    const V a1 = by == By::kBB ? zero : one, a2 = by == By::kAA ? one : zero;
    const V b1 = by == By::kBB ? one : zero, b2 = by == By::kAA ? zero : one;
    return F::value(Dual<D>(D(a, a2), D(a1, zero)),
                    Dual<D>(D(b, b2), D(b1, zero)), p)
        .d.d;
  }
}

}  // namespace dtensor::fn
