// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/dim_parse.h"

#include <algorithm>
#include <set>

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

template <class Fn>
void for_each_part(WrittenDim& n, Fn&& fn) {
  for (WrittenDim& p : n.parts) {
    fn(p);
    for_each_part(p, fn);
  }
}

// The size that the written sizes of the parts add up or multiply to; nullopt
// if some part has none.
std::optional<int64_t> written_size(const WrittenDim& n) {
  if (n.kind == Dim::Kind::kLeaf) return n.size;
  bool is_product = n.kind == Dim::Kind::kProduct;
  int64_t total = is_product ? 1 : 0;
  bool all = true, overflow = false;
  for (const WrittenDim& p : n.parts) {
    auto size = written_size(p);
    all &= size.has_value();
    if (!size) continue;
    overflow |= is_product ? __builtin_mul_overflow(total, *size, &total)
                           : __builtin_add_overflow(total, *size, &total);
  }
  DT_CHECK(!overflow, "layout",
           "the sizes of '{}' {} more than 64 bits can count; write smaller "
           "ones",
           n.text, is_product ? "multiply to" : "add up to");
  return all ? std::optional(total) : std::nullopt;
}

}  // namespace

void read_details(Cursor& c, WrittenDim& leaf) {
  if (c.peek() != '/' && c.peek() != '@') return;
  DT_CHECK(leaf.granule == 0 && leaf.points.empty(), "layout",
           "'{}' already has a granule or boundaries, but '{}' starts others; "
           "write them once, at the first axis",
           leaf.text, c.peek());
  if (c.take('/')) {
    leaf.granule = c.number();
    DT_CHECK(leaf.granule >= 1, "layout",
             "'{}' has a granule of {}; write one of 1 or more", leaf.text,
             leaf.granule);
  } else if (c.take('@')) {
    bool bracketed = c.take('(');
    do leaf.points.push_back(c.number());
    while (c.take('|'));
    if (bracketed) c.expect(')');
  }
}

void read_axes(Cursor& c, const Mesh& mesh, WrittenDim& leaf) {
  c.expect('{');
  while (!c.take('}')) {
    int axis = mesh.axis(c.axis_name());
    DT_CHECK(
        std::find(leaf.axes.begin(), leaf.axes.end(), axis) == leaf.axes.end(),
        "layout",
        "'{}' names axis {} twice in one pair of braces; write "
        "it once",
        c.text(), mesh.axis_name(axis));
    leaf.axes.push_back(axis);
    if (c.peek() != '}') c.expect(',');
  }
  DT_CHECK(!leaf.axes.empty() || (c.peek() != '/' && c.peek() != '@'), "layout",
           "'{}' has a '{}' after empty braces, which split nothing; write an "
           "axis in the braces, as in {{x}}/64",
           c.text(), c.peek());
  read_details(c, leaf);
  DT_CHECK(leaf.points.empty() || (c.peek() != '{' && c.peek() != '='),
           "layout",
           "in '{}' a '{}' follows boundaries; write a comma between two "
           "dimensions, and brackets around boundaries that another segment "
           "follows, as in 8{{x}}@(0|3|8)|4{{x}}",
           c.text(), c.peek());
}

WrittenDim read_group(Cursor& c, const Mesh* mesh) {
  WrittenDim group;
  group.kind = Dim::Kind::kProduct;
  size_t start = c.at();
  while (c.peek() != ')' && c.peek() != ':') {
    if (!group.parts.empty()) {
      bool bar = c.take('|');
      if (group.parts.size() == 1 && bar) group.kind = Dim::Kind::kConcat;
      if (group.kind == Dim::Kind::kConcat && !bar && !c.at_name() &&
          !c.at_number() && c.peek() != '(')
        c.wrong(mesh ? "'|' or ')'" : "'|', ':' or ')'");
      DT_CHECK(bar == (group.kind == Dim::Kind::kConcat), "layout",
               "'{}' mixes | and spaces; put the product in brackets, as in "
               "((2 4)|8)",
               c.since(start));
    }
    size_t from = (c.peek(), c.at());
    std::string_view its_name;
    bool sized = true;
    if (c.at_name()) {
      its_name = c.name("a name");
      sized = c.take('=');
    }
    WrittenDim part;
    if (!sized) {
      part.name = its_name;
    } else if (c.take('(')) {
      part = read_group(c, mesh);
      if (c.peek() == ':') c.wrong("')'");
      c.expect(')');
    } else if (c.at_number()) {
      part.size = c.number();
      DT_CHECK(*part.size >= 0, "layout",
               "the size {} in '{}' is negative; write 0 or more", *part.size,
               c.since(start));
    } else {
      c.wrong("a size, a name or '('");
    }
    part.name = its_name;
    part.text = c.since(from);
    if (mesh && c.peek() == '{') {
      DT_CHECK(part.kind == Dim::Kind::kLeaf, "layout",
               "'{}' is a group; write the axes after one of its parts",
               part.text);
      read_axes(c, *mesh, part);
    }
    group.parts.push_back(std::move(part));
  }
  if (group.parts.empty()) c.wrong("a size or a name");
  group.text = c.since(start);
  return group;
}

