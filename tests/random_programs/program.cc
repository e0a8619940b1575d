// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/program.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <utility>

#include "dtensor/placement/keep.h"
#include "tests/random_programs/reference.h"

namespace dtensor::random_programs {
namespace {

using testing::Array;

// Each operator with the names of its arguments; the last name stands for all
// arguments that are left. Operators that move parts occur more often, so that
// they are drawn more often.
constexpr char kOperators[] = R"(
neg; relu; square; exp; sqrt; tanh; gelu; sigmoid
add; add; sub; mul; mul; div; maximum; hypot; where_positive
sum keepdim dims; mean keepdim dims; amax keepdim dims; amin keepdim dims
logsumexp keepdim dims; var keepdim dims
softmax dim; log_softmax dim; cumsum dim; topk dim k; layer_norm; rms_norm
matmul; matmul; matmul; linear; linear; embedding; embedding; cross_entropy
attention causal window soft_cap; attention causal window soft_cap
attention causal window soft_cap; attention causal window soft_cap
reshape shape; reshape shape; reshape shape; permute order; permute order
slice dim lo hi step; slice dim lo hi step; pad dim left right value
cat dim; cat dim; expand shape
redistribute; redistribute; redistribute_async; redistribute_async; neg_given
neg_elsewhere ranks first
)";

struct Operator {
  std::string name;
  std::vector<std::string> args;
};

const std::vector<Operator>& operators() {
  static const std::vector<Operator> all = [] {
    std::vector<Operator> list;
    std::string text = kOperators;
    std::replace(text.begin(), text.end(), '\n', ';');
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line, ';');) {
      std::istringstream words(line);
      Operator op;
      words >> op.name;
      for (std::string arg; words >> arg;) op.args.push_back(arg);
      if (!op.name.empty()) list.push_back(op);
    }
    return list;
  }();
  return all;
}

// An operand beside the first one: numbers or, with `rows`, ids below `rows`.
struct Other {
  Shape shape;
  int64_t rows = 0;
};
struct Drawn {
  Ints args = {};
  std::vector<Other> others = {};
  size_t position = 0;  // the position of the first operand among all
};

// A shape that broadcasts with s.
Shape partner(Random& r, Shape s) {
  for (int64_t& n : s)
    if (r.chance(15)) n = 1;
  while (!s.empty() && r.chance(15)) s.erase(0);
  if (s.size() < 4 && r.chance(8)) s.insert(0, r.between(1, 3));
  for (int64_t& n : s)
    if (n == 1 && r.chance(15)) n = r.between(2, 4);
  return s;
}

Drawn draw_matmul(Random& r, const Shape& s) {
  const bool left = s.size() == 1 || r.chance(50);
  const int64_t inner = left ? s.back() : s[s.size() - 2];
  Shape other;
  if (s.size() > 2 && r.chance(50))
    for (int d = 0; d + 2 < s.size(); ++d)
      other.push_back(r.chance(25) ? 1 : s[d]);
  other.push_back(left ? inner : r.between(1, 6));
  other.push_back(left ? r.between(1, 6) : inner);
  if (r.chance(15)) other = {inner};
  return {{}, {{other}}, left ? 0u : 1u};
}

// Joins two neighbouring dimensions, or deals out the prime factors in order.
Ints draw_shape(Random& r, const Shape& s) {
  Ints to{s.begin(), s.end()};
  if (to.size() > 1 && r.chance(50)) {
    const auto at = to.begin() + r.between(0, s.size() - 2);
    at[1] *= at[0];
    to.erase(at);
    return to;
  }
  to.assign(static_cast<size_t>(r.between(1, 4)), 1);
  size_t at = 0;
  int64_t left = std::max<int64_t>(numel(s), 1);
  for (int64_t factor = 2; left > 1; ++factor)
    for (; left % factor == 0; left /= factor) {
      to[at] *= factor;
      if (at + 1 < to.size() && r.chance(60)) ++at;
    }
  return to;
}

