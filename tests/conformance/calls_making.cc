// Tensors from nothing.
#include "dtensor/ops/random.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

}  // namespace

void add_making_calls(CallTable& t) {
  t["arange"] = [](A a) -> T {
    const DType type = a.dtype(kNamed, "dtype", DType::kI64);
    if (a.has(1, "end") || a.has(2, "step")) throw NotHere("start or step");
    return {arange(a.integer(0), a.mesh(), {}, type)};
  };
}

}  // namespace dtensor::conformance
