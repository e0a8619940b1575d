// SPDX-License-Identifier: Apache-2.0
// Reads layouts; layout_text.cc prints them. The grammar is in layout.h.
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/cursor.h"
#include "dtensor/placement/dim_parse.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/layout.h"

namespace dtensor {
namespace {

std::string_view trimmed(std::string_view t) {
  while (!t.empty() && is_space(t.front())) t.remove_prefix(1);
  while (!t.empty() && is_space(t.back())) t.remove_suffix(1);
  return t;
}

void check_brackets(std::string_view text) {
  std::string open;
  for (char c : text) {
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c != ')' && c != ']' && c != '}') continue;
    char opener = c == ')' ? '(' : c == ']' ? '[' : '{';
    DT_CHECK(!open.empty() && open.back() == opener, "layout",
             "'{}' has a '{}' that closes nothing; write '{}' before it, or "
             "leave it out",
             text, c, opener);
    open.pop_back();
  }
  DT_CHECK(open.empty(), "layout",
           "'{}' has a '{}' that is not closed; write '{}' where it ends", text,
           open.back(),
           open.back() == '('   ? ')'
           : open.back() == '[' ? ']'
                                : '}');
}

ReduceOp reduction(Cursor& c) {
  std::string_view kind = c.name("a reduction (as in P(max) or P{x:max})");
  for (int k = 0; k <= static_cast<int>(ReduceOp::kExactSum); ++k)
    if (name(static_cast<ReduceOp>(k)) == kind) return static_cast<ReduceOp>(k);
  fail("layout",
       "'{}' is not a reduction; write sum, avg, max, min, prod, any, all, "
       "mean or exact",
       kind);
}

Layout make(const std::vector<WrittenDim>& dims, std::vector<Partial> partials,
            const Mesh& mesh, const Shape& shape) {
  Layout l;
  for (int d = 0; d < shape.size(); ++d)
    l.dims.push_back(make_dim(dims[static_cast<size_t>(d)], shape[d],
                              fmt::format("dimension {} of {} has size {}", d,
                                          dtensor::to_string(shape), shape[d]),
                              mesh));
  l.partials = std::move(partials);
  return l.canonical(mesh);
}

// Reads "[{y,z},{x},{}] P{w:max}".
Layout parse_per_dimension(std::string_view text, const Mesh& mesh,
                           const Shape& shape) {
  Cursor c(text);
  c.expect('[');
  std::vector<WrittenDim> dims;
  while (!c.take(']')) {
    size_t from = (c.peek(), c.at());
    WrittenDim dim;
    if (c.take('(')) {
      dim = read_group(c, &mesh);
      if (c.peek() == ':') c.wrong("')'");
      c.expect(')');
      check_names(dim);
    } else {
      if (c.peek() != '{') c.wrong("'{' or '('");
      dim.text = text;
      read_axes(c, mesh, dim);
    }
    dim.text = c.since(from);
    dims.push_back(std::move(dim));
    if (c.peek() != ']') c.expect(',');
  }
  DT_CHECK(static_cast<int>(dims.size()) == shape.size(), "layout",
           "'{}' has {}, but shape {} has {}; write braces for each dimension, "
           "{{}} if it is whole",
           text, quantity(dims.size(), "dimension", "dimensions"),
           dtensor::to_string(shape), shape.size());
  std::vector<Partial> partials;
  while (c.take('P')) {
    c.expect('{');
    do {
      int axis = mesh.axis(c.axis_name());
      partials.push_back({axis, c.take(':') ? reduction(c) : ReduceOp::kSum});
    } while (c.take(','));
    c.expect('}');
  }
  if (c.peek() != '\0') c.wrong("P{...} or the end");
  return make(dims, std::move(partials), mesh, shape);
}

// Reads "S0,R,P(max)".
class PerAxis {
 public:
  PerAxis(std::string_view text, const Mesh& mesh, const Shape& shape)
      : text_(text), mesh_(mesh), shape_(shape) {
    dims_.resize(static_cast<size_t>(shape.size()));
  }

  Layout parse() {
    auto items = split_items();
    DT_CHECK(static_cast<int>(items.size()) == mesh_.num_axes(), "layout",
             "'{}' has {}, but mesh {} has {}; write one placement for each "
             "axis",
             text_, quantity(items.size(), "placement", "placements"),
             mesh_.to_string(), quantity(mesh_.num_axes(), "axis", "axes"));
    for (int axis = 0; axis < mesh_.num_axes(); ++axis)
      placement(items[static_cast<size_t>(axis)], axis);
    return make(dims_, std::move(partials_), mesh_, shape_);
  }

