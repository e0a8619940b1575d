// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/axis_choices.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "dtensor/placement/dims.h"

namespace dtensor {
namespace {

// The Dim of factor f in an input. It is whole if the input lacks f, or if f is
// in a dimension of several factors whose Dim is no product of Dims of these
// factors.
Dim dim_on(const BoundRule& rule, const Spec* spec, size_t input, int f) {
  const Rule::Term& term = rule.rule().inputs()[input];
  for (size_t d = 0; d < term.size(); ++d) {
    if (!contains(term[d], f)) continue;
    const Dim& dim = spec->dim(static_cast<int>(d));
    if (term[d].size() == 1) return dim;
    std::vector<int64_t> sizes;
    for (int g : term[d]) sizes.push_back(rule.size(g));
    if (auto parts = dim.unflatten(spec->mesh(), sizes))
      for (size_t k = 0; k < parts->size(); ++k)
        if (term[d][k] == f) return (*parts)[k];
  }
  return Dim(rule.size(f));
}

// Whether this axis splits a dimension of some input that contains one of the
// factors.
bool carried(const BoundRule& rule, std::span<const OpInput> inputs, int axis,
             const FactorList& factors) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Rule::Term& term = rule.rule().inputs()[i];
    for (size_t d = 0; d < term.size(); ++d)
      if (std::any_of(factors.begin(), factors.end(),
                      [&](int f) { return contains(term[d], f); }) &&
          (inputs[i].spec->dim(static_cast<int>(d)).axes() >> axis & 1))
        return true;
  }
  return false;
}

// Whether this axis splits a pinned factor in some input.
bool splits_pinned(const BoundRule& rule, std::span<const OpInput> inputs,
                   int axis) {
  for (size_t f = 0; f < rule.rule().factors().size(); ++f) {
    if (!rule.rule().factors()[f].pinned) continue;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (dim_on(rule, inputs[i].spec, i, static_cast<int>(f)).axes() >> axis &
          1)
        return true;
  }
  return false;
}

// Whether an input with factor f is partial over this axis, and no note lets
// the partial pass. False if f is marked "~" (see Reach::kReduced).
bool must_reduce(const BoundRule& rule, std::span<const OpInput> inputs,
                 int axis, int f) {
  if (rule.rule().factors()[static_cast<size_t>(f)].inside) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto op = inputs[i].spec->layout().partial_on(axis);
    if (!op || !contains(rule.rule().inputs()[i], f)) continue;
    const auto& notes = rule.rule().notes();
    if (std::none_of(notes.begin(), notes.end(), [&](const PartialNote& n) {
          return n.pass(*op) && std::count(n.inputs.begin(), n.inputs.end(),
                                           static_cast<int>(i)) > 0;
        }))
      return true;
  }
  return false;
}

}  // namespace

std::vector<std::vector<AxisChoice>> axis_choices(
    const BoundRule& rule, std::span<const OpInput> inputs, Reach reach) {
  const Mesh& mesh = inputs[0].spec->mesh();
  std::vector<std::vector<AxisChoice>> per_axis;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    std::vector<AxisChoice> list{{}};
    bool used = reach == Reach::kAll && mesh.axis_size(axis) > 1;
    for (const OpInput& in : inputs)
      used |= (in.spec->split_axes() | in.spec->partial_axes()) >> axis & 1;
    if (used) {
      const bool any = splits_pinned(rule, inputs, axis);
      for (const FactorList& factors : rule.choices()) {
        Reach needs = Reach::kAll;
        if (any || carried(rule, inputs, axis, factors))
          needs = Reach::kMoved;
        else if (must_reduce(rule, inputs, axis, factors[0]))
          needs = Reach::kReduced;
        if (needs <= reach)
          list.push_back({.factors = factors, .reach = needs});
      }
      for (size_t n = 0; n < rule.rule().notes().size(); ++n) {
        const PartialNote& note = rule.rule().notes()[n];
        for (int i : note.inputs) {
          auto op =
              inputs[static_cast<size_t>(i)].spec->layout().partial_on(axis);
          if (!op || !note.pass(*op)) continue;
          list.push_back({{}, static_cast<int>(n), *op});
          break;
        }
      }
    }
    per_axis.push_back(std::move(list));
  }
  return per_axis;
}

FactorDims::FactorDims(const BoundRule& rule, std::span<const OpInput> inputs)
    : rule_(rule),
      inputs_(inputs),
      order_(operand_order(inputs)),
      known_(rule.rule().factors().size()) {}

const FactorDims::Known& FactorDims::of(int f, AxisMask mask) {
  auto& list = known_[static_cast<size_t>(f)];
  for (const Known& k : list)
    if (k.axes == mask) return k;
  const Mesh& mesh = inputs_[0].spec->mesh();
  Dim dim = rule_.legal(f, make(f, mask), mesh);
  const double share = rule_.share(f, dim, mesh);
  return list.emplace_back(Known{mask, std::move(dim), share});
}

Dim FactorDims::make(int f, AxisMask mask) const {
  int64_t n = rule_.size(f), granule = 1;
  if (!mask) return Dim(n);
  const Mesh& mesh = inputs_[0].spec->mesh();
  Dim base(n);
  for (size_t i : order_) {
    Dim d = dim_on(rule_, inputs_[i].spec, i, f);
    if (d.axes() == mask) return d;
    Dim kept = restricted(d, mesh, mask);
    // A tree is used only if it is split by all axes of the mask: axes can be
    // added (Split::pushed()) to a leaf only.
    bool fits = kept.kind() == Dim::Kind::kLeaf || kept.axes() == mask;
    if (base.whole() && fits) base = kept;
    if (!d.split().points()) granule = std::lcm(granule, d.split().granule());
  }
  if (base.kind() != Dim::Kind::kLeaf) return base;
  Split s = base.split();
  if (s.points()) {
    for (int a = 0; a < mesh.num_axes(); ++a)
      if ((mask & ~s.mask()) >> a & 1) s = s.pushed(mesh, n, a);
    return Dim(n, s);
  }
  std::vector<int> axes = s.axes();
  for (int a = 0; a < mesh.num_axes(); ++a)
    if ((mask & ~s.mask()) >> a & 1) axes.push_back(a);
  return Dim(n, Split::over(axes, granule).canonical(mesh, n));
}

}  // namespace dtensor