std::optional<Drawn> draw(Random& r, const std::string& op, const Shape& s) {
  const int rank = s.size();
  const int64_t dim = rank > 0 ? r.between(0, rank - 1) : 0;
  const int64_t n = rank > 0 ? s[static_cast<int>(dim)] : 0;
  if (op == "where_positive")
    return Drawn{{},
                 {{partner(r, s)}, {partner(r, s)}},
                 static_cast<size_t>(r.between(0, 2))};
  static const std::set<std::string> binary{"add", "sub",     "mul",
                                            "div", "maximum", "hypot"};
  if (binary.contains(op))
    return Drawn{{}, {{partner(r, s)}}, static_cast<size_t>(r.between(0, 1))};
  if (op == "reshape") return Drawn{draw_shape(r, s)};
  static const std::set<std::string> reduce{"sum",  "mean",      "amax",
                                            "amin", "logsumexp", "var"};
  if (reduce.contains(op)) {
    Ints args{r.between(0, 1)};
    for (int d = 0; d < rank; ++d)
      if (r.chance(40)) args.push_back(d);
    return Drawn{args};
  }
  if (op == "expand") {
    Ints args{s.begin(), s.end()};
    for (int64_t& size : args)
      if (size == 1) size = r.between(1, 4);
    if (r.chance(50)) args.insert(args.begin(), r.between(1, 4));
    return Drawn{args};
  }
  if (rank == 0) return Drawn{};
  if (op == "matmul") return draw_matmul(r, s);
  if (op == "layer_norm") return Drawn{{}, {{{s.back()}}, {{s.back()}}}};
  if (op == "rms_norm") return Drawn{{}, {{{s.back()}}}};
  if (op == "linear") {
    const int64_t out = r.between(1, 6);
    return Drawn{{}, {{{out, s.back()}}, {{out}}}};
  }
  if (op == "cross_entropy") {
    if (rank != 2 || s[1] == 0) return {};
    return Drawn{{}, {{{s[0]}, s[1]}}};
  }
  if (op == "attention") {
    if (rank != 4 || numel(s) == 0) return {};
    const bool causal = r.chance(50);
    Shape keys = s;
    keys[1] = causal ? s[1] : r.between(1, 5);
    if (r.chance(50)) keys[2] = 1;
    const int64_t window = causal && r.chance(50) ? r.between(1, 5) : 0;
    const int64_t soft_cap = r.chance(30) ? r.between(1, 3) : 0;
    return Drawn{{causal, window, soft_cap}, {{keys}, {keys}}};
  }
  if (op == "permute") {
    Ints order;
    for (int d = 0; d < rank; ++d)
      order.insert(order.begin() + r.between(0, d), d);
    return Drawn{order};
  }
  if (op == "embedding") {
    if (rank != 2 || s[0] == 0) return {};
    Shape ids{r.between(1, 6)};
    if (r.chance(40)) ids.push_back(r.between(1, 4));
    return Drawn{{}, {{ids, s[0]}}};
  }
  if (op == "slice") {
    const int64_t lo = r.between(0, n);
    return Drawn{{dim, lo, r.between(lo, n), r.between(1, 3)}};
  }
  if (op == "pad")
    return Drawn{{dim, r.between(-1, 2), r.between(-1, 2), r.between(-1, 1)}};
  if (op == "topk") {
    if (n == 0) return {};
    return Drawn{{dim, r.between(1, n)}};
  }
  if (op == "cat") {
    Drawn d{{dim}, {{s}}, static_cast<size_t>(r.between(0, 1))};
    d.others[0].shape[static_cast<int>(dim)] = r.between(0, 4);
    if (r.chance(30)) d.others.push_back({s});
    return d;
  }
  static const std::set<std::string> rows{"softmax", "log_softmax", "cumsum"};
  return rows.contains(op) ? Drawn{{dim}} : Drawn{};
}

