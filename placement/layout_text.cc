// SPDX-License-Identifier: Apache-2.0
// Prints layouts; layout_parse.cc reads them. The grammar is in layout.h.
#include <string>
#include <vector>

#include "dtensor/placement/layout.h"

namespace dtensor {
namespace {

// The granule or the boundaries of a leaf. In a concatenation, boundaries need
// brackets, because "|" also separates the segments.
std::string details(const Split& s, bool bracketed = false) {
  if (s.whole()) return "";
  if (s.granule() > 1) return "/" + std::to_string(s.granule());
  if (!s.points()) return "";
  std::string t;
  for (int64_t x : *s.points()) t += (t.empty() ? "" : "|") + std::to_string(x);
  return bracketed ? "@(" + t + ")" : "@" + t;
}

// The text of a tree, in which leaf(dim, in_concat) writes the split leaves.
template <class Leaf>
std::string tree_text(const Dim& d, Leaf&& leaf) {
  bool is_concat = d.kind() == Dim::Kind::kConcat;
  std::string t;
  for (const Dim& p : d.parts()) {
    if (!t.empty()) t += is_concat ? '|' : ' ';
    if (p.whole())
      t += std::to_string(p.size());
    else if (p.kind() == Dim::Kind::kLeaf)
      t += leaf(p, is_concat);
    else
      t += "(" + tree_text(p, leaf) + ")";
  }
  return t;
}

std::string axes_text(const Split& s, const Mesh& mesh) {
  std::string t;
  for (int a : s.axes()) t += (t.empty() ? "" : ",") + mesh.axis_name(a);
  return "{" + t + "}";
}

std::string per_dimension(const Layout& l, const Mesh& mesh) {
  std::string t;
  for (const Dim& d : l.dims) {
    if (!t.empty()) t += ",";
    if (d.whole())
      t += "{}";
    else if (d.kind() == Dim::Kind::kLeaf)
      t += axes_text(d.split(), mesh) + details(d.split());
    else
      t += "(" +
           tree_text(d,
                     [&](const Dim& leaf, bool in_concat) {
                       return std::to_string(leaf.size()) +
                              axes_text(leaf.split(), mesh) +
                              details(leaf.split(), in_concat);
                     }) +
           ")";
  }
  t = "[" + t + "]";
  for (const Partial& p : l.partials)
    t += " P{" + mesh.axis_name(p.axis) +
         (p.op == ReduceOp::kSum ? "" : ":" + std::string(name(p.op))) + "}";
  return t;
}

// The name of leaf i: a, b, ... z, a1, b1, ...
std::string leaf_name(size_t i) {
  std::string t(1, static_cast<char>('a' + i % 26));
  return i < 26 ? t : t + std::to_string(i / 26);
}

// The per-axis form; nullopt if axes or partials are not in mesh order.
std::optional<std::string> per_axis(const Layout& l, const Mesh& mesh) {
  std::vector<std::string> items(static_cast<size_t>(mesh.num_axes()), "R");
  auto item = [&](int axis) -> std::string& {
    return items[static_cast<size_t>(axis)];
  };
  bool in_order = true;
  auto check_order = [&](const Split& s) {
    for (int i = 1; i < s.num_axes(); ++i)
      in_order &= s.axis(i - 1) < s.axis(i);
  };
  for (size_t d = 0; d < l.dims.size(); ++d) {
    const Dim& dim = l.dims[d];
    std::string head = "S" + std::to_string(d);
    if (dim.kind() == Dim::Kind::kLeaf) {
      const Split& s = dim.split();
      check_order(s);
      for (int i = 0; i < s.num_axes(); ++i)
        item(s.axis(i)) = head + (i == 0 ? details(s) : "");
      continue;
    }
    // By axis: the leaves that it splits, with their granules or boundaries.
    std::vector<std::string> splits(items.size());
    size_t count = 0;
    std::string tree = tree_text(dim, [&](const Dim& leaf, bool) {
      const Split& s = leaf.split();
      check_order(s);
      std::string its_name = leaf_name(count++);
      for (int i = 0; i < s.num_axes(); ++i) {
        std::string& t = splits[static_cast<size_t>(s.axis(i))];
        t += (t.empty() ? "" : ",") + its_name + (i == 0 ? details(s) : "");
      }
      return its_name + "=" + std::to_string(leaf.size());
    });
    for (size_t a = 0; a < splits.size(); ++a) {
      if (splits[a].empty()) continue;
      items[a] = head + "(" + tree + ":" + splits[a] + ")";
      tree.clear();  // written only at the first axis
    }
  }
  for (size_t i = 0; i < l.partials.size(); ++i) {
    const Partial& p = l.partials[i];
    in_order &= i == 0 || l.partials[i - 1].axis < p.axis;
    item(p.axis) =
        p.op == ReduceOp::kSum ? "P" : "P(" + std::string(name(p.op)) + ")";
  }
  if (!in_order) return std::nullopt;
  std::string t;
  for (size_t a = 0; a < items.size(); ++a) t += (a ? "," : "") + items[a];
  return t;
}

}  // namespace

std::string Layout::to_string(const Mesh& mesh, Form form) const {
  auto by_axis = form == Form::kPerDim ? std::nullopt : per_axis(*this, mesh);
  if (!by_axis) return per_dimension(*this, mesh);
  bool leaves = true;
  for (const Dim& d : dims) leaves &= d.kind() == Dim::Kind::kLeaf || d.whole();
  if (leaves) return *by_axis;
  std::string by_dim = per_dimension(*this, mesh);
  return by_axis->size() < by_dim.size() || form == Form::kPerAxis ? *by_axis
                                                                   : by_dim;
}

}  // namespace dtensor
