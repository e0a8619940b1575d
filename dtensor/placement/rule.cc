#include "dtensor/placement/rule.h"

#include <algorithm>
#include <cctype>

#include "dtensor/placement/dims.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {
constexpr int kNumKinds = 6;
constexpr std::string_view kKinds[kNumKinds] = {"linear", "affine", "up",
                                                "down",   "max",    "min"};
}  // namespace

// Reads the grammar in rule.h.
class RuleParser {
 public:
  explicit RuleParser(std::string_view text) : text_(text) {}

  Rule parse() {
    size_t bar = text_.find('|');
    std::string_view body = text_.substr(0, bar);
    size_t arrow = body.find("->");
    if (arrow == body.npos) bad("has no '->'");
    terms(body.substr(0, arrow), rule_.in_);
    terms(body.substr(arrow + 2), rule_.out_);
    for (size_t f = 0; f < rule_.factors_.size(); ++f)
      rule_.factors_[f].contracted = !in_outputs(static_cast<int>(f));
    if (bar != text_.npos) notes(text_.substr(bar + 1));
    return std::move(rule_);
  }

 private:
  [[noreturn]] void bad(std::string_view what) {
    fail("rule", "'{}' {}; see the grammar in placement/rule.h", text_, what);
  }

  bool in_outputs(int f) const {
    for (const Rule::Term& t : rule_.out_)
      for (const Rule::DimFactors& d : t)
        if (std::find(d.begin(), d.end(), f) != d.end()) return true;
    return false;
  }

  int factor(char c) {
    if (!std::isalpha(static_cast<unsigned char>(c)))
      bad(fmt::format("has '{}' where a letter belongs", c));
    int f = rule_.factor(c);
    if (f >= 0) return f;
    rule_.factors_.push_back({c});
    return static_cast<int>(rule_.factors_.size()) - 1;
  }

  void terms(std::string_view s, std::vector<Rule::Term>& out) {
    for (;;) {
      size_t comma = s.find(',');
      out.push_back(term(s.substr(0, comma)));
      if (comma == s.npos) return;
      s.remove_prefix(comma + 1);
    }
  }

  Rule::Term term(std::string_view s) {
    Rule::Term t;
    seen_.clear();
    for (size_t i = 0; i < s.size(); ++i) {
      if (s[i] == ' ') continue;
      if (s[i] == '.') {
        if (s.substr(i, 3) != "...") bad("has a '.' that is not '...'");
        once(Rule::kEllipsis, "'...'");
        t.push_back({Rule::kEllipsis});
        i += 2;
      } else if (s[i] == '1') {
        t.push_back({});
      } else if (s[i] == '(') {
        t.push_back({});
        for (++i; i < s.size() && s[i] != ')'; ++i)
          if (s[i] != ' ') t.back().push_back(marked(s, i));
        if (i == s.size()) bad("has a '(' without ')'");
      } else {
        t.push_back({marked(s, i)});
      }
    }
    return t;
  }

  int marked(std::string_view s, size_t& i) {
    int f = factor(s[i]);
    once(f, fmt::format("'{}'", s[i]));
    constexpr std::string_view kMarks = "!~^";
    if (i + 1 < s.size() && kMarks.find(s[i + 1]) != kMarks.npos) {
      ++i;
      Factor& mark = rule_.factors_[static_cast<size_t>(f)];
      (s[i] == '!'   ? mark.pinned
       : s[i] == '~' ? mark.inside
                     : mark.one_range) = true;
      if (mark.pinned && mark.inside)
        bad(fmt::format("marks '{}' with both '!' and '~'", s[i - 1]));
    }
    return f;
  }

  void once(int f, std::string_view what) {
    if (std::find(seen_.begin(), seen_.end(), f) != seen_.end())
      bad(fmt::format("has {} twice in one term", what));
    seen_.push_back(f);
  }

  // A letter that some term has.
  int known(char c) {
    int f = rule_.factor(c);
    if (f < 0) bad(fmt::format("has no factor '{}' that a note names", c));
    return f;
  }

  void notes(std::string_view s) {
    for (;;) {
      size_t end = s.find(';');
      note(s.substr(0, end));
      if (end == s.npos) return;
      s.remove_prefix(end + 1);
    }
  }