void check_names(WrittenDim& tree) {
  std::set<std::string_view> names;
  for_each_part(tree, [&](const WrittenDim& p) {
    DT_CHECK(p.name.empty() || names.insert(p.name).second, "layout",
             "'{}' has two parts named {}; give each its own name", tree.text,
             p.name);
  });
}

WrittenDim& find_leaf(WrittenDim& tree, std::string_view name) {
  WrittenDim* found = nullptr;
  std::string leaves;
  for_each_part(tree, [&](WrittenDim& p) {
    if (p.kind == Dim::Kind::kLeaf && !p.name.empty())
      leaves += (leaves.empty() ? "" : ", ") + std::string(p.name);
    if (p.name == name) found = &p;
  });
  DT_CHECK(found, "layout",
           "'{}' has no part named {} (it names {}); write {}=<size> for the "
           "part that is split",
           tree.text, name, leaves.empty() ? "none" : leaves, name);
  DT_CHECK(found->kind == Dim::Kind::kLeaf, "layout",
           "'{}' is a group, which is not split as a whole; name one of its "
           "parts after the ':'",
           found->text);
  return *found;
}

bool same_tree(const WrittenDim& a, const WrittenDim& b) {
  if (a.kind != b.kind || a.name != b.name || a.parts.size() != b.parts.size())
    return false;
  if (a.size && b.size && *a.size != *b.size) return false;
  for (size_t i = 0; i < a.parts.size(); ++i)
    if (!same_tree(a.parts[i], b.parts[i])) return false;
  return true;
}

Dim make_dim(const WrittenDim& n, int64_t size, const std::string& where,
             const Mesh& mesh) {
  if (n.kind == Dim::Kind::kLeaf) {
    if (!n.points.empty()) {
      DT_CHECK(n.points.back() == size, "layout",
               "the boundaries of '{}' end at {}, but {}; let the last be {}",
               n.text, n.points.back(), where, size);
      return Dim(size, Split::at(n.axes, n.points, mesh));
    }
    return Dim(size, Split::over(n.axes, std::max<int64_t>(n.granule, 1)));
  }
  bool is_product = n.kind == Dim::Kind::kProduct;
  int64_t known = is_product ? 1 : 0;
  const WrittenDim* open = nullptr;
  auto unknown_name = [](const WrittenDim* p) {
    while (p->kind != Dim::Kind::kLeaf)
      p = &*std::find_if(
          p->parts.begin(), p->parts.end(),
          [](const WrittenDim& q) { return !written_size(q).has_value(); });
    return p->name;
  };
  (void)written_size(n);  // throws here rather than overflow below
  for (const WrittenDim& p : n.parts) {
    if (auto written = written_size(p)) {
      known = is_product ? known * *written : known + *written;
      continue;
    }
    DT_CHECK(!open, "layout",
             "the sizes of {} and {} in '{}' are both unknown; write {}=<size>",
             unknown_name(open), unknown_name(&p), n.text, unknown_name(open));
    open = &p;
  }
  bool fits = !open        ? known == size
              : is_product ? known > 0 && size % known == 0
                           : known <= size;
  DT_CHECK(fits, "layout",
           "the sizes of '{}'{} {} {}, but {}; write sizes whose {} {} {}",
           n.text,
           open ? fmt::format(" without '{}'", open->kind == Dim::Kind::kLeaf
                                                   ? open->name
                                                   : open->text)
                : "",
           is_product ? "multiply to" : "add up to", known, where,
           is_product ? "product" : "sum",
           !open         ? "is"
           : !is_product ? "is at most"
           : known == 0  ? "is 1 or more and divides"
                         : "divides",
           size);
  std::vector<Dim> parts;
  for (const WrittenDim& p : n.parts) {
    auto written = written_size(p);
    int64_t its = written ? *written : is_product ? size / known : size - known;
    parts.push_back(
        make_dim(p, its, fmt::format("'{}' has size {}", p.text, its), mesh));
  }
  return is_product ? Dim::product(std::move(parts))
                    : Dim::concat(std::move(parts));
}

}  // namespace dtensor
