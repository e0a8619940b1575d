// SPDX-License-Identifier: Apache-2.0
// The special functions that need an entry. calls_pointwise.cc and
// calls_binary.cc add the others.
#include "dtensor/ops/special.h"
#include "tests/conformance/bind.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {

void add_special_calls(CallTable& t) {
  // The cases call x.polygamma(n).
  t["polygamma"] = [](const Arguments& a) -> std::vector<DistTensor> {
    return {polygamma(a.integer(1, "n"), a.tensor(0, "input"))};
  };
  t["mvlgamma"] = call(mvlgamma, {{"input"}, {"p"}});
  t["frexp"] = call<std::pair<DistTensor, DistTensor>(const DistTensor&)>(
      frexp, {{"input"}});
}

}  // namespace dtensor::conformance
