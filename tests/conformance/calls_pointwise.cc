// Functions of one tensor, element by element.
#include "dtensor/ops/pointwise.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

template <DistTensor (*f)(const DistTensor&)>
T of_one(A a) {
  return {f(a.tensor(0, "input"))};
}

}  // namespace

void add_pointwise_calls(CallTable& t) {
  t["abs"] = of_one<abs>;
  t["cos"] = of_one<cos>;
  t["exp"] = of_one<exp>;
  t["log"] = of_one<log>;
  t["neg"] = of_one<neg>;
  t["rsqrt"] = of_one<rsqrt>;
  t["sigmoid"] = of_one<sigmoid>;
  t["sin"] = of_one<sin>;
  t["sqrt"] = of_one<sqrt>;
  t["square"] = of_one<square>;
  t["tanh"] = of_one<tanh>;
  t["nn.functional.relu"] = of_one<relu>;
  t["nn.functional.silu"] = of_one<silu>;
  t["nn.functional.gelu"] = [](A a) -> T {
    const DistTensor x = a.tensor(0, "input");
    return {a.text(kNamed, "approximate", "none") == "tanh" ? gelu_tanh(x)
                                                            : gelu(x)};
  };
  t["nn.functional.hardtanh"] = [](A a) -> T {
    return {clamp(a.tensor(0, "input"), a.number(1, "min_val", -1),
                  a.number(2, "max_val", 1))};
  };
}

}  // namespace dtensor::conformance
