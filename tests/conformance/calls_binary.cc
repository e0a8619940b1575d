// SPDX-License-Identifier: Apache-2.0
// The calls of functions of several tensors, element by element.
#include <string>

#include "dtensor/ops/pointwise.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

T rounded_division(A a) {
  const std::string mode = a.text(kNamed, "rounding_mode", "");
  const DistTensor x = a.tensor(0), y = a.tensor(1);
  return {mode == "floor"   ? floor_divide(x, y)
          : mode == "trunc" ? trunc_divide(x, y)
                            : div(x, y)};
}

// Returns x times the argument `name`, for functions such as add(), which
// computes input + alpha * other.
DistTensor scaled(A a, const DistTensor& x, std::string_view name) {
  const double by = a.number(kNamed, name, 1);
  return by == 1 ? x : mul(x, by);
}

}  // namespace

void add_binary_calls(CallTable& t) {
#define DT_CALL(F, name)                                           \
  for (const char* module : {"", "special."})                      \
    t[module + std::string(#name)] = [](A a) -> T {                \
      if (a.is_tensor(1, "other"))                                 \
        return {name(a.tensor(0, "input"), a.tensor(1, "other"))}; \
      return {name(a.tensor(0, "input"), a.number(1, "other"))};   \
    };
#define DT_CALL_P(F, name)
  DT_BINARY_FUNCTIONS(DT_CALL, DT_CALL_P)
#undef DT_CALL
#undef DT_CALL_P
  t["isclose"] = [](A a) -> T {
    return {isclose(a.tensor(0), a.tensor(1), a.number(2, "rtol", 1e-5),
                    a.number(3, "atol", 1e-8), a.flag(4, "equal_nan", false))};
  };
  t["add"] = [](A a) -> T {
    return {add(a.tensor(0), scaled(a, a.tensor(1), "alpha"))};
  };
  t["rsub"] = [](A a) -> T {
    return {sub(a.tensor(1), scaled(a, a.tensor(0), "alpha"))};
  };
  t["lerp"] = [](A a) -> T {
    const DistTensor x = a.tensor(0), y = a.tensor(1);
    if (a.is_tensor(2, "weight")) return {lerp(x, y, a.tensor(2, "weight"))};
    return {lerp(x, y, a.number(2, "weight"))};
  };
  t["true_divide"] = [](A a) -> T { return {div(a.tensor(0), a.tensor(1))}; };
  t["div"] = rounded_division;
  t["clamp"] = [numbers = t["clamp"]](A a) -> T {
    if (!a.is_tensor(1, "min") && !a.is_tensor(2, "max")) return numbers(a);
    DistTensor x = a.tensor(0);
    if (a.has(1, "min")) x = maximum(x, a.tensor(1, "min"));
    if (a.has(2, "max")) x = minimum(x, a.tensor(2, "max"));
    return {x};
  };
  t["clamp_min"] = [](A a) -> T { return {maximum(a.tensor(0), a.tensor(1))}; };
  t["clamp_max"] = [](A a) -> T { return {minimum(a.tensor(0), a.tensor(1))}; };
  t["float_power"] = [](A a) -> T {
    return {
        pow(cast(a.tensor(0), DType::kF64), cast(a.tensor(1), DType::kF64))};
  };
  // The cases call x.where(condition, other), so the condition comes second.
  t["where"] = [](A a) -> T {
    return {where(a.tensor(1), a.tensor(0), a.tensor(2))};
  };
}

}  // namespace dtensor::conformance
