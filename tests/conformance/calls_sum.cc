// Products and reductions.
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

template <DistTensor (*f)(const DistTensor&, std::vector<int>, bool)>
T reduction(A a) {
  return {f(a.tensor(0), a.dims(1, "dim"), a.flag(2, "keepdim", false))};
}

}  // namespace

void add_sum_calls(CallTable& t) {
  t["sum"] = reduction<sum>;
  t["mean"] = reduction<mean>;
  t["amax"] = reduction<amax>;
  t["amin"] = reduction<amin>;
  t["matmul"] =
      t["mm"] = [](A a) -> T { return {matmul(a.tensor(0), a.tensor(1))}; };
  t["bmm"] = [](A a) -> T { return {bmm(a.tensor(0), a.tensor(1))}; };
  t["einsum"] = [](A a) -> T {
    return {einsum(a.text(1, "equation", ""), a.tensors(0))};
  };
}

}  // namespace dtensor::conformance
