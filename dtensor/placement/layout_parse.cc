// Reads layouts; layout_text.cc prints them. The grammar is in layout.h.
#include <algorithm>
#include <charconv>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/placement/layout.h"

namespace dtensor {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// A place in a text; every read skips the spaces before it.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  char peek() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) wrong("'" + std::string(1, c) + "'");
  }
  bool at_number() { return is_digit(peek()) || peek() == '-'; }
  bool at_name() { return is_letter(peek()); }

  int64_t number() {
    if (!at_number()) wrong("a number");
    const char *first = text_.data() + at_, *end = text_.data() + text_.size();
    int64_t x = 0;
    auto [p, ec] = std::from_chars(first, end, x);
    if (ec == std::errc::invalid_argument) wrong("a number");
    at_ += static_cast<size_t>(p - first);
    DT_CHECK(ec == std::errc(), "layout",
             "{} in '{}' does not fit into 64 bits; write a smaller number",
             std::string_view(first, static_cast<size_t>(p - first)), text_);
    return x;
  }
  // Letters, digits and _, first a letter.
  std::string_view name(std::string_view what) {
    if (!at_name()) wrong(what);
    return word([](char c) { return is_letter(c) || is_digit(c); });
  }
  // Up to a space or what follows the name of a mesh axis.
  std::string_view axis_name() {
    peek();
    auto t = word([](char c) {
      return !is_space(c) &&
             std::string_view(",:{}()[]").find(c) == std::string_view::npos;
    });
    if (t.empty()) wrong("the name of a mesh axis");
    return t;
  }

  std::string_view text() const { return text_; }
  size_t at() const { return at_; }
  std::string_view since(size_t from) const {
    return text_.substr(from, at_ - from);
  }
  [[noreturn]] void wrong(std::string_view wanted) {
    if (peek() == '\0')
      fail("layout", "'{}' ends where {} should follow", text_, wanted);
    fail("layout", "in '{}' there is '{}' where {} should be", text_,
         text_.substr(at_), wanted);
  }

 private:
  template <class Belongs>
  std::string_view word(Belongs belongs) {
    size_t from = at_;
    while (at_ < text_.size() && belongs(text_[at_])) ++at_;
    return since(from);
  }

  std::string_view text_;
  size_t at_ = 0;
};

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
  for (int k = 0; k <= static_cast<int>(ReduceOp::kMean); ++k)
    if (name(static_cast<ReduceOp>(k)) == kind) return static_cast<ReduceOp>(k);
  fail("layout",
       "'{}' is no reduction; write sum, avg, max, min, prod, any, all or mean",
       kind);
}

// A dimension, or a part of one, as it was written.
struct Node {
  Dim::Kind kind = Dim::Kind::kLeaf;
  std::string_view text, name;
  std::optional<int64_t> size;  // of a leaf
  std::vector<Node> parts;      // of the others
  std::vector<int> axes;        // of a leaf, as the next two
  int64_t granule = 0;          // 0: none given
  std::vector<int64_t> points;
};

// "/64", "@0|3|8" or "@(0|3|8)", if there is one.
void read_details(Cursor& c, Node& leaf) {
  if (c.peek() != '/' && c.peek() != '@') return;
  DT_CHECK(leaf.granule == 0 && leaf.points.empty(), "layout",
           "'{}' is cut twice, now by '{}'; write the granule or the "
           "boundaries once, at the first axis",
           leaf.text, c.peek());
  if (c.take('/')) {
    leaf.granule = c.number();
    DT_CHECK(leaf.granule >= 1, "layout",
             "'{}' has a granule of {}; it is at least 1", leaf.text,
             leaf.granule);
  } else if (c.take('@')) {
    bool bracketed = c.take('(');
    do leaf.points.push_back(c.number());
    while (c.take('|'));
    if (bracketed) c.expect(')');
  }
}

// "{y,z}/64". In a tree, where | may go on with the next segment, boundaries
// without brackets end with the part.
void read_axes(Cursor& c, const Mesh& mesh, Node& leaf) {
  c.expect('{');
  while (!c.take('}')) {
    int axis = mesh.axis(c.axis_name());
    DT_CHECK(
        std::find(leaf.axes.begin(), leaf.axes.end(), axis) == leaf.axes.end(),
        "layout",
        "'{}' names axis {} twice in one pair of braces; once "
        "is enough",
        c.text(), mesh.axis_name(axis));
    leaf.axes.push_back(axis);
    if (c.peek() != '}') c.expect(',');
  }
  DT_CHECK(!leaf.axes.empty() || (c.peek() != '/' && c.peek() != '@'), "layout",
           "no axis cuts '{}', but '{}' says where; write the axis in the "
           "braces, as in {{x}}/64",
           leaf.text, c.peek());
  read_details(c, leaf);
  DT_CHECK(leaf.points.empty() || (c.peek() != '{' && c.peek() != '='),
           "layout",
           "boundaries that another segment follows are bracketed: write "
           "8{{x}}@(0|3|8)|4{{x}} for '{}...'",
           leaf.text);
}