  void note(std::string_view s) {
    while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
    while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
    if (s.size() > 2 && s[1] == ':') {
      for (int k = 0; k <= static_cast<int>(ReduceOp::kMean); ++k)
        if (name(static_cast<ReduceOp>(k)) == s.substr(2)) {
          rule_.factors_[static_cast<size_t>(known(s[0]))].reduction =
              static_cast<ReduceOp>(k);
          return;
        }
      bad(fmt::format("names no reduction in '{}'", s));
    }
    size_t space = s.find(' ');
    if (space == s.npos) bad(fmt::format("has the unknown note '{}'", s));
    std::string_view word = s.substr(0, space), rest = s.substr(space + 1);
    if (word == "link") {
      if (rest.size() != 3 || rest[1] != ' ')
        bad("links other than two letters");
      rule_.links_.push_back({known(rest[0]), known(rest[2])});
      return;
    }
    for (int k = 0; k < kNumKinds; ++k) {
      if (kKinds[k] != word) continue;
      PartialNote n{static_cast<Linearity>(k), {}};
      for (char c : rest) {
        if (c == ',') continue;
        if (c < '0' || c >= '0' + static_cast<int>(rule_.in_.size()))
          bad(fmt::format("has no input '{}'", c));
        n.inputs.push_back(c - '0');
      }
      if (n.inputs.empty()) bad(fmt::format("names no input in '{}'", s));
      rule_.notes_.push_back(std::move(n));
      return;
    }
    bad(fmt::format("has the unknown note '{}'", s));
  }

  std::string_view text_;
  Rule rule_;
  std::vector<int> seen_;  // factors of the term being read
};

std::optional<ReduceOp> PartialNote::pass(ReduceOp op) const {
  switch (kind) {
    case Linearity::kLinear:
      if (op == ReduceOp::kSum || op == ReduceOp::kAvg) return op;
      break;
    case Linearity::kAffine:
      if (op == ReduceOp::kAvg) return op;
      break;
    case Linearity::kUp:
      if (op == ReduceOp::kMax || op == ReduceOp::kMin) return op;
      break;
    case Linearity::kDown:
      if (op == ReduceOp::kMax) return ReduceOp::kMin;
      if (op == ReduceOp::kMin) return ReduceOp::kMax;
      break;
    case Linearity::kMax:
      if (op == ReduceOp::kMax) return op;
      break;
    case Linearity::kMin:
      if (op == ReduceOp::kMin) return op;
      break;
  }
  return std::nullopt;
}

Rule::Rule(std::string_view text) { *this = RuleParser(text).parse(); }

int Rule::factor(char letter) const {
  for (size_t i = 0; i < factors_.size(); ++i)
    if (factors_[i].letter == letter) return static_cast<int>(i);
  return -1;
}

bool Rule::has_ellipsis() const {
  for (const auto* terms : {&in_, &out_})
    for (const Term& t : *terms)
      for (const DimFactors& d : t)
        if (d == DimFactors{kEllipsis}) return true;
  return false;
}

Rule Rule::expand(const std::vector<Shape>& shapes, std::string_view op) const {
  if (!has_ellipsis()) return *this;
  DT_CHECK(shapes.size() == in_.size(), op, "takes {} inputs, but got {}",
           in_.size(), shapes.size());
  const DimFactors dots{kEllipsis};
  // The broadcast shape of the batch dimensions.
  Shape batch;
  std::vector<Shape> own(in_.size());
  for (size_t i = 0; i < in_.size(); ++i) {
    auto at = std::find(in_[i].begin(), in_[i].end(), dots);
    if (at == in_[i].end()) continue;
    int fixed = static_cast<int>(in_[i].size()) - 1;
    int extra = shapes[i].size() - fixed;
    DT_CHECK(extra >= 0, op,
             "input {} of shape {} has {} dimensions; at least {} are needed",
             i, dtensor::to_string(shapes[i]), shapes[i].size(), fixed);
    int start = static_cast<int>(at - in_[i].begin());
    for (int d = 0; d < extra; ++d) own[i].push_back(shapes[i][start + d]);
    batch = broadcast_shapes(batch, own[i], op);
  }
  Rule r = *this;
  std::vector<int> letters;
  for (int d = 0; d < batch.size(); ++d) {
    // The last batch dimension is Z, the one before it Y: the same letter in
    // a gradient whose inputs have other ranks.
    char c = static_cast<char>('Z' - (batch.size() - 1 - d));
    DT_CHECK(factor(c) < 0, op, "the rule {} already has the letter {}",
             to_string(), c);
    r.factors_.push_back({c});
    letters.push_back(static_cast<int>(r.factors_.size()) - 1);
  }
  auto replace = [&](Term& t, const Shape* own_shape) {
    auto at = std::find(t.begin(), t.end(), dots);
    if (at == t.end()) return;
    Term dims;
    int n = own_shape ? own_shape->size() : batch.size();
    for (int d = 0; d < n; ++d) {
      int b = batch.size() - n + d;
      bool one = own_shape && (*own_shape)[d] == 1 && batch[b] != 1;
      dims.push_back(one ? DimFactors{}
                         : DimFactors{letters[static_cast<size_t>(b)]});
    }
    at = t.erase(at);
    t.insert(at, dims.begin(), dims.end());
  };
  bool out_has = false;
  for (size_t i = 0; i < in_.size(); ++i) replace(r.in_[i], &own[i]);
  for (Term& t : r.out_) {
    out_has |= std::find(t.begin(), t.end(), dots) != t.end();
    replace(t, nullptr);
  }
  if (!out_has)
    for (int f : letters) r.factors_[static_cast<size_t>(f)].contracted = true;
  return r;
}

