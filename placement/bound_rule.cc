// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/bound_rule.h"

#include <algorithm>
#include <utility>

#include "dtensor/placement/dims.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

int64_t product(int64_t a, int64_t b, const Rule& rule) {
  int64_t n;
  DT_CHECK(!__builtin_mul_overflow(a, b, &n), "rule",
           "in the rule {}, the factors of one dimension multiply to more than "
           "2^63 - 1 ({} times {}); use smaller sizes",
           rule.to_string(), a, b);
  return n;
}

}  // namespace

BoundRule::BoundRule(const Rule& rule, const std::vector<Shape>& shapes,
                     std::string_view op,
                     const std::vector<std::pair<char, int64_t>>& extra)
    : rule_(rule.expand(shapes, op)), sizes_(rule_.factors().size(), -1) {
  const auto& in = rule_.inputs();
  DT_CHECK(shapes.size() == in.size(), op, "takes {}, but got {}; pass {}",
           quantity(in.size(), "input", "inputs"), shapes.size(), in.size());
  for (auto [letter, n] : extra) {
    int f = rule_.factor(letter);
    if (f >= 0) sizes_[static_cast<size_t>(f)] = n;
  }
  auto all = [&] {
    std::string t;
    for (const Shape& s : shapes)
      t += (t.empty() ? "" : " and ") + dtensor::to_string(s);
    return t;
  };
  for (size_t i = 0; i < in.size(); ++i) {
    DT_CHECK(
        static_cast<int>(in[i].size()) == shapes[i].size(), op,
        "input {} of shape {} does not fit the rule {}; pass an input with "
        "{}",
        i, dtensor::to_string(shapes[i]), rule_.to_string(),
        quantity(in[i].size(), "dimension", "dimensions"));
    for (size_t d = 0; d < in[i].size(); ++d) {
      int64_t n = shapes[i][static_cast<int>(d)];
      if (in[i][d].empty()) {
        DT_CHECK(n == 1, op,
                 "input {} of shape {} has size {} in dimension {}, but the "
                 "rule {} needs size 1 there; pass an input with that size",
                 i, dtensor::to_string(shapes[i]), n, d, rule_.to_string());
        continue;
      }
      if (in[i][d].size() != 1) continue;
      int64_t& known = sizes_[static_cast<size_t>(in[i][d][0])];
      DT_CHECK(known < 0 || known == n, op,
               "shapes {} do not fit together: '{}' of the rule {} is both {} "
               "and {}; give these dimensions the same size",
               all(), rule_.factors()[static_cast<size_t>(in[i][d][0])].letter,
               rule_.to_string(), known, n);
      known = n;
    }
  }
  // In a dimension of several factors, the one factor without a size gets the
  // dimension's size divided by the other sizes.
  for (size_t i = 0; i < in.size(); ++i)
    for (size_t d = 0; d < in[i].size(); ++d) {
      if (in[i][d].size() < 2) continue;
      int64_t n = shapes[i][static_cast<int>(d)], rest = 1;
      int unknown = -1;
      for (int f : in[i][d]) {
        if (sizes_[static_cast<size_t>(f)] < 0)
          unknown = f;
        else
          rest = product(rest, sizes_[static_cast<size_t>(f)], rule_);
      }
      const int64_t known = rest;
      if (unknown >= 0 && rest > 0) {
        sizes_[static_cast<size_t>(unknown)] = n / rest;
        rest *= n / rest;
      }
      DT_CHECK(rest == n, op,
               "dimension {} of input {} has size {}, which is not {}{}, the "
               "product of the {}sizes of its factors in the rule {}; change "
               "its size or those of the factors",
               d, i, n, unknown < 0 ? "" : "a multiple of ", known,
               unknown < 0 ? "" : "known ", rule_.to_string());
    }
  for (size_t f = 0; f < sizes_.size(); ++f)
    DT_CHECK(sizes_[f] >= 0, op,
             "no input gives the size of '{}' in the rule {}; write the letter "
             "as a dimension of its own in an input of the rule, or have the "
             "operator pass its size",
             rule_.factors()[f].letter, rule_.to_string());
  for (size_t i = 0; i < rule_.outputs().size(); ++i)
    numel(output_shape(static_cast<int>(i)));
}

void BoundRule::add_window(char near, char far,
                           std::function<Interval(Interval)> met) {
  windows_.push_back({rule_.factor(near), rule_.factor(far), std::move(met)});
}

Shape BoundRule::shape_of(const Rule::Term& t) const {
  Shape s;
  for (const auto& d : t) {
    int64_t n = 1;
    for (int f : d) n = product(n, size(f), rule_);
    s.push_back(n);
  }
  return s;
}

namespace {

// Whether the factor is the second one of a link. Such a factor does not count
// in the work: an index of the first factor meets only one index of the second.
bool is_linked(const Rule& rule, size_t factor) {
  for (auto [h, g] : rule.links())
    if (static_cast<size_t>(g) == factor) return true;
  return false;
}

}  // namespace

double BoundRule::points() const {
  double n = 1;
  for (size_t f = 0; f < sizes_.size(); ++f)
    if (!is_linked(rule_, f)) n *= static_cast<double>(sizes_[f]);
  return n;
}

Layout BoundRule::layout_of(const Rule::Term& t, const Assignment& a,
                            const Mesh& mesh) const {
  Layout l;
  l.dims.reserve(t.size());
  for (const auto& d : t) {
    if (d.size() == 1) {
      l.dims.push_back(a.dims[static_cast<size_t>(d[0])]);
      continue;
    }
    std::vector<Dim> parts;
    for (int f : d) parts.push_back(a.dims[static_cast<size_t>(f)]);
    l.dims.push_back(Dim::product(std::move(parts)).canonical(mesh));
  }
  return l;
}

