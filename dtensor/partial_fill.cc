// SPDX-License-Identifier: Apache-2.0
#include "dtensor/partial_fill.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "dtensor/device/combine.h"
#include "dtensor/placement/dims.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

AxisMask bit(int axis) { return AxisMask{1} << axis; }

// The indices at which one rank's part holds the value, given the axes `fresh`
// that split the source and become partial.
class Owners {
 public:
  Owners(const Spec& from, const Coord& at, AxisMask fresh)
      : from_(from), mesh_(from.mesh()), at_(at), fresh_(fresh) {}

  // The indices at which the part of this rank, or of one that differs from it
  // only in axes of `open`, holds the value.
  Region give(AxisMask open) const {
    Region all;
    for (int d = 0; d < from_.ndim(); ++d) {
      IntervalList& list = all.emplace_back();
      for (int64_t r : mesh_.group(axes(d) & open, at_)) {
        const IntervalList own =
            first_held(from_.dim(d), mesh_, mesh_.coordinate(r), fresh_);
        list.insert(list.end(), own.begin(), own.end());
      }
    }
    return HeldRegion(std::move(all)).ascending();
  }

 private:
  AxisMask axes(int d) const { return from_.dim(d).axes() & fresh_; }
  const Spec& from_;
  const Mesh mesh_;
  const Coord at_;
  const AxisMask fresh_;
};

}  // namespace

double identity_value(ReduceOp op) {
  return op == ReduceOp::kMean ? 0 : identity(op);
}

// The first rank of every new partial axis keeps the value. If the axis splits
// the source, each rank keeps its own part instead, and counts as "not first"
// at all other indices. A new average needs no fill, because the average of
// equal values is that value (up to rounding). Where a rank is not first, it
// holds the identity of the innermost reduction in which it is not first; that
// may be a reduction of the source. For a product of sums, say, the terms of
// the second factor have to add up to 1: the first term is 1, the others 0.
Fill fill_of(const Step& step, const Coord& at) {
  const Spec *from = step.from, *to = step.to;
  const auto& list = to->layout().partials;
  const AxisMask fresh =
      to->partial_axes() & ~from->partial_axes() & from->split_axes();
  for (const Partial& p : list)
    DT_CHECK((p.op != ReduceOp::kAvg && p.op != ReduceOp::kMean) ||
                 !(fresh & bit(p.axis)),
             "redistribute",
             "{} cannot become {}, because an average needs the whole value on "
             "every rank; replicate it over {} first",
             from->to_string(), to->to_string(),
             from->mesh().axis_name(p.axis));
  const Owners owners(*from, at, fresh);
  Fill f;
  const auto mean = std::find_if(list.begin(), list.end(), [](const auto& p) {
    return p.op == ReduceOp::kMean;
  });
  // The identity of reduction number `at` of the list.
  const auto identity_of = [&](size_t at) {
    const bool pairs = list.begin() + static_cast<ptrdiff_t>(at) >= mean;
    return Fill::Identity{
        {}, list[at].op, pairs ? identity_value(list[at].op) : 1};
  };
  AxisMask open = fresh;  // splitting axes not yet handled
  // The innermost reduction of the source in which this rank is not first.
  std::optional<size_t> inside;
  for (size_t i = list.size(); i-- > 0;) {
    const Partial& p = list[i];
    const bool splits = fresh & bit(p.axis);
    if (p.op == ReduceOp::kAvg || (!splits && at[p.axis] == 0)) continue;
    if (from->layout().partial_on(p.axis) == p.op) {
      if (!inside) inside = i;
      continue;
    }
    Fill::Identity next = identity_of(inside.value_or(i));
    if (f.identities.empty() || f.identities.back().op != next.op ||
        f.identities.back().count != next.count) {
      next.where = owners.give(open);
      f.identities.push_back(std::move(next));
    }
    open &= ~bit(p.axis);
    if (splits) continue;
    f.keeps = false;
    break;
  }
  f.own = owners.give(0);
  return f;
}

}  // namespace dtensor