Rule Rule::gradient(int i) const {
  DT_CHECK(out_.size() == 1, "rule",
           "{} has several outputs, and so no gradient", to_string());
  Rule r = *this;
  std::swap(r.in_[static_cast<size_t>(i)], r.out_[0]);
  r.notes_.clear();
  for (size_t k = 0; k < in_.size(); ++k)
    r.notes_.push_back({Linearity::kLinear, {static_cast<int>(k)}});
  for (size_t f = 0; f < factors_.size(); ++f) {
    bool kept = false;
    for (const DimFactors& d : r.out_[0])
      kept |= std::find(d.begin(), d.end(), static_cast<int>(f)) != d.end();
    r.factors_[f].contracted = !kept;
  }
  return r;
}

std::string Rule::to_string() const {
  std::string marked;  // a mark is written once, where its factor comes first
  auto factor_text = [&](int f) {
    const Factor& x = factors_[static_cast<size_t>(f)];
    std::string t(1, x.letter);
    if (marked.find(x.letter) == marked.npos) {
      marked += x.letter;
      if (x.pinned) t += '!';
      if (x.inside) t += '~';
      if (x.one_range) t += '^';
    }
    return t;
  };
  auto terms_text = [&](const std::vector<Term>& terms) {
    std::string t;
    for (size_t i = 0; i < terms.size(); ++i) {
      if (i) t += ',';
      for (const DimFactors& d : terms[i]) {
        if (d.empty()) {
          t += '1';
        } else if (d[0] == kEllipsis) {
          t += "...";
        } else if (d.size() == 1) {
          t += factor_text(d[0]);
        } else {
          t += '(';
          for (int f : d) t += factor_text(f);
          t += ')';
        }
      }
    }
    return t;
  };
  std::string body = terms_text(in_);
  body += "->" + terms_text(out_);
  std::string notes;
  auto add = [&](const std::string& n) {
    notes += (notes.empty() ? " | " : "; ") + n;
  };
  for (const PartialNote& n : notes_) {
    std::string t(kKinds[static_cast<int>(n.kind)]);
    t += ' ';
    for (size_t i = 0; i < n.inputs.size(); ++i)
      t += (i ? "," : "") + std::to_string(n.inputs[i]);
    add(t);
  }
  for (const Factor& f : factors_)
    if (f.reduction != ReduceOp::kSum)
      add(std::string(1, f.letter) + ":" + std::string(name(f.reduction)));
  for (auto [h, g] : links_)
    add(fmt::format("link {} {}", factors_[static_cast<size_t>(h)].letter,
                    factors_[static_cast<size_t>(g)].letter));
  return body + notes;
}

BoundRule::BoundRule(const Rule& rule, const std::vector<Shape>& shapes,
                     std::string_view op,
                     const std::vector<std::pair<char, int64_t>>& extra)
    : rule_(rule.expand(shapes, op)), sizes_(rule_.factors().size(), -1) {
  const auto& in = rule_.inputs();
  DT_CHECK(shapes.size() == in.size(), op, "takes {} inputs, but got {}",
           in.size(), shapes.size());
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
        "shapes {} do not fit the rule {}: input {} has {} dimensions, not "
        "{}",
        all(), rule_.to_string(), i, shapes[i].size(), in[i].size());
    for (size_t d = 0; d < in[i].size(); ++d) {
      int64_t n = shapes[i][static_cast<int>(d)];
      if (in[i][d].empty()) {
        DT_CHECK(n == 1, op,
                 "shapes {} do not fit the rule {}: dimension {} of "
                 "input {} is {}, not 1",
                 all(), rule_.to_string(), d, i, n);
        continue;
      }
      if (in[i][d].size() != 1) continue;
      int64_t& known = sizes_[static_cast<size_t>(in[i][d][0])];
      DT_CHECK(
          known < 0 || known == n, op,
          "shapes {} do not fit together: '{}' of the rule {} is both {} and "
          "{}",
          all(), rule_.factors()[static_cast<size_t>(in[i][d][0])].letter,
          rule_.to_string(), known, n);
      known = n;
    }
  }
  // Groups: the one unknown factor takes what the known ones leave.
  for (size_t i = 0; i < in.size(); ++i)
    for (size_t d = 0; d < in[i].size(); ++d) {
      if (in[i][d].size() < 2) continue;
      int64_t n = shapes[i][static_cast<int>(d)], rest = 1;
      int unknown = -1;
      for (int f : in[i][d]) {
        if (sizes_[static_cast<size_t>(f)] < 0)
          unknown = f;
        else
          rest *= sizes_[static_cast<size_t>(f)];
      }
      if (unknown >= 0 && rest > 0) {
        sizes_[static_cast<size_t>(unknown)] = n / rest;
        rest *= n / rest;
      }
      DT_CHECK(rest == n, op,
               "dimension {} of input {} is {}, which the factors "
               "of the rule {} do not divide",
               d, i, n, rule_.to_string());
    }
  for (size_t f = 0; f < sizes_.size(); ++f)
    DT_CHECK(sizes_[f] >= 0, op, "the size of '{}' in the rule {} is unknown",
             rule_.factors()[f].letter, rule_.to_string());
  for (size_t i = 0; i < rule_.outputs().size(); ++i)
    numel(output_shape(static_cast<int>(i)));
}

