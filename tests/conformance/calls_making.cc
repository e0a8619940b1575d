// SPDX-License-Identifier: Apache-2.0
// The calls that make tensors, and those of masks.
#include "dtensor/ops/create.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/ranges.h"
#include "dtensor/ops/reduce.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

template <DistTensor (*f)(const DistTensor&)>
T like(A a) {
  const DistTensor x = a.tensor(0);
  // Converts the input, which is cheaper than to convert the result.
  return {f(cast(x, a.dtype(kNamed, "dtype", x.dtype())))};
}

T arange_call(A a) {
  bool whole = true;
  for (size_t i = 0; i < a.count(); ++i) whole &= a.raw(i).is_number_integer();
  const DType type =
      a.dtype(kNamed, "dtype", whole ? DType::kI64 : DType::kF32);
  if (!a.has(1, "end") && whole)
    return {arange(a.integer(0), a.mesh(), {}, type)};
  const bool one = !a.has(1, "end");
  return {arange(one ? 0 : a.number(0), one ? a.number(0) : a.number(1, "end"),
                 a.number(2, "step", 1), a.mesh(), {}, type)};
}

// An end of linspace(): a tensor, also for a number.
DistTensor end_of(A a, size_t at) {
  return a.is_tensor(at) ? a.tensor(at)
                         : full({}, a.number(at), a.mesh(), {}, DType::kF64);
}

template <auto f>
T corner(A a) {
  return {f(a.integer(0, "row"), a.integer(1, "col"), a.integer(2, "offset", 0),
            a.mesh(), {}, a.dtype(kNamed, "dtype", DType::kI64))};
}

}  // namespace

void add_making_calls(CallTable& t) {
  t["arange"] = arange_call;
  t["linspace"] = [](A a) -> T {
    const DType t = a.dtype(kNamed, "dtype", DType::kF32);
    if (a.is_tensor(0) || a.is_tensor(1))
      return {linspace(end_of(a, 0), end_of(a, 1), a.integer(2), {}, t)};
    return {linspace(a.number(0), a.number(1), a.integer(2), a.mesh(), {}, t)};
  };
  t["logspace"] = [](A a) -> T {
    const DType t = a.dtype(kNamed, "dtype", DType::kF32);
    const double base = a.number(3, "base", 10);
    if (a.is_tensor(0) || a.is_tensor(1))
      return {logspace(end_of(a, 0), end_of(a, 1), a.integer(2), base, {}, t)};
    return {logspace(a.number(0), a.number(1), a.integer(2), a.mesh(), base, {},
                     t)};
  };
  t["tril_indices"] = corner<tril_indices>;
  t["triu_indices"] = corner<triu_indices>;
  t["eye"] = [](A a) -> T {
    const int64_t n = a.integer(0);
    return {eye(n, a.integer(1, "m", n), a.mesh(),
                a.dtype(kNamed, "dtype", DType::kF32))};
  };
  t["zeros_like"] = like<zeros_like>;
  t["ones_like"] = like<ones_like>;
  t["full_like"] = [](A a) -> T {
    const DistTensor x = a.tensor(0);
    return {
        full_like(cast(x, a.dtype(kNamed, "dtype", x.dtype())), a.number(1))};
  };
  t["clone"] = like<clone>;
  t["tril"] = [](A a) -> T { return {tril(a.tensor(0), a.integer(1, "", 0))}; };
  t["triu"] = [](A a) -> T { return {triu(a.tensor(0), a.integer(1, "", 0))}; };
  t["trace"] = [](A a) -> T { return {trace(a.tensor(0))}; };
  t["masked_fill"] = [](A a) -> T {
    const DistTensor x = a.tensor(0), mask = a.tensor(1);
    if (a.is_tensor(2)) return {masked_fill(x, mask, a.tensor(2))};
    return {masked_fill(x, mask, a.number(2))};
  };
  t["nn.functional.one_hot"] = [](A a) -> T {
    const DistTensor x = a.tensor(0);
    int64_t classes = a.integer(1, "num_classes");
    // If this is -1, torch takes the number from the data.
    if (classes < 0) classes = amax(x).item<int64_t>() + 1;
    return {one_hot(x, classes)};
  };
}

}  // namespace dtensor::conformance