// Makes the leaf a parameter, in one of the possible ways.
void make_parameter(Random& r, Step& leaf) {
  const Shape& s = leaf.value.shape;
  const size_t axes = leaf.lay.axes.size();
  leaf.lay = random_lay(r, axes, s, Partials::kNone);
  // An operator may refuse to move a parameter that stays where it is.
  leaf.keep = static_cast<int>(r.chance(50) ? Keep::kMove : Keep::kGatherOnUse);
  if (r.chance(40)) {
    leaf.use.axes.assign(axes, Lay::kWhole);
    // A gather takes the innermost axis away. Listed boundaries and trees would
    // be drawn anew for the axes that are left.
    const Lay& lay = leaf.lay;
    if (axes == 2 && !lay.uneven && !lay.tree && !lay.reversed && r.chance(50))
      leaf.use.axes[0] = lay.axes[0];
  }
  if (r.chance(40)) leaf.grad = random_lay(r, axes, s, Partials::kNone);
}

class Builder {
 public:
  explicit Builder(Random& r) : r_(r) {
    p_.axes = {{"x", r.between(2, 6)}};
    if (r.chance(50)) {
      p_.axes = {{"x", r.between(2, 3)}, {"y", 2}};
      if (r.chance(50)) std::swap(p_.axes[0].size, p_.axes[1].size);
    }
  }

  Program build() {
    for (int64_t n = r_.between(1, 2); n > 0; --n) add_leaf({random_shape()});
    for (int64_t n = r_.between(3, 12); n > 0;) n -= add_operator();
    p_.keeps_products = r_.chance(30);
    if (r_.chance(40)) {
      int64_t from = r_.between(0, static_cast<int64_t>(p_.steps.size()) - 1);
      for (int64_t n = r_.between(1, 6); n > 0; --n, ++from)
        if (from < static_cast<int64_t>(p_.steps.size()))
          p_.steps[static_cast<size_t>(from)].recomputed = true;
    }
    return p_;
  }

 private:
  Shape random_shape() {
    if (r_.chance(12))  // for attention
      return {r_.between(1, 2), r_.between(1, 5), r_.between(1, 3),
              r_.between(1, 3)};
    Shape s;
    for (int64_t d = r_.between(0, 9) * 2 / 5; d > 0; --d)
      s.push_back(r_.chance(2) ? 0 : r_.between(1, 7));
    while (numel(s) > 80) s.pop_back();
    return s;
  }

  size_t add(Step step) {
    values_.push_back(value_of(step, values_));
    static const std::set<std::string> views{
        "reshape", "permute", "slice",        "expand",
        "cat",     "pad",     "redistribute", "redistribute_async"};
    kept_.push_back(step.keep > 0 || step.use.defined() ||
                    (views.contains(step.op) &&
                     std::any_of(step.in.begin(), step.in.end(),
                                 [&](size_t i) { return kept_[i]; })));
    p_.steps.push_back(std::move(step));
    return p_.steps.size() - 1;
  }

  size_t add_leaf(const Other& o) {
    Step leaf{"leaf"};
    leaf.lay = random_lay(r_, p_.axes.size(), o.shape, Partials::kSums);
    leaf.value = {o.shape, {}, o.rows ? DType::kI64 : DType::kF64};
    for (int64_t i = numel(o.shape); i > 0; --i)
      leaf.value.v.push_back(
          o.rows ? static_cast<double>(r_.between(0, o.rows - 1))
                 : static_cast<double>(r_.between(-2000, 2000)) / 1000);
    leaf.wants_grad = !o.rows && r_.chance(75);
    if (leaf.wants_grad && r_.chance(35)) make_parameter(r_, leaf);
    return add(std::move(leaf));
  }

