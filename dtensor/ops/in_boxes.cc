#include "dtensor/ops/in_boxes.h"

#include <algorithm>
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {
namespace {

// More would be slower than the copy; so may be those of a tensor that a core's
// cache holds anyway.
constexpr size_t kMostBoxes = 16;
constexpr int64_t kFewestBytes = 64 << 10;

int dim_of(const Rule::Term& term, int factor) {
  for (size_t d = 0; d < term.size(); ++d)
    if (term[d] == Rule::DimFactors{factor}) return static_cast<int>(d);
  return -1;
}

// The indices of a factor that a box is about.
struct Range {
  int factor;
  Interval at;
};
using Ranges = std::vector<Range>;

// REQUIRES: no groups.
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

// Is what belongs to a box contiguous in an output of that shape?
bool contiguous(const Rule::Term& term, const Shape& local,
                const Ranges& ranges) {
  Shape part = local;
  int last = -1;  // dimension that is cut
  for (const Range& r : ranges) {
    const int d = dim_of(term, r.factor);
    if (d < 0 || r.at.size() == local[d]) continue;
    part[d] = r.at.size();
    last = std::max(last, d);
  }
  return std::all_of(part.begin(), part.begin() + std::max(last, 0),
                     [](int64_t n) { return n == 1; });
}

// What two boxes have to do with each other's part of an output.
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

bool has_groups(const Rule& rule) {
  for (const auto* terms : {&rule.inputs(), &rule.outputs()})
    for (const Rule::Term& t : *terms)
      for (const Rule::DimFactors& d : t)
        if (d.size() > 1) return true;
  return false;
}

bool fits(const Decision& d, size_t i, Op::InBoxes how,
          std::span<const SourceBox> boxes) {
  const Rule& rule = d.rule->rule();
  if (has_groups(rule)) return false;
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

}  // namespace

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
    for (size_t k = 0; k < c.in.size(); ++k)
      part.in.push_back(k == i ? lying
                               : cut(c.in[k], rule.inputs()[k], ranges));
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

}  // namespace dtensor