 private:
  // The placements: the text between commas that are outside parentheses.
  std::vector<std::string_view> split_items() const {
    std::vector<std::string_view> items;
    if (trimmed(text_).empty()) return items;
    size_t from = 0;
    int depth = 0;
    for (size_t i = 0; i <= text_.size(); ++i) {
      char c = i < text_.size() ? text_[i] : ',';
      depth += (c == '(') - (c == ')');
      if (c != ',' || depth > 0) continue;
      items.push_back(trimmed(text_.substr(from, i - from)));
      from = i + 1;
    }
    return items;
  }

  void placement(std::string_view item, int axis) {
    Cursor c(item);
    if (c.take('R')) {
    } else if (c.take('P')) {
      ReduceOp op = ReduceOp::kSum;
      if (c.take('(')) {
        op = reduction(c);
        c.expect(')');
      }
      partials_.push_back({axis, op});
    } else if (item.size() > 1 && item[0] == 'S' &&
               (is_digit(item[1]) || item[1] == '-')) {
      c.take('S');
      split(c, item, axis);
    } else {
      not_a_placement(item);
    }
    if (c.peek() != '\0') not_a_placement(item);
  }

  [[noreturn]] static void not_a_placement(std::string_view item) {
    fail("layout",
         "'{}' is not a placement; write R, S<dim>, P or P(max), for example "
         "S0",
         item);
  }

  void split(Cursor& c, std::string_view item, int axis) {
    int64_t d = c.number();
    DT_CHECK(!shape_.empty(), "layout",
             "'{}' splits a scalar, which has no dimension; write R or P",
             item);
    DT_CHECK(
        d >= 0 && d < shape_.size(), "layout",
        "S{} splits a dimension that shape {} does not have; write S0{}", d,
        dtensor::to_string(shape_),
        shape_.size() == 1 ? "" : fmt::format(" to S{}", shape_.size() - 1));
    WrittenDim& dim = dims_[static_cast<size_t>(d)];
    bool has_tree = dim.kind != Dim::Kind::kLeaf;
    if (!c.take('(')) {
      DT_CHECK(!has_tree, "layout",
               "'{}' does not say which part of '{}' it splits; write S{}(:h) "
               "with the name of the part",
               item, dim.text, d);
      if (dim.axes.empty()) dim.text = item;
      dim.axes.push_back(axis);
      read_details(c, dim);
      return;
    }
    DT_CHECK(dim.axes.empty(), "layout",
             "a placement before '{}' splits dimension {} without a tree; "
             "write the tree at the first axis that splits the dimension",
             item, d);
    if (c.peek() != ':') {
      WrittenDim tree = read_group(c, nullptr);
      check_names(tree);
      DT_CHECK(
          !has_tree || same_tree(dim, tree), "layout",
          "'{}' and '{}' are different trees of dimension {}; write the first "
          "again, or only the part that this axis splits, as in S{}(:h)",
          dim.text, tree.text, d, d);
      if (!has_tree) dim = std::move(tree);
    }
    DT_CHECK(dim.kind != Dim::Kind::kLeaf, "layout",
             "'{}' is the first placement that splits dimension {}, so it has "
             "to say how the dimension is divided; write the sizes of the "
             "parts, as in S{}(3 h=4 8:h)",
             item, d, d);
    if (!c.take(':')) c.wrong("':' and the name of the part that is split");
    do {
      WrittenDim& leaf = find_leaf(dim, c.name("the name of a part"));
      DT_CHECK(leaf.axes.empty() || leaf.axes.back() != axis, "layout",
               "'{}' names {} twice; name each part once", item, leaf.name);
      leaf.axes.push_back(axis);
      read_details(c, leaf);
    } while (c.take(','));
    c.expect(')');
  }

  std::string_view text_;
  const Mesh& mesh_;
  const Shape& shape_;
  std::vector<WrittenDim> dims_;
  std::vector<Partial> partials_;
};

}  // namespace

Layout parse_layout(std::string_view text, const Mesh& mesh,
                    const Shape& shape) {
  numel(shape);
  check_brackets(text);
  if (trimmed(text).substr(0, 1) == "[")
    return parse_per_dimension(text, mesh, shape);
  return PerAxis(text, mesh, shape).parse();
}

}  // namespace dtensor
