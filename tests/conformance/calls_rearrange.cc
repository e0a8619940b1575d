// SPDX-License-Identifier: Apache-2.0
// The calls of diagonals, differences and ranges, and those that rearrange
// elements.
#include "dtensor/ops/diagonal.h"
#include "tests/conformance/bind.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

template <class F>
Call of_all(F f) {
  return [f](A a) -> T {
    T list;
    for (size_t i = 0; i < a.count(); ++i) list.push_back(a.tensor(i));
    return {f(list)};
  };
}

}  // namespace

void add_rearrange_calls(CallTable& t) {
  const auto offset = Param("offset", 0);
  t["diagonal"] = call(diagonal, {{}, offset, {"dim1", 0}, {"dim2", 1}});
  t["linalg.diagonal"] =
      call(diagonal, {{}, offset, {"dim1", -2}, {"dim2", -1}});
  t["diag_embed"] = call(diag_embed, {{}, offset, {"dim1", -2}, {"dim2", -1}});
  t["diag"] = call(diag, {{}, {"diagonal", 0}});
  t["diagflat"] = call(diagflat, {{}, offset});
  t["diagonal_scatter"] =
      call(diagonal_scatter, {{}, {}, offset, {"dim1", 0}, {"dim2", 1}});
  t["block_diag"] = of_all(block_diag);
}

}  // namespace dtensor::conformance
