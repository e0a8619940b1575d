// The text forms of a layout.
#include <algorithm>
#include <charconv>

#include "placement/error.h"
#include "placement/layout.h"

namespace dtensor {
namespace {

std::string details(const Split& s) {
  std::string t;
  if (s.granule() > 1) t = "/" + std::to_string(s.granule());
  if (s.points()) {
    t = "@";
    for (int64_t x : *s.points())
      t += (t.size() > 1 ? "|" : "") + std::to_string(x);
  }
  return t;
}

std::string dim_text(const Dim& d, const Mesh& mesh) {
  std::string t;
  switch (d.kind()) {
    case Dim::Kind::kLeaf:
      for (int a : d.split().axes())
        t += (t.empty() ? "" : ",") + mesh.axis_name(a);
      return "{" + t + "}" + details(d.split());
    case Dim::Kind::kProduct:
      for (const Dim& p : d.parts())
        t += (t.empty() ? "" : " ") + std::to_string(p.size()) +
             (p.whole() ? "" : dim_text(p, mesh));
      return "(" + t + ")";
    case Dim::Kind::kConcat:
      for (const Dim& p : d.parts())
        t += (t.empty() ? "" : "|") + std::to_string(p.size()) +
             (p.whole() ? "" : dim_text(p, mesh));
      return "(" + t + ")";
  }
  return t;
}

std::string partial_text(ReduceOp op) {
  return op == ReduceOp::kSum ? "P" : "P(" + std::string(name(op)) + ")";
}

int64_t parse_number(std::string_view digits, std::string_view text) {
  int64_t x = 0;
  auto [p, ec] =
      std::from_chars(digits.data(), digits.data() + digits.size(), x);
  DT_CHECK(
      ec == std::errc() && !digits.empty() &&
          p == digits.data() + digits.size(),
      "layout",
      "'{}' is not a placement; write R, S<dim>, P or P(max), for example S0",
      text);
  return x;
}

}  // namespace

std::string Layout::to_string(const Mesh& mesh) const {
  // Per mesh axis when that says it all: leaves whose axes are in mesh order.
  std::vector<std::string> per_axis(static_cast<size_t>(mesh.num_axes()), "R");
  bool simple = true;
  for (size_t d = 0; d < dims.size(); ++d) {
    simple &= dims[d].kind() == Dim::Kind::kLeaf || dims[d].whole();
    const Split& s = dims[d].split();
    for (int i = 0; i < s.num_axes(); ++i) {
      simple &= i == 0 || s.axis(i - 1) < s.axis(i);
      per_axis[static_cast<size_t>(s.axis(i))] =
          "S" + std::to_string(d) + (i == 0 ? details(s) : "");
    }
  }
  for (size_t i = 0; i < partials.size(); ++i) {
    simple &= i == 0 || partials[i - 1].axis < partials[i].axis;
    per_axis[static_cast<size_t>(partials[i].axis)] =
        partial_text(partials[i].op);
  }
  std::string t;
  if (simple) {
    for (const std::string& p : per_axis) t += (t.empty() ? "" : ",") + p;
    return t;
  }
  for (const Dim& d : dims) t += (t.empty() ? "" : ",") + dim_text(d, mesh);
  t = "[" + t + "]";
  for (const Partial& p : partials)
    t += " P{" + mesh.axis_name(p.axis) +
         (p.op == ReduceOp::kSum ? "" : ":" + std::string(name(p.op))) + "}";
  return t;
}

Layout parse_layout(std::string_view text, const Mesh& mesh,
                    const Shape& shape) {
  std::vector<std::string_view> items;
  for (std::string_view rest = text; !text.empty();) {
    size_t comma = rest.find(',');
    items.push_back(rest.substr(0, comma));
    if (comma == rest.npos) break;
    rest.remove_prefix(comma + 1);
  }
  DT_CHECK(
      static_cast<int>(items.size()) == mesh.num_axes(), "layout",
      "'{}' has {} placements, but mesh {} has {} axes; write one for each",
      text, items.size(), mesh.to_string(), mesh.num_axes());
  struct Cut {
    std::vector<int> axes;
    int64_t granule = 0;  // 0: none given
    std::vector<int64_t> points;
  };
  std::vector<Cut> cuts(static_cast<size_t>(shape.size()));
  Layout l;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    std::string_view item = items[static_cast<size_t>(axis)];
    if (item == "R") continue;
    if (item == "P") {
      l.partials.push_back({axis, ReduceOp::kSum});
    } else if (item.substr(0, 2) == "P(" && item.back() == ')') {
      std::string_view kind = item.substr(2, item.size() - 3);
      int found = -1;
      for (int k = 0; k <= static_cast<int>(ReduceOp::kMean); ++k)
        if (name(static_cast<ReduceOp>(k)) == kind) found = k;
      DT_CHECK(
          found >= 0, "layout",
          "'{}' is no reduction; write P, P(avg), P(max), P(min), P(prod), "
          "P(any), P(all) or P(mean)",
          kind);
      l.partials.push_back({axis, static_cast<ReduceOp>(found)});
    } else {
      DT_CHECK(item.substr(0, 1) == "S", "layout",
               "'{}' is not a placement; write R, S<dim>, P or P(max), for "
               "example S0",
               item);
      size_t mark = item.find_first_of("/@");
      int64_t dim = parse_number(
          item.substr(1, mark == item.npos ? item.npos : mark - 1), item);
      DT_CHECK(!shape.empty(), "layout",
               "'{}' splits a scalar, which has no dimension; write R or P",
               item);
      DT_CHECK(
          dim >= 0 && dim < shape.size(), "layout",
          "S{} splits a dimension that shape {} does not have; write S0 to "
          "S{}",
          dim, dtensor::to_string(shape), shape.size() - 1);
      Cut& cut = cuts[static_cast<size_t>(dim)];
      cut.axes.push_back(axis);
      DT_CHECK(
          mark == item.npos || (cut.granule == 0 && cut.points.empty()),
          "layout",
          "'{}' says twice where dimension {} is cut; write the granule or "
          "the boundaries at its first axis alone",
          text, dim);
      if (mark != item.npos && item[mark] == '/') {
        cut.granule = parse_number(item.substr(mark + 1), item);
        DT_CHECK(cut.granule >= 1, "layout",
                 "'{}' has a granule of {}; it is at least 1", item,
                 cut.granule);
      } else if (mark != item.npos) {
        for (std::string_view rest = item.substr(mark + 1);;) {
          size_t bar = rest.find('|');
          cut.points.push_back(parse_number(rest.substr(0, bar), item));
          if (bar == rest.npos) break;
          rest.remove_prefix(bar + 1);
        }
      }
    }
  }
  for (int d = 0; d < shape.size(); ++d) {
    const Cut& cut = cuts[static_cast<size_t>(d)];
    DT_CHECK(
        cut.points.empty() || cut.points.back() == shape[d], "layout",
        "the boundaries in '{}' end at {}, but dimension {} of {} has size "
        "{}",
        text, cut.points.empty() ? 0 : cut.points.back(), d,
        dtensor::to_string(shape), shape[d]);
    l.dims.push_back(Dim(
        shape[d], cut.points.empty()
                      ? Split::over(cut.axes, std::max<int64_t>(cut.granule, 1))
                      : Split::at(cut.axes, cut.points, mesh)));
  }
  return l.canonical(mesh);
}

}  // namespace dtensor