  // The index of an earlier value of that shape, or of a new leaf.
  size_t operand(const Other& o) {
    std::vector<size_t> fits;
    for (size_t i = 0; i < values_.size(); ++i)
      if (values_[i].shape == o.shape && is_float(values_[i].dtype))
        fits.push_back(i);
    if (o.rows || fits.empty() || r_.chance(40)) return add_leaf(o);
    return any_of(fits);
  }
  size_t any_of(const std::vector<size_t>& list) {
    return list[static_cast<size_t>(
        r_.between(0, static_cast<int64_t>(list.size()) - 1))];
  }

  // Draws an operator. Returns whether it fitted.
  bool add_operator() {
    const std::string& op =
        operators()[static_cast<size_t>(r_.between(
                        0, static_cast<int64_t>(operators().size()) - 1))]
            .name;
    std::vector<size_t> numbers;
    for (size_t i = 0; i < values_.size(); ++i)
      if (is_float(values_[i].dtype)) numbers.push_back(i);
    const size_t x = r_.chance(60) ? numbers.back() : any_of(numbers);
    auto drawn = draw(r_, op, values_[x].shape);
    if (!drawn) return false;
    if (op == "neg_elsewhere") {
      const int64_t ranks = Mesh(p_.axes).num_ranks();
      drawn->args = {r_.between(1, ranks), r_.between(0, ranks - 1)};
    }
    const size_t before = p_.steps.size();
    try {
      Step step{op, {}, drawn->args};
      for (const Other& o : drawn->others) step.in.push_back(operand(o));
      step.in.insert(step.in.begin() + static_cast<int64_t>(drawn->position),
                     x);
      if (moves(op))
        step.lay = random_lay(r_, op == "neg_elsewhere" ? 1 : p_.axes.size(),
                              values_[x].shape,
                              kept_[x] ? Partials::kNone : Partials::kAny);
      add(std::move(step));
      return true;
    } catch (const Unfit&) {
      p_.steps.resize(before);
      values_.resize(before);
      kept_.resize(before);
      return false;
    }
  }

  Random& r_;
  Program p_;
  std::vector<Array> values_;
  // By step: whether it is a parameter that operators may not move, or a view
  // of one. Such a value must not become partial, since it could not be summed.
  std::vector<bool> kept_;
};

// The program without step i. Steps that used it use step `instead`.
Program without(Program p, size_t i, size_t instead) {
  p.steps.erase(p.steps.begin() + static_cast<int64_t>(i));
  for (Step& s : p.steps)
    for (size_t& in : s.in) {
      if (in == i) in = instead;
      if (in > i) --in;
    }
  return p;
}

// The program with `to` in place of every size `from` of its leaves, and of the
// shapes that its steps ask for.
Program resized(Program p, int64_t from, int64_t to) {
  for (Step& s : p.steps) {
    if (s.op == "reshape" || s.op == "expand")
      std::replace(s.args.begin(), s.args.end(), from, to);
    for (int d = 0; d < s.value.shape.size(); ++d) {
      if (s.value.shape[d] != from) continue;
      int64_t inner = 1, at = 0;
      for (int k = d + 1; k < s.value.shape.size(); ++k)
        inner *= s.value.shape[k];
      auto cut = [&](const auto&) { return at++ / inner % from >= to; };
      std::erase_if(s.value.v, cut);
      s.value.shape[d] = to;
    }
  }
  return p;
}

}  // namespace

Lay random_lay(Random& r, size_t axes, const Shape& s, Partials partials) {
  Lay lay;
  for (size_t a = 0; a < axes; ++a) {
    int what = Lay::kWhole;
    if (!s.empty() && r.chance(60))
      what = static_cast<int>(r.between(0, s.size() - 1));
    else if (partials != Partials::kNone && r.chance(45))
      what = partials == Partials::kAny
                 ? static_cast<int>(r.between(Lay::kMax, Lay::kSum))
                 : Lay::kSum;
    lay.axes.push_back(what);
  }
  lay.reversed = r.chance(25);
  if (r.chance(30)) lay.uneven = static_cast<uint64_t>(r.between(1, 1000));
  if (r.chance(15)) lay.tree = static_cast<uint64_t>(r.between(1, 1000));
  return lay;
}