bool BoundRule::combines(size_t factor) const {
  const auto& outputs = rule_.outputs();
  return rule_.factors()[factor].inside ||
         std::any_of(outputs.begin(), outputs.end(), [&](const Rule::Term& t) {
           return !contains(t, static_cast<int>(factor));
         });
}

bool BoundRule::combines() const {
  for (size_t f = 0; f < sizes_.size(); ++f)
    if (combines(f)) return true;
  return false;
}

bool BoundRule::cuts_leaves(const Dim& d, const Mesh& mesh) const {
  for (int64_t r = 0; d.axes() && r < mesh.num_ranks(); ++r) {
    IntervalList parts;
    d.intervals(mesh, mesh.coordinate(r), parts);
    for (const Interval& part : parts)
      for (int64_t at : {part.lo, part.hi})
        if (at != d.size() && at % leaf_ != 0) return true;
  }
  return false;
}

Dim BoundRule::legal(int factor, Dim d, const Mesh& mesh) const {
  if (factor == leaf_factor_ && cuts_leaves(d, mesh)) {
    std::vector<int> axes;
    for (int a = 0; a < mesh.num_axes(); ++a)
      if (d.axes() >> a & 1) axes.push_back(a);
    return Dim(d.size(), Split::over(axes, leaf_)).canonical(mesh);
  }
  if (d.kind() == Dim::Kind::kLeaf) return d;
  const auto f = static_cast<size_t>(factor);
  if (rule_.factors()[f].one_range) return balanced(d.size(), d.axes());
  const bool own = combines(f) || (combines() && !copies_lie_alike(d, mesh));
  return own ? partitioned(d, mesh) : d;
}

Assignment BoundRule::legal(Assignment a, const Mesh& mesh) const {
  for (size_t f = 0; f < a.dims.size(); ++f)
    a.dims[f] = legal(static_cast<int>(f), std::move(a.dims[f]), mesh);
  return a;
}

Layout BoundRule::input_layout(const Assignment& a, const Mesh& mesh,
                               int i) const {
  Layout l = layout_of(rule_.inputs()[static_cast<size_t>(i)], a, mesh);
  for (const Assignment::Pass& p : a.passes) {
    const auto& group = rule_.notes()[static_cast<size_t>(p.note)].inputs;
    if (std::find(group.begin(), group.end(), i) != group.end())
      l.partials.push_back({p.axis, p.op});
  }
  return l.canonical(mesh);
}

Layout BoundRule::output_layout(const Assignment& a, const Mesh& mesh,
                                int i) const {
  Layout l = layout_of(rule_.outputs()[static_cast<size_t>(i)], a, mesh);
  for (const Assignment::Pass& p : a.passes)
    l.partials.push_back(
        {p.axis, *rule_.notes()[static_cast<size_t>(p.note)].pass(p.op)});
  for (size_t f = 0; f < rule_.factors().size(); ++f) {
    const Factor& x = rule_.factors()[f];
    // A factor that only other outputs have leaves this output partial too.
    if (x.inside ||
        contains(rule_.outputs()[static_cast<size_t>(i)], static_cast<int>(f)))
      continue;
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      if (!(a.dims[f].axes() >> axis & 1)) continue;
      bool there = false;
      for (const Dim& d : l.dims) there |= d.axes() >> axis & 1;
      for (const Partial& p : l.partials) there |= p.axis == axis;
      if (!there) l.partials.push_back({axis, x.reduction});
    }
  }
  return l.canonical(mesh);
}

double BoundRule::share(int factor, const Dim& d, const Mesh& mesh) const {
  const auto f = static_cast<size_t>(factor);
  if (d.whole() || sizes_[f] == 0 || is_linked(rule_, f)) return 1;
  return static_cast<double>(d.largest(mesh)) / static_cast<double>(sizes_[f]);
}

double BoundRule::largest_share(const Assignment& a, const Mesh& mesh) const {
  double share = 1;
  for (size_t f = 0; f < sizes_.size(); ++f)
    share *= this->share(static_cast<int>(f), a.dims[f], mesh);
  return share;
}

std::vector<FactorList> BoundRule::choices() const {
  std::vector<FactorList> all;
  for (int f = 0; f < static_cast<int>(sizes_.size()); ++f) {
    if (rule_.factors()[static_cast<size_t>(f)].pinned ||
        is_linked(rule_, static_cast<size_t>(f)))
      continue;
    all.push_back({f});
    for (auto [h, g] : rule_.links())
      if (h == f) all.push_back({h, g});
  }
  return all;
}

std::string BoundRule::to_string(const Assignment& a, const Mesh& mesh) const {
  std::string t;
  for (size_t f = 0; f < a.dims.size(); ++f) {
    const Dim& d = a.dims[f];
    if (d.whole()) continue;
    t += t.empty() ? "" : "; ";
    t += rule_.factors()[f].letter;
    t += ": ";
    if (d.kind() != Dim::Kind::kLeaf) {
      t += mesh.axes_to_string(d.axes()) + " in a tree";
      continue;
    }
    const Split& s = d.split();
    for (int i = 0; i < s.num_axes(); ++i)
      t += (i ? "," : "") + mesh.axis_name(s.axis(i));
    if (s.granule() > 1) t += "/" + std::to_string(s.granule());
    if (s.points()) t += "@";
  }
  for (const Assignment::Pass& p : a.passes) {
    t += t.empty() ? "" : "; ";
    t += fmt::format("P({}) over {} in", name(p.op), mesh.axis_name(p.axis));
    for (int i : rule_.notes()[static_cast<size_t>(p.note)].inputs)
      t += " " + std::to_string(i);
  }
  return t.empty() ? "R" : t;
}

}  // namespace dtensor
