// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/experts_parts.h"

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/dims.h"

namespace dtensor {

bool between_expert_leaves(const Dim& tokens, const Mesh& mesh,
                           int64_t sequence) {
  for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
    IntervalList parts;
    tokens.intervals(mesh, mesh.coordinate(r), parts);
    for (const Interval& part : parts)
      for (int64_t at : {part.lo, part.hi})
        if (at != tokens.size() && at % sequence % kExpertLeaf != 0)
          return false;
  }
  return true;
}

Assignment experts_by_leaves(const DistTensor& x, const DistTensor& gate,
                             const BoundRule& rule, int64_t sequence) {
  const Mesh& mesh = x.mesh();
  Assignment a;
  for (size_t f = 0; f < rule.rule().factors().size(); ++f)
    a.dims.push_back(Dim(rule.size(static_cast<int>(f))));
  const auto dim = [&](char letter) -> Dim& {
    return a.dims[static_cast<size_t>(rule.rule().factor(letter))];
  };
  Dim tokens = x.layout().dims[0];
  for (int axis = mesh.num_axes() - 1;
       axis >= 0 && !between_expert_leaves(tokens, mesh, sequence); --axis)
    tokens = restricted(tokens, mesh, tokens.axes() & ~(AxisMask{1} << axis));
  dim('t') = tokens;
  dim('e') = restricted(gate.layout().dims[0], mesh, tokens.axes());
  return a;
}

InputGradients experts_gradient(const GradientCall& g) {
  const DType type = g.inputs[kX].dtype(), stat = kernels::stat_of(type);
  const auto wide = [&](const DistTensor& x) { return cast(x, stat); };
  const DistTensor x = wide(g.inputs[kX]), weights = wide(g.inputs[kWeights]),
                   gate = wide(g.inputs[kGate]), up = wide(g.inputs[kUp]),
                   down = wide(g.inputs[kDown]), dy = wide(g.cotangents[0]);
  const DistTensor chosen =
      cast(eq(unsqueeze(g.inputs[kIds], 2), arange(gate.size(0), x.mesh())),
           stat);  // [t, k, e]
  const DistTensor share =
      unsqueeze(einsum("tk,tke->te", {weights, chosen}), 2);
  const DistTensor a = einsum("th,efh->tef", {x, gate}),
                   b = einsum("th,efh->tef", {x, up}), inner = swiglu(a, b),
                   asked = einsum("th,ehf->tef", {dy, down});
  const DistTensor dinner = asked * share;
  const DistTensor s = sigmoid(a);
  const DistTensor da = dinner * b * s * (a * (1.0 - s) + 1.0),
                   db = dinner * a * s;
  InputGradients d{
      einsum("tef,efh->th", {da, gate}) + einsum("tef,efh->th", {db, up}),
      DistTensor(),
      einsum("te,tke->tk", {sum(asked * inner, {2}), chosen}),
      einsum("tef,th->efh", {da, x}),
      einsum("tef,th->efh", {db, x}),
      einsum("tef,th->ehf", {inner * share, dy})};
  for (size_t i : kFloats) d[i] = cast(d[i], type);
  return d;
}

}  // namespace dtensor