Layout Lay::on(const Mesh& mesh, const Shape& shape) const {
  Layout layout = Layout::replicated(shape);
  Random listed(uneven), cut(tree);
  for (int d = 0; d < shape.size(); ++d) {
    std::vector<int> over;
    for (size_t a = 0; a < axes.size(); ++a)
      if (axes[a] == d) over.push_back(static_cast<int>(a));
    if (over.empty()) continue;
    if (reversed) std::reverse(over.begin(), over.end());
    auto split = [&](int64_t n) {
      if (!uneven) return Dim(n, Split::over(over));
      int64_t parts = 1;
      for (int a : over) parts *= mesh.axis_size(a);
      std::vector<int64_t> points{0, n};
      while (static_cast<int64_t>(points.size()) <= parts)
        points.push_back(listed.between(0, n));
      std::sort(points.begin(), points.end());
      return Dim(n, Split::at(over, points, mesh));
    };
    Dim& dim = layout.dims[static_cast<size_t>(d)];
    const int64_t n = shape[d], at = tree ? cut.between(0, n) : 0;
    if (at == 0 || at == n)
      dim = split(n);
    else if (n % at == 0 && cut.chance(50))
      dim = cut.chance(50) ? Dim::product({Dim(at), split(n / at)})
                           : Dim::product({split(at), Dim(n / at)});
    else
      dim = Dim::concat({cut.chance(30) ? Dim(at) : split(at), split(n - at)});
  }
  for (size_t a = 0; a < axes.size(); ++a)
    if (axes[a] <= kSum)
      layout.partials.push_back(
          {static_cast<int>(a), axes[a] == kSum   ? ReduceOp::kSum
                                : axes[a] == kAvg ? ReduceOp::kAvg
                                                  : ReduceOp::kMax});
  return layout;
}

bool moves(std::string_view op) {
  return op.starts_with("redistribute") || op == "neg_given" ||
         op == "neg_elsewhere";
}

Mesh elsewhere(const Step& s, const Mesh& mesh) {
  const int64_t all = mesh.num_ranks(), count = std::min(s.args[0], all);
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < count; ++i) ranks.push_back((s.args[1] + i) % all);
  return Mesh({{"z", count}}, ranks);
}

std::vector<bool> Program::used() const {
  std::vector<bool> list(steps.size());
  for (const Step& s : steps)
    for (size_t i : s.in) list[i] = true;
  return list;
}

std::string to_text(const Program& p) {
  const Mesh mesh(p.axes);
  const Expected expected = reference(p);
  std::string text = "mesh " + mesh.to_string() +
                     (p.keeps_products ? ", keeps products" : "") + "\n";
  for (size_t i = 0; i < p.steps.size(); ++i) {
    const Step& s = p.steps[i];
    const Array& value = expected.values[i];
    const Mesh where = s.op == "neg_elsewhere" ? elsewhere(s, mesh) : mesh;
    auto text_of = [&](const Lay& lay) {
      return lay.on(where, value.shape).to_string(where);
    };
    text += fmt::format("v{} = {}", i, s.op);
    if (s.op == "leaf") {
      text += fmt::format(" {}{} {}", name(value.dtype), to_string(value.shape),
                          text_of(s.lay));
      if (s.wants_grad) text += ", wants a gradient";
      if (s.keep >= 0) text += fmt::format(", as_parameter {}", s.keep);
      if (s.use.defined()) text += ", gather_on_use " + text_of(s.use);
      if (s.grad.defined()) text += ", set_grad_layout " + text_of(s.grad);
      text += fmt::format(": [{}]", fmt::join(value.v, ", "));
    } else {
      std::vector<std::string> words;
      for (size_t in : s.in) words.push_back(fmt::format("v{}", in));
      if (moves(s.op)) words.push_back(text_of(s.lay));
      const auto op = std::find_if(operators().begin(), operators().end(),
                                   [&](auto& o) { return o.name == s.op; });
      for (size_t k = 0; k < s.args.size(); ++k)
        words.push_back((k < op->args.size() ? op->args[k] + "=" : "") +
                        std::to_string(s.args[k]));
      text += fmt::format("({}): {}{}", fmt::join(words, ", "),
                          to_string(value.shape),
                          s.recomputed ? ", recomputed" : "");
    }
    text += "\n";
  }
  return text;
}

