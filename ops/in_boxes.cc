// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/in_boxes.h"

#include <algorithm>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/execute.h"
#include "dtensor/gather.h"
#include "dtensor/ops/op.h"
#include "dtensor/placement/schedule.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

// Reading many boxes in place would be slower than a gathered copy. Reading a
// small tensor in place may be, too, because its copy fits into a core's cache.
constexpr size_t kMostBoxes = 16;
constexpr int64_t kFewestBytes = 64 << 10;

// The indices of a factor that a box covers.
struct Range {
  int factor;
  Interval at;
};
using Ranges = std::vector<Range>;

// The ranges of the term's factors that the box covers. REQUIRES: the rule has
// no groups.
Ranges ranges_of(const Rule::Term& term, const SourceBox& box) {
  Ranges ranges;
  for (size_t d = 0; d < term.size(); ++d) {
    const int at = static_cast<int>(d);
    if (!term[d].empty())
      ranges.push_back({term[d][0], {box.at[at], box.at[at] + box.shape[at]}});
  }
  return ranges;
}

Tensor cut(Tensor t, const Rule::Term& term, const Ranges& ranges) {
  for (const Range& r : ranges)
    if (const int d = dim_of(term, r.factor);
        d >= 0 && r.at.size() < t.shape()[d])
      t = t.slice(d, r.at.lo, r.at.hi);
  return t;
}

// Whether the slice of an output that belongs to these ranges is contiguous.
bool contiguous(const Rule::Term& term, const Shape& local,
                const Ranges& ranges) {
  Shape part = local;
  int last = -1;  // the last dimension that is cut
  for (const Range& r : ranges) {
    const int d = dim_of(term, r.factor);
    if (d < 0 || r.at.size() == local[d]) continue;
    part[d] = r.at.size();
    last = std::max(last, d);
  }
  return std::all_of(part.begin(), part.begin() + std::max(last, 0),
                     [](int64_t n) { return n == 1; });
}

// How the slices of an output that belong to two boxes are related.
enum class Parts { kApart, kSame, kOverlap };
Parts compare(const Rule::Term& out, const Ranges& a, const Ranges& b) {
  bool same = true;
  for (size_t k = 0; k < a.size(); ++k) {
    if (dim_of(out, a[k].factor) < 0) continue;
    const Interval x = a[k].at, y = b[k].at;
    if (x.hi <= y.lo || y.hi <= x.lo) return Parts::kApart;
    same &= x == y;
  }
  return same ? Parts::kSame : Parts::kOverlap;
}

bool fits(const Decision& d, size_t i, Op::InBoxes how,
          std::span<const SourceBox> boxes) {
  const Rule& rule = d.rule->rule();
  if (rule.has_groups()) return false;
  std::vector<Ranges> ranges;
  for (const SourceBox& box : boxes)
    ranges.push_back(ranges_of(rule.inputs()[i], box));
  for (size_t o = 0; o < d.out.size(); ++o) {
    const Rule::Term& out = rule.outputs()[o];
    for (size_t b = 0; b < boxes.size(); ++b) {
      if (how == Op::InBoxes::kContiguous &&
          !contiguous(out, d.out_local[o], ranges[b]))
        return false;
      for (size_t before = 0; before < b; ++before) {
        const Parts parts = compare(out, ranges[before], ranges[b]);
        if (parts == Parts::kOverlap ||
            (parts == Parts::kSame && how != Op::InBoxes::kAdded))
          return false;
      }
    }
  }
  return true;
}

// Whether compute() can process these boxes of this rank's part of input i, and
// whether that is worth it.
bool takes_boxes(const Op& op, const Decision& d, size_t i,
                 std::span<const SourceBox> boxes) {
  if (!d.rule || !d.here || boxes.empty() || boxes.size() > kMostBoxes)
    return false;
  const DType t = d.in[i]->dtype();
  int64_t n = 0;
  for (const SourceBox& box : boxes) n += numel(box.shape);
  if (n * size_of(t) < kFewestBytes) return false;
  const Op::InBoxes how = op.in_boxes(i, t);
  return how != Op::InBoxes::kNo && fits(d, i, how, boxes);
}

