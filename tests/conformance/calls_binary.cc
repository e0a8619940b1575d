// Functions of several tensors, element by element.
#include "dtensor/ops/pointwise.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

// The second operand is a tensor or a number.
template <DistTensor (*f)(const DistTensor&, const DistTensor&)>
T of_two(A a) {
  if (a.has(1, "other") && !a.is_tensor(1, "other"))
    throw NotHere("a number as the second operand");
  return {f(a.tensor(0, "input"), a.tensor(1, "other"))};
}

T rounded_division(A a) {
  const std::string mode = a.text(kNamed, "rounding_mode", "");
  if (!mode.empty()) throw NotHere("rounding_mode=" + mode);
  return {div(a.tensor(0), a.tensor(1))};
}

// other * alpha + input, and the like.
DistTensor scaled(A a, const DistTensor& x, std::string_view name) {
  const double by = a.number(kNamed, name, 1);
  return by == 1 ? x : mul(x, by);
}

}  // namespace

void add_binary_calls(CallTable& t) {
  t["add"] = [](A a) -> T {
    return {add(a.tensor(0), scaled(a, a.tensor(1), "alpha"))};
  };
  t["rsub"] = [](A a) -> T {
    return {sub(a.tensor(1), scaled(a, a.tensor(0), "alpha"))};
  };
  t["true_divide"] = of_two<div>;
  t["div"] = rounded_division;
  t["pow"] = of_two<pow>;
  t["maximum"] = of_two<maximum>;
  t["minimum"] = of_two<minimum>;
  t["clamp_min"] = of_two<maximum>;
  t["clamp_max"] = of_two<minimum>;
  t["eq"] = of_two<eq>;
  t["ne"] = of_two<ne>;
  t["lt"] = of_two<lt>;
  t["le"] = of_two<le>;
  t["gt"] = of_two<gt>;
  t["ge"] = of_two<ge>;
  t["logical_and"] = of_two<logical_and>;
  t["logical_or"] = of_two<logical_or>;
  // x.where(condition, other).
  t["where"] = [](A a) -> T {
    return {where(a.tensor(1), a.tensor(0), a.tensor(2))};
  };
}

}  // namespace dtensor::conformance