// The parts of a group, up to its ')' or ':'. With a mesh, leaves have axes.
Node read_group(Cursor& c, const Mesh* mesh) {
  Node group;
  group.kind = Dim::Kind::kProduct;
  size_t start = c.at();
  while (c.peek() != ')' && c.peek() != ':') {
    if (!group.parts.empty()) {
      bool bar = c.take('|');
      if (group.parts.size() == 1 && bar) group.kind = Dim::Kind::kConcat;
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
    Node part;
    if (!sized) {
      part.name = its_name;
    } else if (c.take('(')) {
      part = read_group(c, mesh);
      if (c.peek() == ':') c.wrong("')'");
      c.expect(')');
    } else if (c.at_number()) {
      part.size = c.number();
      DT_CHECK(*part.size >= 0, "layout",
               "a size of {} in '{}'; write one that is not negative",
               *part.size, c.since(start));
    } else {
      c.wrong("a size, a name or '('");
    }
    part.name = its_name;
    part.text = c.since(from);
    if (mesh && c.peek() == '{') {
      DT_CHECK(part.kind == Dim::Kind::kLeaf, "layout",
               "'{}' is a group; write the axes behind one of its parts",
               part.text);
      read_axes(c, *mesh, part);
    }
    group.parts.push_back(std::move(part));
  }
  if (group.parts.empty()) c.wrong("a size or a name");
  group.text = c.since(start);
  return group;
}

template <class Fn>
void for_each_part(Node& n, Fn&& fn) {
  for (Node& p : n.parts) {
    fn(p);
    for_each_part(p, fn);
  }
}

void check_names(Node& tree) {
  std::set<std::string_view> names;
  for_each_part(tree, [&](const Node& p) {
    DT_CHECK(p.name.empty() || names.insert(p.name).second, "layout",
             "'{}' has two parts named {}; name them apart", tree.text, p.name);
  });
}

// The leaf of that name.
Node& find(Node& tree, std::string_view name) {
  Node* found = nullptr;
  std::string leaves;
  for_each_part(tree, [&](Node& p) {
    if (p.kind == Dim::Kind::kLeaf && !p.name.empty())
      leaves += (leaves.empty() ? "" : ", ") + std::string(p.name);
    if (p.name == name) found = &p;
  });
  DT_CHECK(found, "layout",
           "'{}' has no part named {}; it names {}: write {}=<size> for the "
           "part that is split",
           tree.text, name, leaves.empty() ? "none" : leaves, name);
  DT_CHECK(found->kind == Dim::Kind::kLeaf, "layout",
           "'{}' is a group; name one of its parts", found->text);
  return *found;
}

// Do two trees name the same parts of the same sizes?
bool same_tree(const Node& a, const Node& b) {
  if (a.kind != b.kind || a.name != b.name || a.parts.size() != b.parts.size())
    return false;
  if (a.size && b.size && *a.size != *b.size) return false;
  for (size_t i = 0; i < a.parts.size(); ++i)
    if (!same_tree(a.parts[i], b.parts[i])) return false;
  return true;
}

// The sizes that are written, taken together; nullopt if some part has none.
std::optional<int64_t> written_size(const Node& n) {
  if (n.kind == Dim::Kind::kLeaf) return n.size;
  bool is_product = n.kind == Dim::Kind::kProduct;
  int64_t total = is_product ? 1 : 0;
  bool all = true, overflow = false;
  for (const Node& p : n.parts) {
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

// The Dim of a node of that size. `where` says whose size it is.
Dim make(const Node& n, int64_t size, const std::string& where,
         const Mesh& mesh) {
  if (n.kind == Dim::Kind::kLeaf) {
    if (!n.points.empty()) {
      DT_CHECK(n.points.back() == size, "layout",
               "the boundaries of '{}' end at {}, but {}; let the last be {}",
               n.text, n.points.back(), where, size);
      return Dim(size, Split::at(n.axes, n.points, mesh));
    }
    int64_t granule = std::max<int64_t>(n.granule, 1);
    DT_CHECK(size % granule == 0, "layout",
             "a granule of {} does not divide '{}': {}; write one that does",
             granule, n.text, where);
    return Dim(size, Split::over(n.axes, granule));
  }
  bool is_product = n.kind == Dim::Kind::kProduct;
  int64_t known = is_product ? 1 : 0;
  const Node* open = nullptr;
  auto unknown_name = [](const Node* p) {
    while (p->kind != Dim::Kind::kLeaf)
      p = &*std::find_if(p->parts.begin(), p->parts.end(), [](const Node& q) {
        return !written_size(q).has_value();
      });
    return p->name;
  };
  (void)written_size(n);  // no overflow below
  for (const Node& p : n.parts) {
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
           "the sizes of '{}' {} {}, but {}; write sizes {} is {}", n.text,
           is_product ? "multiply to" : "add up to", known, where,
           is_product ? "whose product" : "whose sum", size);
  std::vector<Dim> parts;
  for (const Node& p : n.parts) {
    auto written = written_size(p);
    int64_t its = written ? *written : is_product ? size / known : size - known;
    parts.push_back(
        make(p, its, fmt::format("'{}' has size {}", p.text, its), mesh));
  }
  return is_product ? Dim::product(std::move(parts))
                    : Dim::concat(std::move(parts));
}

Layout make(const std::vector<Node>& dims, std::vector<Partial> partials,
            const Mesh& mesh, const Shape& shape) {
  Layout l;
  for (int d = 0; d < shape.size(); ++d)
    l.dims.push_back(make(dims[static_cast<size_t>(d)], shape[d],
                          fmt::format("dimension {} of {} has size {}", d,
                                      dtensor::to_string(shape), shape[d]),
                          mesh));
  l.partials = std::move(partials);
  return l.canonical(mesh);
}

// "[{y,z},{x},{}] P{w:max}".
Layout parse_per_dimension(std::string_view text, const Mesh& mesh,
                           const Shape& shape) {
  Cursor c(text);
  c.expect('[');
  std::vector<Node> dims;
  while (!c.take(']')) {
    size_t from = (c.peek(), c.at());
    Node dim;
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
           "'{}' has {} dimensions, but shape {} has {}; write {{}} for each "
           "that is whole",
           text, dims.size(), dtensor::to_string(shape), shape.size());
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

// "S0,R,P(max)".
class PerAxis {
 public:
  PerAxis(std::string_view text, const Mesh& mesh, const Shape& shape)
      : text_(text), mesh_(mesh), shape_(shape) {
    dims_.resize(static_cast<size_t>(shape.size()));
  }

  Layout parse() {
    auto items = split_items();
    DT_CHECK(
        static_cast<int>(items.size()) == mesh_.num_axes(), "layout",
        "'{}' has {} placements, but mesh {} has {} axes; write one for each",
        text_, items.size(), mesh_.to_string(), mesh_.num_axes());
    for (int axis = 0; axis < mesh_.num_axes(); ++axis)
      placement(items[static_cast<size_t>(axis)], axis);
    return make(dims_, std::move(partials_), mesh_, shape_);
  }

 private:
  // At the commas outside brackets.
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
    DT_CHECK(d >= 0 && d < shape_.size(), "layout",
             "S{} splits a dimension that shape {} does not have; write S0 to "
             "S{}",
             d, dtensor::to_string(shape_), shape_.size() - 1);
    Node& dim = dims_[static_cast<size_t>(d)];
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
    if (c.peek() != ':') {
      Node tree = read_group(c, nullptr);
      check_names(tree);
      DT_CHECK(dim.axes.empty(), "layout",
               "an axis before '{}' splits all of dimension {}; write the tree "
               "at the first axis that splits it",
               item, d);
      DT_CHECK(!has_tree || same_tree(dim, tree), "layout",
               "'{}' and '{}' are different trees of dimension {}; write the "
               "first again, or only what this axis splits, as in S{}(:h)",
               dim.text, tree.text, d, d);
      if (!has_tree) dim = std::move(tree);
    }
    DT_CHECK(dim.kind != Dim::Kind::kLeaf, "layout",
             "'{}' is the first axis that splits dimension {}; write its tree, "
             "as in S{}(3 h=4 8:h)",
             item, d, d);
    if (!c.take(':')) c.wrong("':' and the name of the part that is split");
    do {
      Node& leaf = find(dim, c.name("the name of a part"));
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
  std::vector<Node> dims_;
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
