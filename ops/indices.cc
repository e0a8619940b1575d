// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/indices.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "dtensor/ops/assign.h"
#include "dtensor/ops/by_index.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/index_tensors.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using Kind = TensorIndex::Kind;

bool is_mask(const TensorIndex& i) {
  return i.kind == Kind::kTensor && i.tensor.dtype() == DType::kBool;
}

// The part of x that the integers, slices and Nones of a list select, and the
// list's tensors, which select from that part. As in torch, and unlike NumPy,
// an integer beside tensors does not count as a tensor of indices.
class Part {
 public:
  Part(std::string_view op, const DistTensor& x, const IndexList& list) : y(x) {
    check_defined(op, x);
    int named = 0, ellipses = 0;
    for (const TensorIndex& i : list) {
      named += is_mask(i) ? i.tensor.ndim()
                          : i.kind != Kind::kNone && i.kind != Kind::kEllipsis;
      ellipses += i.kind == Kind::kEllipsis;
    }
    DT_CHECK(named <= x.ndim(), op,
             "got {} for {}; pass at most one for each dimension",
             quantity(named, "index", "indices"), x.spec()->to_string());
    DT_CHECK(ellipses <= 1, op, "got {} Ellipses for {}; pass at most one",
             ellipses, x.spec()->to_string());
    int d = 0;
    for (const TensorIndex& i : list) d = add(i, d, x.ndim() - named);
  }

  // Returns x with `part` in the place of y.
  DistTensor put_back(DistTensor part) const {
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      const auto& [x, i, d] = *step;
      if (i.kind == Kind::kNone)
        part = squeeze(part, d);
      else if (i.kind == Kind::kInteger)
        part = select_scatter(x, part, d, i.at);
      else
        part = slice_scatter(x, part, d, lo(i), hi(i), i.slice.step);
    }
    return part;
  }

  DistTensor y;
  std::vector<DistTensor> tensors;  // of y's first dimensions

 private:
  struct Step {
    DistTensor x;  // from which it selects
    TensorIndex i;
    int d;
  };
  static int64_t lo(const TensorIndex& i) { return i.slice.lo.value_or(0); }
  static int64_t hi(const TensorIndex& i) {
    return i.slice.hi.value_or(std::numeric_limits<int64_t>::max());
  }

  // Applies the index to y from dimension d on. Returns the next dimension.
  int add(const TensorIndex& i, int d, int unnamed) {
    if (i.kind == Kind::kEllipsis) return d + unnamed;
    if (i.kind == Kind::kTensor) {
      tensors.resize(static_cast<size_t>(d));
      tensors.push_back(i.tensor);
      // A mask stands for its dimensions: there is one tensor less than them.
      covered_ += is_mask(i) ? i.tensor.ndim() - 1 : 0;
      return d + 1;
    }
    const int at = d + covered_;
    DistTensor next = i.kind == Kind::kNone ? unsqueeze(y, at)
                      : i.kind == Kind::kInteger
                          ? select(y, at, i.at)
                          : slice(y, at, lo(i), hi(i), i.slice.step);
    if (i.kind != Kind::kSlice || next.shape() != y.shape())
      steps_.push_back({y, i, at});
    y = std::move(next);
    return i.kind == Kind::kInteger ? d : d + 1;
  }

  std::vector<Step> steps_;
  int covered_ = 0;
};

DistTensor scalar(const DistTensor& x, Number value) {
  return full({}, value.value, x.mesh(), {}, x.dtype());
}

}  // namespace

DistTensor index(const DistTensor& x, const IndexList& list) {
  const Part part("index", x, list);
  return part.tensors.empty() ? part.y : index_tensors(part.y, part.tensors);
}

DistTensor index_put(const DistTensor& x, const IndexList& list,
                     const DistTensor& values, bool accumulate) {
  constexpr const char* kOp = "index_put";
  check_defined(kOp, {x, values});
  const Part part(kOp, x, list);
  DT_CHECK(values.dtype() == x.dtype(), kOp,
           "the values are {}, but the tensor is {}; write cast(values, "
           "x.dtype())",
           name(values.dtype()), name(x.dtype()));
  if (!part.tensors.empty())
    return part.put_back(put_tensors(part.y, part.tensors, values, accumulate));
  check_values(x, values, part.y.shape());
  const DistTensor fresh = expand(values, part.y.shape());
  if (!accumulate) return part.put_back(fresh);
  return part.put_back(x.dtype() == DType::kBool ? logical_or(part.y, fresh)
                                                 : part.y + fresh);
}
DistTensor index_put(const DistTensor& x, const IndexList& list, Number value,
                     bool accumulate) {
  check_defined("index_put", x);
  return index_put(x, list, scalar(x, value), accumulate);
}

const DistTensor& index_put_(const DistTensor& x, const IndexList& list,
                             const DistTensor& values, bool accumulate) {
  const InPlace scope("index_put_", x, &values);
  return scope.set(index_put(x, list, values, accumulate));
}
const DistTensor& index_put_(const DistTensor& x, const IndexList& list,
                             Number value, bool accumulate) {
  check_defined("index_put_", x);
  return index_put_(x, list, scalar(x, value), accumulate);
}

DistTensor TensorMethods::operator[](const IndexList& list) const {
  return index(static_cast<const DistTensor&>(*this), list);
}

}  // namespace dtensor