Program random_program(uint64_t seed) {
  for (Random r(seed);;) try {
      Program p = Builder(r).build();
      reference(p);
      return p;
    } catch (const Unfit&) {
    }
}

std::vector<Program> smaller(const Program& p) {
  std::vector<Program> list;
  const std::vector<bool> used = p.used();
  for (size_t i = p.steps.size(); i-- > 0;) {
    if (!used[i] && p.steps.size() > 1) list.push_back(without(p, i, i));
    for (size_t in : p.steps[i].in)
      if (used[i]) list.push_back(without(p, i, in));
  }
  const Expected expected = reference(p);
  for (size_t i = 0; i < p.steps.size(); ++i)
    if (used[i] && p.steps[i].op != "leaf") {
      Step leaf{"leaf"};
      leaf.lay.axes.assign(p.axes.size(), Lay::kWhole);
      leaf.value = expected.values[i];
      leaf.wants_grad = true;
      list.push_back(p);
      list.back().steps[i] = leaf;
    }
  // The remaining candidates change one thing in place.
  auto change = [&](auto&& fn) { fn(list.emplace_back(p)); };
  for (size_t a = 0; a < p.axes.size(); ++a) {
    if (p.axes.size() > 1)
      change([&](Program& q) {
        q.axes.erase(q.axes.begin() + static_cast<int64_t>(a));
        for (Step& s : q.steps)
          for (Lay* lay : {&s.lay, &s.use, &s.grad})
            if (lay->axes.size() == p.axes.size())
              lay->axes.erase(lay->axes.begin() + static_cast<int64_t>(a));
      });
    if (p.axes[a].size > 1) change([&](Program& q) { --q.axes[a].size; });
  }
  if (p.keeps_products) change([](Program& q) { q.keeps_products = false; });
  for (size_t i = 0; i < p.steps.size(); ++i) {
    const Step& s = p.steps[i];
    auto set = [&](auto Step::*field, auto to) {
      change([&](Program& q) { q.steps[i].*field = to; });
    };
    if (s.recomputed) set(&Step::recomputed, false);
    if (s.use.defined()) set(&Step::use, Lay{});
    if (s.grad.defined()) set(&Step::grad, Lay{});
    if (s.keep >= 0 && !s.use.defined()) set(&Step::keep, -1);
    if (s.op == "redistribute_async") set(&Step::op, "redistribute");
    auto lay = [&](auto Lay::*field, auto to) {
      change([&](Program& q) { q.steps[i].lay.*field = to; });
    };
    for (size_t a = 0; a < s.lay.axes.size(); ++a)
      if (s.lay.axes[a] != Lay::kWhole)
        change([&](Program& q) {
          q.steps[i].lay.axes[a] = Lay::kWhole;
          if (s.use.defined()) q.steps[i].use.axes[a] = Lay::kWhole;
        });
    if (s.lay.tree) lay(&Lay::tree, 0);
    if (s.lay.uneven) lay(&Lay::uneven, 0);
    if (s.lay.reversed) lay(&Lay::reversed, false);
    if (s.wants_grad && s.keep < 0 && !s.use.defined() && !s.grad.defined())
      set(&Step::wants_grad, false);
  }
  std::set<int64_t> sizes;
  for (const Step& s : p.steps)
    for (int64_t n : s.value.shape) sizes.insert(n);
  for (int64_t n : sizes)
    for (int64_t to : {int64_t{1}, n - 1})
      if (to >= 1 && to < n) list.push_back(resized(p, n, to));
  return list;
}

}  // namespace dtensor::random_programs
