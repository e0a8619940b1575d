// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "dtensor/ops/by_index.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "tests/conformance/bind.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

IndexReduction reduction_named(const std::string& text) {
  if (text == "sum") return IndexReduction::kSum;
  if (text == "prod") return IndexReduction::kProd;
  if (text == "mean") return IndexReduction::kMean;
  if (text == "amax") return IndexReduction::kAmax;
  if (text == "amin") return IndexReduction::kAmin;
  throw NotHere("reduce=" + text);
}

template <auto f>
T reduction_call(A a) {
  return {f(a.tensor(0), static_cast<int>(a.integer(1, "dim")),
            a.tensor(2, "index"), a.tensor(3, "src"),
            reduction_named(a.text(4, "reduce", "")),
            a.flag(5, "include_self", true))};
}

// The indices of __getitem__. Slices cut, and integers select, unless an index
// has positions: then an integer is an index without dimensions.
T getitem_call(A a) {
  const nlohmann::json& given = a.raw(1);
  const nlohmann::json parts =
      given.is_array() ? given : nlohmann::json::array({given});
  const auto has_positions = [](const nlohmann::json& part) {
    return part.contains("index") || part.contains("tensor");
  };
  const bool any = std::any_of(parts.begin(), parts.end(), has_positions);
  // The number of dimensions that a part takes; an ellipsis takes the others.
  const auto dims_of = [&](const nlohmann::json& part) {
    if (!part.contains("tensor")) return part.contains("ellipsis") ? 0 : 1;
    const DistTensor t = a.to_tensor(part);
    return t.dtype() == DType::kBool ? t.ndim() : 1;
  };
  DistTensor x = a.tensor(0);
  int others = x.ndim(), d = 0;
  for (const nlohmann::json& part : parts) others -= dims_of(part);
  std::vector<DistTensor> positions;
  for (const nlohmann::json& part : parts) {
    if (part.contains("ellipsis")) {
      positions.resize(positions.size() + static_cast<size_t>(others));
      d += others;
    } else if (part.contains("tensor")) {
      positions.push_back(a.to_tensor(part));
      d += dims_of(part);
    } else if (part.contains("index")) {
      const auto list = part["index"].get<std::vector<int64_t>>();
      positions.push_back(DistTensor::from_global(
          Tensor::from({std::ssize(list)}, list.data()), a.mesh(), {}));
      ++d;
    } else if (part.contains("slice")) {
      const nlohmann::json& ends = part["slice"];
      const auto end = [&](size_t at, int64_t otherwise) {
        return ends[at].is_null() ? otherwise : ends[at].get<int64_t>();
      };
      x = slice(x, d, end(0, 0), end(1, x.size(d)), end(2, 1));
      positions.emplace_back();
      ++d;
    } else if (!part.is_number_integer()) {
      throw NotHere("an index " + part.dump());
    } else if (any) {
      positions.push_back(
          full({}, part.get<double>(), a.mesh(), {}, DType::kI64));
      ++d;
    } else {
      x = select(x, d, part.get<int64_t>());
    }
  }
  return {any ? index(x, positions) : x};
}

T embedding_bag_call(A a) {
  EmbeddingBagOptions o;
  const std::string mode = a.text(kNamed, "mode", "mean");
  o.mode = mode == "sum"   ? BagMode::kSum
           : mode == "max" ? BagMode::kMax
                           : BagMode::kMean;
  if (a.has(2, "offsets")) o.offsets = a.tensor(2, "offsets");
  o.include_last_offset = a.flag(kNamed, "include_last_offset", false);
  if (a.has(kNamed, "per_sample_weights"))
    o.per_sample_weights = a.tensor(kNamed, "per_sample_weights");
  if (a.has(kNamed, "padding_idx"))
    o.padding_idx = a.integer(kNamed, "padding_idx");
  return {embedding_bag(a.tensor(0), a.tensor(1), o)};
}

}  // namespace

void add_by_index_calls(CallTable& t) {
  t["nn.functional.embedding_bag"] = embedding_bag_call;
  t["__getitem__"] = getitem_call;
  t["take"] = call<DistTensor(const DistTensor&, const DistTensor&)>(take, {});
  t["put"] = call(put, {{}, {}, {}, {"accumulate", false}});
  t["isin"] = call(isin, {{}, {}, {"invert", false}});
  t["take_along_dim"] = [](A a) -> T {
    const DistTensor x = a.tensor(0), at = a.tensor(1);
    if (!a.has(2, "dim")) return {take_along_dim(x, at)};
    return {take_along_dim(x, at, static_cast<int>(a.integer(2, "dim")))};
  };
  t["index_copy"] = call(index_copy, {{}, {"dim"}, {"index"}, {"source"}});
  t["index_fill"] = [](A a) -> T {
    const DistTensor x = a.tensor(0), at = a.tensor(2);
    const auto dim = static_cast<int>(a.integer(1, "dim"));
    if (a.is_tensor(3)) return {index_fill(x, dim, at, a.tensor(3))};
    return {index_fill(x, dim, at, read<Number>(a, 3, Param("value")))};
  };
  t["index_reduce"] = reduction_call<index_reduce>;
  t["scatter_reduce"] = reduction_call<scatter_reduce>;
}

}  // namespace dtensor::conformance
