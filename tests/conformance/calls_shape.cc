// The same elements in another shape or order, windows on them, and tensors
// put together.
#include "dtensor/ops/cat.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/slice.h"
#include "dtensor/ops/view.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

int dim_of(A a, size_t at, std::string_view name, int64_t otherwise) {
  return static_cast<int>(a.integer(at, name, otherwise));
}

T split_call(A a) {
  const DistTensor x = a.tensor(0);
  const int dim = dim_of(a, 2, "dim", 0);
  if (a.is_list(1)) return split(x, a.integers(1), dim);
  return split(x, a.integer(1), dim);
}

std::vector<int> axes_of(A a, size_t at, std::string_view name) {
  return a.dims(at, name);
}

}  // namespace

void add_shape_calls(CallTable& t) {
  // Views of a layout that does not say the shape are an Error by design, and
  // torch's view() is where ours is reshape().
  t["reshape"] =
      t["view"] = [](A a) -> T { return {reshape(a.tensor(0), a.shape(1))}; };
  t["reshape_as"] = t["view_as"] = [](A a) -> T {
    return {reshape(a.tensor(0), a.tensor(1).shape())};
  };
  t["expand"] = t["broadcast_to"] = [](A a) -> T {
    return {expand(a.tensor(0), a.shape(1))};
  };
  t["expand_as"] = [](A a) -> T {
    return {expand(a.tensor(0), a.tensor(1).shape())};
  };
  t["permute"] = [](A a) -> T {
    return {permute(a.tensor(0), axes_of(a, 1, "dims"))};
  };
  t["transpose"] = [](A a) -> T {
    return {transpose(a.tensor(0), dim_of(a, 1, "dim0", 0),
                      dim_of(a, 2, "dim1", 0))};
  };
  t["mT"] = [](A a) -> T { return {transpose(a.tensor(0), -2, -1)}; };
  t["unsqueeze"] = [](A a) -> T {
    return {unsqueeze(a.tensor(0), dim_of(a, 1, "dim", 0))};
  };
  t["narrow"] = [](A a) -> T {
    return {narrow(a.tensor(0), dim_of(a, 1, "dim", 0), a.integer(2, "start"),
                   a.integer(3, "length"))};
  };
  t["select"] = [](A a) -> T {
    return {select(a.tensor(0), dim_of(a, 1, "dim", 0), a.integer(2, "index"))};
  };
  t["split"] = t["split_with_sizes"] = split_call;
  t["chunk"] = [](A a) -> T {
    return chunk(a.tensor(0), a.integer(1), dim_of(a, 2, "dim", 0));
  };
  t["cat"] = [](A a) -> T {
    return {cat(a.tensors(0), dim_of(a, 1, "dim", 0))};
  };
  t["stack"] = [](A a) -> T {
    return {stack(a.tensors(0), dim_of(a, 1, "dim", 0))};
  };
  t["sum_to_size"] = [](A a) -> T { return {sum_to(a.tensor(0), a.shape(1))}; };
}

}  // namespace dtensor::conformance
