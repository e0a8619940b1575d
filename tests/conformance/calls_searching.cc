// SPDX-License-Identifier: Apache-2.0
// The calls of searches, and of functions whose results have as many elements
// as the values say.
#include "dtensor/ops/data_shapes.h"
#include "dtensor/ops/searching.h"
#include "tests/conformance/bind.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

// `side` is another way to write `right`.
T searched(A a) {
  SearchOptions options{.out_int32 = a.flag(kNamed, "out_int32", false),
                        .right = a.flag(kNamed, "right", false) ||
                                 a.text(kNamed, "side", "left") == "right"};
  if (a.has(kNamed, "sorter")) options.sorter = a.tensor(kNamed, "sorter");
  return {searchsorted(a.tensor(0), a.tensor(1), options)};
}

T found(A a) {
  const DistTensor x = a.tensor(0);
  if (a.flag(kNamed, "as_tuple", false)) return where(x);
  return {nonzero(x)};
}

// torch sorts the values also if `sorted` is false.
T distinct(A a) {
  a.flag(1, "sorted", true);
  const bool inverse = a.flag(2, "return_inverse", false),
             counts = a.flag(3, "return_counts", false);
  const Unique u =
      unique(a.tensor(0), read<std::optional<int>>(a, 4, {"dim", nullptr}));
  T out = {u.values};
  if (inverse) out.push_back(u.inverse);
  if (counts) out.push_back(u.counts);
  return out;
}

}  // namespace

void add_searching_calls(CallTable& t) {
  t["searchsorted"] = searched;
  t["bucketize"] = call(
      bucketize, {{}, {"boundaries"}, {"out_int32", false}, {"right", false}});
  t["nonzero"] = found;
  t["argwhere"] = call(argwhere, {{}, {"", nullptr}});
  t["masked_select"] = call(masked_select, {{}, {"mask"}, {"", nullptr}});
  t["masked_scatter"] = call(masked_scatter, {{}, {"mask"}, {"source"}});
  t["unique"] = distinct;
}

}  // namespace dtensor::conformance
