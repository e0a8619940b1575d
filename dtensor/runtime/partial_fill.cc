#include "dtensor/runtime/partial_fill.h"

#include "dtensor/placement/error.h"
#include "dtensor/runtime/device/copy.h"

namespace dtensor {

double identity_value(ReduceOp op) {
  return op == ReduceOp::kMean ? 0 : identity(op);
}

// The first rank of every new partial axis keeps the value, unless the axis
// splits it: then each keeps its part. An average of equal values is exact as
// it is. Elsewhere belongs the identity of the outermost reduction to which
// this rank is not the first: a sum of maxima wants zeros from all ranks of the
// second term, whatever the maximum's own identity.
Fill fill_of(const Step& step, const Coord& at) {
  const Spec *from = step.from, *to = step.to;
  Fill f;
  for (const Partial& p : to->layout().partials) {
    if (from->layout().partial_on(p.axis) == p.op) continue;
    const bool was_split = from->split_axes() >> p.axis & 1;
    DT_CHECK((p.op != ReduceOp::kAvg && p.op != ReduceOp::kMean) || !was_split,
             "redistribute",
             "{} cannot become {}: an average needs the whole value on every "
             "rank; replicate {} first",
             from->to_string(), to->to_string(),
             from->mesh().axis_name(p.axis));
    if (p.op == ReduceOp::kAvg || (!was_split && at[p.axis] == 0)) continue;
    if (!was_split) f.keeps = false;
    if (!f.outside) f.outside = p.op;
  }
  f.counts = f.keeps && to->components() > from->components();
  return f;
}

Region own_part(const Step& step, const Coord& at) {
  const Spec* from = step.from;
  const Mesh& mesh = from->mesh();
  const AxisMask fresh =
      step.to->partial_axes() & ~from->partial_axes() & from->split_axes();
  Region own = from->region(at);
  for (int d = 0; d < from->ndim(); ++d) {
    const AxisMask axes = from->dim(d).axes() & fresh;
    if (!axes || from->dim(d).kind() == Dim::Kind::kLeaf) continue;
    IntervalList& mine = own[static_cast<size_t>(d)];
    for (int64_t r : mesh.group(axes, at)) {
      const Coord c = mesh.coordinate(r);
      if (c == at) break;
      IntervalList theirs;
      from->dim(d).intervals(mesh, c, theirs);
      mine = subtract(mine, HeldRegion({theirs}).ascending()[0]);
    }
  }
  return own;
}

}  // namespace dtensor