Shape BoundRule::shape_of(const Rule::Term& t) const {
  Shape s;
  for (const auto& d : t) {
    int64_t n = 1;
    for (int f : d) n *= size(f);
    s.push_back(n);
  }
  return s;
}

namespace {

// Every value of the link's first factor meets one of the second's.
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
  for (const auto& d : t) {
    std::vector<Dim> parts;
    for (int f : d) parts.push_back(a.dims[static_cast<size_t>(f)]);
    l.dims.push_back(parts.size() == 1
                         ? std::move(parts[0])
                         : Dim::product(std::move(parts)).canonical(mesh));
  }
  return l;
}

namespace {

bool has_factor(const Rule::Term& t, size_t factor) {
  for (const Rule::DimFactors& d : t)
    if (std::find(d.begin(), d.end(), static_cast<int>(factor)) != d.end())
      return true;
  return false;
}

}  // namespace

Assignment BoundRule::legal(Assignment a, const Mesh& mesh) const {
  for (size_t f = 0; f < a.dims.size(); ++f) {
    Dim& d = a.dims[f];
    if (d.kind() == Dim::Kind::kLeaf) continue;
    const Factor& x = rule_.factors()[f];
    bool combined = x.inside;
    for (const Rule::Term& t : rule_.outputs()) combined |= !has_factor(t, f);
    if (x.one_range)
      d = balanced(d.size(), d.axes());
    else if (combined)
      d = partitioned(d, mesh);
  }
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
    // A factor that this output lacks though another output has it leaves this
    // one partial too.
    if (x.inside || has_factor(rule_.outputs()[static_cast<size_t>(i)], f))
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

double BoundRule::largest_share(const Assignment& a, const Mesh& mesh) const {
  double share = 1;
  for (size_t f = 0; f < sizes_.size(); ++f)
    if (!a.dims[f].whole() && sizes_[f] > 0 && !is_linked(rule_, f))
      share *= static_cast<double>(a.dims[f].largest(mesh)) /
               static_cast<double>(sizes_[f]);
  return share;
}

std::vector<std::vector<int>> BoundRule::choices() const {
  std::vector<std::vector<int>> all;
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

std::string strategies(const Rule& rule) {
  Mesh mesh({{"x", 2}});
  std::vector<Shape> shapes;
  std::vector<std::pair<char, int64_t>> sizes;
  for (const Factor& f : rule.factors()) sizes.push_back({f.letter, 4});
  for (const Rule::Term& t : rule.inputs()) {
    Shape s;
    for (const auto& d : t) {
      int64_t n = 1;
      for (size_t k = 0; k < d.size(); ++k) n *= 4;
      s.push_back(n);
    }
    shapes.push_back(s);
  }
  BoundRule bound(rule, shapes, "rule", sizes);
  std::string text;
  auto line = [&](std::string_view label, const Assignment& a) {
    text += label;
    for (size_t i = 0; i < rule.inputs().size(); ++i)
      text += (i ? "," : "") +
              bound.input_layout(a, mesh, static_cast<int>(i)).to_string(mesh);
    text += "->";
    for (size_t i = 0; i < rule.outputs().size(); ++i)
      text += (i ? "," : "") +
              bound.output_layout(a, mesh, static_cast<int>(i)).to_string(mesh);
    text += "\n";
  };
  Assignment none{std::vector<Dim>(rule.factors().size(), Dim(4)), {}};
  line("", none);
  for (const auto& factors : bound.choices()) {
    Assignment a = none;
    std::string label;
    for (int f : factors) {
      a.dims[static_cast<size_t>(f)] = Dim(4, Split::over({0}));
      label += rule.factors()[static_cast<size_t>(f)].letter;
    }
    line(label + ": ", a);
  }
  for (size_t n = 0; n < rule.notes().size(); ++n)
    for (ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}) {
      if (!rule.notes()[n].pass(op)) continue;
      Assignment a = none;
      a.passes.push_back({0, static_cast<int>(n), op});
      line("", a);
    }
  return text;
}

}  // namespace dtensor
