// SPDX-License-Identifier: Apache-2.0
// The calls that give the same elements another shape or order, take windows of
// a tensor, or put tensors together.
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/rearrange.h"
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

// Splits along the dimension that the name of torch's function stands for.
Call split_along(int dim) {
  return [dim](A a) -> T {
    const DistTensor x = a.tensor(0);
    const int d = std::min(dim, x.ndim() - 1);
    if (a.is_list(1)) return tensor_split(x, a.integers(1), d);
    return tensor_split(x, a.integer(1), d);
  };
}

template <auto f>
T of_list(A a) {
  return {f(a.tensors(0))};
}
template <DistTensor (*f)(const DistTensor&)>
T of_one(A a) {
  return {f(a.tensor(0))};
}
// Applies f to a tensor, or to each of a list of tensors.
template <DistTensor (*f)(const DistTensor&)>
T of_each(A a) {
  if (!a.is_list(0)) return {f(a.tensor(0))};
  T out;
  for (const DistTensor& x : a.tensors(0)) out.push_back(f(x));
  return out;
}

T roll_call(A a) {
  const DistTensor x = a.tensor(0);
  const auto shifts = a.integers(1, "shifts");
  if (a.has(2, "dims")) return {roll(x, shifts, a.dims(2, "dims"))};
  return {reshape(roll(flatten(x), shifts, {0}), x.shape())};
}

T repeat_interleave_call(A a) {
  const DistTensor x = a.tensor(0);
  if (a.has(kNamed, "output_size")) a.integer(kNamed, "output_size");
  if (a.is_tensor(1, "repeats"))
    return {repeat_interleave(x, a.tensor(1, "repeats").full().to_integers(),
                              dim_of(a, 2, "dim", 0))};
  const int64_t times = a.integer(1, "repeats");
  if (!a.has(2, "dim")) return {repeat_interleave(x, times)};
  return {repeat_interleave(x, times, dim_of(a, 2, "dim", 0))};
}

T pad_call(A a) {
  const std::string mode = a.text(2, "mode", "constant");
  const DistTensor x = a.tensor(0);
  const auto widths = a.integers(1, "pad");
  if (mode == "constant") return {pad(x, widths, a.number(3, "value", 0))};
  return {pad(x, widths,
              mode == "reflect"     ? PadMode::kReflect
              : mode == "replicate" ? PadMode::kReplicate
                                    : PadMode::kCircular)};
}

}  // namespace

void add_shape_calls(CallTable& t) {
  // The library's view() throws Error, by design, if the layout cannot be
  // expressed in the new shape. So reshape() stands for torch's view().
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
    return {permute(a.tensor(0), a.dims(1, "dims"))};
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
    const DistTensor x = a.tensor(0);
    const int dim = dim_of(a, 1, "dim", 0);
    const int64_t length = a.integer(3, "length");
    if (a.is_tensor(2, "start"))
      return {narrow(x, dim, a.tensor(2, "start"), length)};
    return {narrow(x, dim, a.integer(2, "start"), length)};
  };
  t["select"] = [](A a) -> T {
    return {select(a.tensor(0), dim_of(a, 1, "dim", 0), a.integer(2, "index"))};
  };
  t["select_scatter"] = [](A a) -> T {
    return {select_scatter(a.tensor(0), a.tensor(1), dim_of(a, 2, "dim", 0),
                           a.integer(3, "index"))};
  };
  t["slice"] = [](A a) -> T {
    const DistTensor x = a.tensor(0);
    const int d = dim_of(a, 1, "dim", 0);
    return {slice(x, d, a.integer(2, "start", 0),
                  a.integer(3, "end", x.size(d)), a.integer(4, "step", 1))};
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
  t["squeeze"] = [](A a) -> T {
    const DistTensor x = a.tensor(0);
    return {a.has(1, "dim") ? squeeze(x, a.dims(1, "dim")) : squeeze(x)};
  };
  t["flatten"] = [](A a) -> T {
    return {flatten(a.tensor(0), dim_of(a, 1, "start_dim", 0),
                    dim_of(a, 2, "end_dim", -1))};
  };
  t["ravel"] = [](A a) -> T { return {flatten(a.tensor(0))}; };
  t["unflatten"] = [](A a) -> T {
    return {unflatten(a.tensor(0), dim_of(a, 1, "dim", 0), a.shape(2))};
  };
  t["movedim"] = [](A a) -> T {
    return {
        movedim(a.tensor(0), a.dims(1, "source"), a.dims(2, "destination"))};
  };
  t["t"] = t["T"] = t["H"] = of_one<transpose>;
  t["mH"] = t["mT"];
  t["atleast_1d"] = of_each<atleast_1d>;
  t["atleast_2d"] = of_each<atleast_2d>;
  t["atleast_3d"] = of_each<atleast_3d>;
  t["unbind"] = [](A a) -> T {
    return unbind(a.tensor(0), dim_of(a, 1, "dim", 0));
  };
  t["tensor_split"] = [](A a) -> T {
    const DistTensor x = a.tensor(0);
    const int dim = dim_of(a, 2, "dim", 0);
    if (a.is_list(1)) return tensor_split(x, a.integers(1), dim);
    if (!a.is_tensor(1)) return tensor_split(x, a.integer(1), dim);
    const DistTensor at = a.tensor(1);
    if (at.ndim() == 0) return tensor_split(x, at.item<int64_t>(), dim);
    return tensor_split(x, at.full().to_integers(), dim);
  };
  t["vsplit"] = split_along(0);
  t["hsplit"] = split_along(1);
  t["dsplit"] = split_along(2);
  t["vstack"] = of_list<vstack>;
  t["hstack"] = of_list<hstack>;
  t["dstack"] = of_list<dstack>;
  t["column_stack"] = of_list<column_stack>;
  t["broadcast_tensors"] = [](A a) -> T {
    return broadcast_tensors(a.tensors(0));
  };
  t["meshgrid"] = [](A a) -> T {
    return meshgrid(a.tensors(0), a.text(kNamed, "indexing", "ij") == "xy");
  };
  t["repeat"] = [](A a) -> T {
    return {repeat(a.tensor(0), a.integers(1, "repeats"))};
  };
  t["tile"] = [](A a) -> T {
    return {tile(a.tensor(0), a.integers(1, "dims"))};
  };
  t["roll"] = roll_call;
  t["flip"] = [](A a) -> T { return {flip(a.tensor(0), a.dims(1, "dims"))}; };
  t["fliplr"] = [](A a) -> T { return {flip(a.tensor(0), {1})}; };
  t["flipud"] = [](A a) -> T { return {flip(a.tensor(0), {0})}; };
  t["repeat_interleave"] = repeat_interleave_call;
  t["nn.functional.pad"] = pad_call;
  t["constant_pad_nd"] = [](A a) -> T {
    return {pad(a.tensor(0), a.integers(1), a.number(2, "value", 0))};
  };
  t["sum_to_size"] = [](A a) -> T { return {sum_to(a.tensor(0), a.shape(1))}; };
}

}  // namespace dtensor::conformance
