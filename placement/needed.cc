// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/needed.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "dtensor/placement/axis_choices.h"

namespace dtensor {

Needed needed_input(const BoundRule& rule, std::span<const OpInput> inputs,
                    const Assignment& legal, size_t i) {
  const Spec* have = inputs[i].spec;
  const Spec* need =
      have->with(rule.input_layout(legal, have->mesh(), static_cast<int>(i)));
  return {need, have, need};
}

namespace {

// The axes that split dimensions of inputs that contain factor f, or a factor
// that is linked to it.
AxisMask carried_axes(const BoundRule& bound, std::span<const OpInput> inputs,
                      int f) {
  const Rule& rule = bound.rule();
  AxisMask axes = 0;
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t d = 0; d < rule.inputs()[i].size(); ++d) {
      const Rule::DimFactors& factors = rule.inputs()[i][d];
      bool has = contains(factors, f);
      for (const auto& [h, g] : rule.links())
        has |= h == f && contains(factors, g);
      if (has) axes |= inputs[i].spec->dim(static_cast<int>(d)).axes();
    }
  return axes;
}

}  // namespace

Needed needed_output(const BoundRule& rule, std::span<const OpInput> inputs,
                     const Assignment& legal, size_t o, DType dtype) {
  const Mesh& mesh = inputs[0].spec->mesh();
  const Spec* out =
      Spec::get(mesh, rule.output_shape(static_cast<int>(o)),
                rule.output_layout(legal, mesh, static_cast<int>(o)), dtype);
  const Layout& layout = out->layout();
  const Rule::Term& term = rule.rule().outputs()[o];
  std::vector<std::pair<size_t, int>> gathered;  // dimension, axes kept
  for (size_t d = 0; d < term.size(); ++d) {
    const Dim& dim = layout.dims[d];
    if (dim.whole() || dim.kind() != Dim::Kind::kLeaf) continue;
    AxisMask carried = 0;
    for (int f : term[d]) carried |= carried_axes(rule, inputs, f);
    const Split& s = dim.split();
    int kept = 0;
    while (kept < s.num_axes() && (carried >> s.axis(kept) & 1)) ++kept;
    if (kept < s.num_axes()) gathered.push_back({d, kept});
  }
  if (layout.partials.empty() && gathered.empty()) return {out, out, out};
  Layout settled = layout;
  settled.partials.clear();
  for (const auto& [d, kept] : gathered)
    settled.dims[d] =
        Dim(layout.dims[d].size(), layout.dims[d].split().prefix(mesh, kept));
  return {out, out, out->with(settled)};
}

int64_t work_ps(const BoundRule& rule, const OpWork& work, double share,
                double bytes, const CostTable& cost) {
  return cost.work_ps(work.flops_per_point * rule.points() * share, bytes);
}

namespace {

// The price of the halos that input i needs.
int64_t halo_ps(const BoundRule& rule, const OpInput& input,
                const Assignment& a, size_t i, const CostTable& cost) {
  const Mesh& mesh = input.spec->mesh();
  const Rule::Term& term = rule.rule().inputs()[i];
  const Layout layout = rule.input_layout(a, mesh, static_cast<int>(i));
  std::vector<const BoundRule::Window*> windows;
  AxisMask axes = 0, moving = 0;
  int64_t each = size_of(input.spec->dtype());  // bytes of a position
  for (size_t d = 0; d < term.size(); ++d) {
    const auto& all = rule.windows();
    const auto w = std::find_if(all.begin(), all.end(), [&](const auto& w) {
      return term[d] == Rule::DimFactors{w.far};
    });
    if (w == all.end()) {
      each *= layout.dims[d].largest(mesh);
      continue;
    }
    windows.push_back(&*w);
    axes |= layout.dims[d].axes();
    moving |= layout.dims[d].axes() | a.dims[size_t(w->near)].axes();
  }
  if (!axes) return 0;
  int64_t most = 0;
  for_each_coord(mesh, moving, [&](const Coord& at) {
    int64_t wanted = 1, has = 1;
    for (const BoundRule::Window* w : windows) {
      IntervalList near, far;
      a.dims[size_t(w->near)].intervals(mesh, at, near);
      a.dims[size_t(w->far)].intervals(mesh, at, far);
      const Interval met = near.empty() ? Interval{} : w->met(near[0]);
      wanted *= met.size();
      has *= met.size() > 0 ? overlap(IntervalList{met}, far) : 0;
    }
    most = std::max(most, wanted - has);
  });
  return most == 0 ? 0
                   : cost.collective_ps(StepKind::kAllToAll, axes, most * each);
}

}  // namespace

int64_t exchange_ps(const BoundRule& rule, std::span<const OpInput> inputs,
                    const OpWork& work, const Assignment& a,
                    const CostTable& cost) {
  if (!rule.windows().empty()) {
    double ps = 0;
    for (size_t i = 0; i < inputs.size(); ++i)
      ps += static_cast<double>(halo_ps(rule, inputs[i], a, i, cost));
    return saturated_ps(ps);
  }
  const OpWork::Exchange& e = work.exchange;
  if (e.times == 0) return 0;
  const Mesh& mesh = inputs[0].spec->mesh();
  const auto& factors = rule.rule().factors();
  const auto has = [&](char letter) {
    return e.of == "*" || e.of.find(letter) != e.of.npos ||
           (e.of.find('.') != e.of.npos && letter >= 'A' && letter <= 'Z');
  };
  double ps = 0;
  for (const char over : {e.over, e.also}) {
    AxisMask axes = 0;
    double elements = 1, times = e.times;
    for (size_t f = 0; f < factors.size(); ++f) {
      const int at = static_cast<int>(f);
      if (factors[f].letter == over) {
        axes = a.dims[f].axes();
        if (e.times_of)
          times *= static_cast<double>(
              e.times_of(inputs[0].spec->dtype(), rule.size(at)));
      }
      if (e.of.empty() ? factors[f].letter != over : has(factors[f].letter))
        elements *= static_cast<double>(rule.size(at)) *
                    rule.share(at, a.dims[f], mesh);
    }
    if (!axes || elements == 0) continue;
    const auto ranks = static_cast<double>(mesh.size_of(axes));
    if (e.added > 0) {
      constexpr int64_t kItem = size_of(DType::kI32);
      const auto n = static_cast<int64_t>(
          std::min(elements * static_cast<double>(e.added), 1e17));
      const int64_t most =
          all_reduce_elements(n, static_cast<int64_t>(ranks),
                              n * kItem <= cost.one_shot_bytes) *
          kItem;
      ps += times * static_cast<double>(
                        cost.collective_ps(StepKind::kAllReduce, axes, most));
      continue;
    }
    double bytes = elements * (ranks - 1);
    if (e.of.empty())
      bytes *= 8;
    else
      bytes *= static_cast<double>(size_of(inputs[0].spec->dtype())) / ranks;
    if (e.in_turn > 0) {
      bytes *= e.in_turn / times;
      times *= ranks;
    }
    bytes = std::min(bytes, 1e18);
    const int64_t once = cost.collective_ps(StepKind::kAllToAll, axes,
                                            static_cast<int64_t>(bytes));
    ps += static_cast<double>(once) * times;
  }
  return saturated_ps(ps);
}

}  // namespace dtensor