// Runs compute() once for each box of input i, and lets it read the box in the
// memory of the member that holds the box.
void compute_in_boxes(Compute& c, size_t i, std::span<const SourceBox> boxes,
                      Communicator::Sources sources) {
  const Rule& rule = c.decision.rule->rule();
  const DType t = c.decision.in[i]->dtype();
  std::vector<Ranges> done;
  for (const SourceBox& box : boxes) {
    const Ranges ranges = ranges_of(rule.inputs()[i], box);
    const Transfer& source = *sources[static_cast<size_t>(box.member)];
    int64_t offset = 0;
    for (int d = 0; d < box.from.size(); ++d)
      offset += box.from[d] * source.src_strides[d];
    const Tensor lying = Tensor::borrowed(
        static_cast<const char*>(source.src) + offset * size_of(t), box.shape,
        source.src_strides, t, c.device(), c.stream);
    Compute part(c.op, c.attrs, c.decision, c.context);
    InlineVec<Tensor, Compute::kMostInputs> in;
    for (size_t k = 0; k < c.in.size(); ++k)
      part.in.push_back(in.push_back(
          k == i ? lying : cut(c.in[k], rule.inputs()[k], ranges)));
    for (size_t o = 0; o < c.out.size(); ++o)
      part.out.push_back(cut(c.out[o], rule.outputs()[o], ranges));
    part.accumulate =
        std::any_of(done.begin(), done.end(), [&](const Ranges& before) {
          return compare(rule.outputs()[0], before, ranges) == Parts::kSame;
        });
    c.op.compute(part);
    done.push_back(ranges);
  }
}

// Sets c.out from these inputs, reading input `which` in boxes.
void read(Compute& c, size_t which, std::span<const DistTensor> inputs,
          std::span<const SourceBox> boxes, Communicator::Sources sources) {
  const Tensor none;
  for (size_t i = 0; i < inputs.size(); ++i)
    c.in.push_back(i == which ? none : inputs[i].impl()->part());
  c.allocate_outputs();
  compute_in_boxes(c, which, boxes, sources);
}

}  // namespace

std::optional<size_t> to_read(const Op& op, const Decision& d, bool record,
                              std::span<const DistTensor> given) {
  const auto may_be = [&](size_t i) {
    const DType t = d.in[i]->dtype();
    if (numel(d.in[i]->shape()) * size_of(t) < kFewestBytes ||
        op.in_boxes(i, t) == Op::InBoxes::kNo)
      return false;
    const auto same = [&](const DistTensor& x) { return x.same_as(given[i]); };
    if (std::count_if(given.begin(), given.end(), same) > 1) return false;
    if (gathers(given[i])) return !(record && op.facts().saves_input(i));
    return given[i].keep() == Keep::kGatherOnUse && d.moved.size() == 1 &&
           d.moved[0] == i;
  };
  std::optional<size_t> best;
  for (size_t i = 0; i < given.size(); ++i)
    if (may_be(i) &&
        (!best || numel(d.in[i]->shape()) > numel(d.in[*best]->shape())))
      best = i;
  // If a parameter is read in place, read_gathered() gathers the others, after
  // the moves. That is too late if one of them has to be gathered, then moved.
  for (size_t i : d.moved)
    if (gathers(given[i])) return {};
  return best;
}

bool read_moved(Compute& c, size_t which, std::span<const DistTensor> inputs) {
  const Decision& d = c.decision;
  RankContext& ctx = c.context;
  if (inputs[which].impl()->run != ctx.run_id) return false;  // the move throws
  if (!d.execution) d.execution = execution(ctx, d.moves);
  const auto boxes = boxes_in_place(ctx, *d.execution, 0);
  if (!takes_boxes(c.op, d, which, boxes)) return false;
  spend_budget(ctx, d.bytes, "moving its inputs");
  Tensor part = inputs[which].impl()->part();
  const Communicator::ReadSources reading = [&](Communicator::Sources s) {
    read(c, which, inputs, boxes, s);
  };
  const ReadInPlace in_place{0, reading};
  execute(ctx, *d.execution, {&part, 1}, false, &in_place);
  return true;
}

bool read_gathered(Compute& c, size_t which, std::span<const DistTensor> given,
                   std::span<DistTensor> seen,
                   std::span<const DistTensor> ready) {
  RankContext& ctx = c.context;
  const std::string_view op = ctx.op;
  const MemoryKind kind = ctx.memory_kind;
  std::vector<SourceBox> boxes;
  const ReadInput how{which,
                      [&](std::span<const SourceBox> b) {
                        boxes.assign(b.begin(), b.end());
                        return takes_boxes(c.op, c.decision, which, b);
                      },
                      [&](Communicator::Sources sources) {
                        const Scoped here(ctx.op, op);
                        const Scoped made(ctx.memory_kind, kind);
                        read(c, which, ready, boxes, sources);
                      }};
  return gather_inputs(ctx, given, seen, &how);
}

}  // namespace dtensor
