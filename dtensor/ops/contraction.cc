#include "dtensor/ops/contraction.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime/redistribute.h"

namespace dtensor {
namespace {

// The sizes of the factors that only the output has, in the rule's order.
struct ContractionArgs {
  static constexpr Fields kFields = {"sizes"};
  Shape sizes;
};

// A tensor's dimensions by factor: -1 where it lacks the factor.
using Strides = std::vector<int64_t>;

Strides by_factor(const Rule::Term& term, const Tensor& t, size_t factors) {
  Strides s(factors, -1);
  for (size_t d = 0; d < term.size(); ++d)
    if (!term[d].empty())
      s[static_cast<size_t>(term[d][0])] = t.strides()[static_cast<int>(d)];
  return s;
}

// The factors that no input has, whose size has to be said.
std::vector<char> only_in_output(const Rule& rule) {
  std::vector<char> letters;
  for (size_t f = 0; f < rule.factors().size(); ++f) {
    bool in_inputs = false;
    for (const Rule::Term& t : rule.inputs())
      for (const Rule::DimFactors& d : t)
        in_inputs |= d == Rule::DimFactors{static_cast<int>(f)};
    if (!in_inputs) letters.push_back(rule.factors()[f].letter);
  }
  return letters;
}

// A loop of the product: a run of factors that all operands walk at one stride
// (0 where an operand lacks them).
struct Loop {
  int64_t size, a, b, c;
  bool in_a, in_b, in_c;
};

class Contraction : public Op {
 public:
  Contraction(std::string name, Rule rule)
      : Op(std::move(name)),
        rule_(std::move(rule)),
        only_in_output_(only_in_output(rule_)) {
    for (const auto* terms : {&rule_.inputs(), &rule_.outputs()})
      for (const Rule::Term& t : *terms)
        for (const Rule::DimFactors& d : t)
          DT_CHECK(d.size() <= 1, this->name(),
                   "{} has a group, which a contraction cannot take",
                   rule_.to_string());
    DT_CHECK(rule_.inputs().size() <= 2, this->name(),
             "{} has {} operands; contract two at a time", rule_.to_string(),
             rule_.inputs().size());
  }

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    std::vector<std::pair<char, int64_t>> sizes;
    if (const auto* args = attrs.get<ContractionArgs>())
      for (int i = 0; i < args->sizes.size(); ++i)
        sizes.push_back(
            {only_in_output_[static_cast<size_t>(i)], args->sizes[i]});
    return BoundRule(rule_, shapes, name(), sizes);
  }
  OpWork work() const override { return {2}; }

  void compute(Compute& c) const override {
    if (c.in.size() == 1)
      one_operand(c);
    else
      two_operands(c);
  }

  std::vector<DistTensor> gradient(const GradientCall& g) const override {
    std::vector<DistTensor> grads(g.inputs.size());
    const BoundRule& bound = *g.decision->rule;
    std::vector<std::pair<char, int64_t>> sizes;
    for (size_t f = 0; f < bound.rule().factors().size(); ++f)
      sizes.push_back(
          {bound.rule().factors()[f].letter, bound.size(static_cast<int>(f))});
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!g.needed[i]) continue;
      // What passes through this operand is replicated in its cotangent.
      Assignment inherited = g.decision->assignment;
      std::erase_if(inherited.passes, [&](const Assignment::Pass& p) {
        return p.note == static_cast<int>(i);
      });
      std::vector<DistTensor> operands(g.inputs.begin(), g.inputs.end());
      operands[i] = g.cotangents[0];
      grads[i] = contract(bound.rule().gradient(static_cast<int>(i)), operands,
                          sizes, &inherited, name());
    }
    return grads;
  }
  bool saves_inputs() const override { return rule_.inputs().size() > 1; }

  std::vector<Sample> samples() const override {
    Sample s;
    constexpr int64_t kSizes[] = {5, 3, 4, 2, 6};
    std::map<char, int64_t> size;
    for (size_t f = 0; f < rule_.factors().size(); ++f)
      size[rule_.factors()[f].letter] = kSizes[f % 5];
    for (const Rule::Term& t : rule_.inputs()) {
      SampleInput in;
      for (const Rule::DimFactors& d : t)
        in.shape.push_back(
            d.empty() ? 1
            : d[0] == Rule::kEllipsis
                ? 2
                : size[rule_.factors()[static_cast<size_t>(d[0])].letter]);
      s.inputs.push_back(in);
    }
    if (only_in_output_.empty()) return {s};
    ContractionArgs args;
    for (char letter : only_in_output_) args.sizes.push_back(size[letter]);
    s.attrs = args;
    return {s};
  }

 private:
  void one_operand(Compute& c) const {
    const Rule& rule = c.decision.rule->rule();
    const Rule::Term &in = rule.inputs()[0], &out = rule.outputs()[0];
    uint32_t reduced = 0;
    Rule::Term kept;  // what is left after the reduction, in input order
    for (size_t d = 0; d < in.size(); ++d) {
      bool contracted =
          !in[d].empty() &&
          rule.factors()[static_cast<size_t>(in[d][0])].contracted;
      if (contracted)
        reduced |= 1u << d;
      else
        kept.push_back(in[d]);
    }
    Tensor t = c.in[0];
    if (reduced) {
      Shape shape;
      for (size_t d = 0; d < in.size(); ++d)
        if (!(reduced >> d & 1))
          shape.push_back(t.shape()[static_cast<int>(d)]);
      Tensor sum = kept == out ? c.out[0] : c.scratch(shape, t.dtype());
      c.k.reduce(c.stream, kernels::ReduceKind::kSum, t.dtype(), t.shape(),
                 t.data(), t.strides(), reduced, sum.data());
      if (kept == out) return;
      t = sum;
    }
    Strides at = by_factor(kept, t, rule.factors().size());
    Shape strides;
    for (const Rule::DimFactors& d : out) {
      int64_t s = d.empty() ? 0 : at[static_cast<size_t>(d[0])];
      strides.push_back(std::max<int64_t>(s, 0));
    }
    c.device().copy(c.stream, size_of(t.dtype()), c.out[0].shape(),
                    c.out[0].data(), c.out[0].strides(), t.data(), strides);
  }

  void two_operands(Compute& c) const {
    const Rule& rule = c.decision.rule->rule();
    size_t n = rule.factors().size();
    const Tensor &a = c.in[0], &b = c.in[1], &out = c.out[0];
    Strides sa = by_factor(rule.inputs()[0], a, n);
    Strides sb = by_factor(rule.inputs()[1], b, n);
    Strides sc = by_factor(rule.outputs()[0], out, n);
    std::vector<int64_t> size(n, 1);
    bool only_out = false;
    for (size_t f = 0; f < n; ++f) {
      for (auto [term, t] :
           {std::pair(&rule.inputs()[0], &a), std::pair(&rule.inputs()[1], &b),
            std::pair(&rule.outputs()[0], &out)})
        for (size_t d = 0; d < term->size(); ++d)
          if ((*term)[d] == Rule::DimFactors{static_cast<int>(f)})
            size[f] = t->shape()[static_cast<int>(d)];
      only_out |= sa[f] < 0 && sb[f] < 0 && sc[f] >= 0;
    }
    // Factors that only the output has: computed once, then repeated.
    Tensor target = out;
    if (only_out) {
      Shape narrow = out.shape();
      for (size_t d = 0; d < rule.outputs()[0].size(); ++d) {
        const auto& dim = rule.outputs()[0][d];
        if (dim.empty()) continue;
        auto f = static_cast<size_t>(dim[0]);
        if (sa[f] < 0 && sb[f] < 0) narrow[static_cast<int>(d)] = 1;
      }
      target = c.scratch(narrow, out.dtype());
      sc = by_factor(rule.outputs()[0], target, n);
      for (size_t f = 0; f < n; ++f)
        if (sa[f] < 0 && sb[f] < 0) size[f] = 1;
    }
    multiply(c, rule, size, sa, sb, sc, a, b, target);
    if (only_out) {
      Shape strides = target.strides();
      for (int d = 0; d < target.ndim(); ++d)
        if (target.shape()[d] != out.shape()[d]) strides[d] = 0;
      c.device().copy(c.stream, size_of(out.dtype()), out.shape(), out.data(),
                      out.strides(), target.data(), strides);
    }
  }

  static void multiply(Compute& c, const Rule& rule,
                       const std::vector<int64_t>& size, const Strides& sa,
                       const Strides& sb, const Strides& sc, const Tensor& a,
                       const Tensor& b, const Tensor& out) {
    if (out.numel() == 0) return;
    bool empty = false;
    for (size_t f = 0; f < size.size(); ++f) empty |= size[f] == 0;
    if (empty) {
      c.device().fill(c.stream, out.dtype(), out.shape(), out.data(),
                      out.strides(), 0);
      return;
    }
    // The loops in an order in which runs can join: the output's factors as it
    // has them, then the contracted ones as the first operand has them.
    std::vector<size_t> order;
    auto visit_term = [&](const Rule::Term& t) {
      for (const Rule::DimFactors& d : t)
        if (!d.empty() && std::find(order.begin(), order.end(),
                                    static_cast<size_t>(d[0])) == order.end())
          order.push_back(static_cast<size_t>(d[0]));
    };
    visit_term(rule.outputs()[0]);
    visit_term(rule.inputs()[0]);
    visit_term(rule.inputs()[1]);
    std::vector<Loop> loops;
    for (size_t f : order) {
      if (size[f] == 1) continue;
      Loop l{size[f],
             std::max<int64_t>(sa[f], 0),
             std::max<int64_t>(sb[f], 0),
             std::max<int64_t>(sc[f], 0),
             sa[f] >= 0,
             sb[f] >= 0,
             sc[f] >= 0};
      if (!loops.empty()) {
        Loop& outer = loops.back();
        if (outer.in_a == l.in_a && outer.in_b == l.in_b &&
            outer.in_c == l.in_c && outer.a == l.a * l.size &&
            outer.b == l.b * l.size && outer.c == l.c * l.size) {
          l.size *= outer.size;
          outer = l;
          continue;
        }
      }
      loops.push_back(l);
    }
    // m, n and k are the largest loop of their kind; the others are batches.
    int m = -1, n = -1, k = -1;
    auto pick = [&](int& at, bool in_a, bool in_b, bool in_c) {
      for (size_t i = 0; i < loops.size(); ++i) {
        const Loop& l = loops[i];
        if (l.in_a == in_a && l.in_b == in_b && l.in_c == in_c &&
            (at < 0 || l.size > loops[static_cast<size_t>(at)].size))
          at = static_cast<int>(i);
      }
    };
    pick(m, true, false, true);
    pick(n, false, true, true);
    pick(k, true, true, false);
    kernels::Gemm g;
    g.m = g.n = g.k = 1;
    g.a_m = g.a_k = g.b_k = g.b_n = g.c_m = g.c_n = 1;
    std::vector<Loop> batch;
    for (size_t i = 0; i < loops.size(); ++i) {
      const Loop& l = loops[i];
      if (static_cast<int>(i) == m)
        g.m = l.size, g.a_m = l.a, g.c_m = l.c;
      else if (static_cast<int>(i) == n)
        g.n = l.size, g.b_n = l.b, g.c_n = l.c;
      else if (static_cast<int>(i) == k)
        g.k = l.size, g.a_k = l.a, g.b_k = l.b;
      else
        batch.push_back(l);
    }
    // The kernel takes four batch dimensions; further ones are looped over
    // here, those that sum into the output after the first one accumulating.
    constexpr size_t kBatches = 4;
    size_t outer = batch.size() > kBatches ? batch.size() - kBatches : 0;
    for (size_t i = outer; i < batch.size(); ++i) {
      g.batch.push_back(batch[i].size);
      g.a_batch_strides.push_back(batch[i].a);
      g.b_batch_strides.push_back(batch[i].b);
      g.c_batch_strides.push_back(batch[i].c);
    }
    std::vector<int64_t> at(outer, 0);
    int64_t item = size_of(out.dtype());
    for (;;) {
      int64_t oa = 0, ob = 0, oc = 0;
      bool again = false;
      for (size_t i = 0; i < outer; ++i) {
        oa += at[i] * batch[i].a;
        ob += at[i] * batch[i].b;
        oc += at[i] * batch[i].c;
        again |= !batch[i].in_c && at[i] > 0;
      }
      g.a = a.ptr<char>() + oa * item;
      g.b = b.ptr<char>() + ob * item;
      g.c = out.ptr<char>() + oc * item;
      g.accumulate = again;
      c.k.gemm(c.stream, out.dtype(), out.dtype(), g);
      size_t i = outer;
      while (i > 0 && ++at[i - 1] == batch[i - 1].size) at[--i] = 0;
      if (i == 0) return;
    }
  }

  Rule rule_;
  std::vector<char> only_in_output_;
};

// The rule with the notes of a sum of products: linear in each operand alone.
Rule with_notes(std::string_view text) {
  Rule plain(text);
  std::string t(text.substr(0, text.find('|')));
  for (size_t i = 0; i < plain.inputs().size(); ++i)
    t += fmt::format("{}linear {}", i == 0 ? " | " : "; ", i);
  return Rule(t);
}

// with_notes(), remembered: programs write the same few rules again and again.
const Rule& known_rule(std::string_view text) {
  thread_local std::map<std::string, Rule, std::less<>> known;
  auto it = known.find(text);
  if (it == known.end())
    it = known.emplace(std::string(text), with_notes(text)).first;
  return it->second;
}

// Operators live as long as the process; made once per name and rule.
const Op& contraction_op(std::string_view name, const Rule& rule) {
  std::string key(name);
  for (const Factor& f : rule.factors()) key += f.letter;  // their order counts
  key += rule.to_string();
  thread_local std::map<std::string, const Op*> known;
  const Op*& mine = known[key];
  if (mine) return *mine;
  static std::mutex mutex;
  static auto* all = new std::map<std::string, std::unique_ptr<const Op>>;
  std::lock_guard lock(mutex);
  auto& op = (*all)[key];
  if (!op) op = std::make_unique<Contraction>(std::string(name), rule);
  return *(mine = op.get());
}

std::string letters(int n, char first = 'a') {
  std::string t;
  for (int i = 0; i < n; ++i) t += static_cast<char>(first + i);
  return t;
}

std::pair<DistTensor, DistTensor> same_type(const DistTensor& a,
                                            const DistTensor& b) {
  DType t = promote(a.dtype(), b.dtype());
  return {cast(a, t), cast(b, t)};
}

}  // namespace

const Op& matmul_op() {
  static const Contraction op("matmul", with_notes("...mk,...kn->...mn"));
  return op;
}

std::vector<const Op*> contraction_ops() {
  auto op = [](const char* name, const char* rule) {
    return &contraction_op(name, with_notes(rule));
  };
  return {&matmul_op(),
          op("einsum", "bshd,bthd->bhst"),
          op("einsum", "ab,c->ac"),
          op("einsum", "sk,vk->sv"),
          op("sum", "abc->b"),
          op("sum", "ab->"),
          op("expand", "b->ab"),
          op("expand", "a1->ab")};
}

DistTensor contract(const Rule& rule, std::span<const DistTensor> operands,
                    const std::vector<std::pair<char, int64_t>>& sizes,
                    const Assignment* assignment, std::string_view name) {
  const Op& op = contraction_op(name, rule);
  Attrs attrs;
  if (!sizes.empty()) {
    ContractionArgs args;
    for (char f : only_in_output(rule))
      for (auto [letter, n] : sizes)
        if (letter == f) args.sizes.push_back(n);
    if (!args.sizes.empty()) attrs = args;
  }
  if (operands.size() == 2 && operands[0].dtype() != operands[1].dtype()) {
    auto [a, b] = same_type(operands[0], operands[1]);
    DistTensor both[] = {a, b};
    return apply1(op, both, attrs, assignment);
  }
  return apply1(op, operands, attrs, assignment);
}

DistTensor matmul(const DistTensor& a, const DistTensor& b) {
  DT_CHECK(a.ndim() >= 2 && b.ndim() >= 2, "matmul",
           "shapes {} and {} need at least two dimensions each",
           to_string(a.shape()), to_string(b.shape()));
  if (a.dtype() != b.dtype()) {
    auto [x, y] = same_type(a, b);
    return matmul(x, y);
  }
  DistTensor both[] = {a, b};
  return apply1(matmul_op(), both);
}

DistTensor bmm(const DistTensor& a, const DistTensor& b) {
  DT_CHECK(a.ndim() == 3 && b.ndim() == 3 && a.size(0) == b.size(0), "bmm",
           "shapes {} and {} must be [b, m, k] and [b, k, n]",
           to_string(a.shape()), to_string(b.shape()));
  return matmul(a, b);
}

DistTensor einsum(std::string_view text,
                  const std::vector<DistTensor>& operands) {
  std::string t;
  for (char c : text)
    if (c != ' ') t += c;
  const Rule& rule = known_rule(t);
  DT_CHECK(rule.inputs().size() == operands.size(), "einsum",
           "'{}' is for {} operands, but got {}", text, rule.inputs().size(),
           operands.size());
  for (const auto* terms : {&rule.inputs(), &rule.outputs()})
    for (const Rule::Term& term : *terms)
      for (size_t i = 0; i < term.size(); ++i)
        for (size_t j = 0; j < i; ++j)
          DT_CHECK(
              term[i].empty() || term[i] != term[j], "einsum",
              "'{}' has an index twice in one operand, a diagonal, which is "
              "not supported; multiply by an identity mask and sum",
              text);
  for (const Factor& f : rule.factors()) {
    bool in_inputs = false;
    for (const Rule::Term& term : rule.inputs())
      for (const Rule::DimFactors& d : term)
        in_inputs |= d == Rule::DimFactors{rule.factor(f.letter)};
    DT_CHECK(in_inputs, "einsum", "'{}' has the index '{}' in its output alone",
             text, f.letter);
  }
  if (operands.size() <= 2) return contract(rule, operands);
  // The first two, keeping every index that is used later, then the rest.
  size_t comma = t.find(',');
  comma = t.find(',', comma + 1);
  std::string first = t.substr(0, comma), rest = t.substr(comma + 1), kept;
  DT_CHECK(!rule.has_ellipsis(), "einsum",
           "'{}' has '...' and more than two operands; contract two at a time",
           text);
  for (char c : first)
    if (c != ',' && rest.find(c) != rest.npos && kept.find(c) == kept.npos)
      kept += c;
  std::vector<DistTensor> next{
      einsum(first + "->" + kept, {operands[0], operands[1]})};
  next.insert(next.end(), operands.begin() + 2, operands.end());
  return einsum(kept + "," + rest, next);
}

DistTensor sum(const DistTensor& x, std::vector<int> dims, bool keepdim) {
  if (x.dtype() == DType::kBool)
    return sum(cast(x, DType::kI64), std::move(dims), keepdim);
  std::string in = letters(x.ndim()), out;
  std::vector<bool> gone(static_cast<size_t>(x.ndim()), dims.empty());
  for (int d : dims) {
    auto at = static_cast<size_t>(normalize_dim(d, x.ndim(), "sum"));
    DT_CHECK(!gone[at], "sum", "dimension {} is named twice", d);
    gone[at] = true;
  }
  for (size_t d = 0; d < gone.size(); ++d) {
    if (!gone[d])
      out += in[d];
    else if (keepdim)
      out += '1';
  }
  return contract(known_rule(in + "->" + out), {&x, 1}, {}, nullptr, "sum");
}

DistTensor mean(const DistTensor& x, std::vector<int> dims, bool keepdim) {
  DT_CHECK(is_float(x.dtype()), "mean", "{} has no mean; cast it to f32 first",
           x.spec()->to_string());
  double n = 1;
  if (dims.empty())
    n = static_cast<double>(numel(x.shape()));
  else
    for (int d : dims) n *= static_cast<double>(x.size(d));
  // The count is known from the global shape: uneven parts need no pairs.
  return mul(sum(x, std::move(dims), keepdim), 1 / n);
}

DistTensor expand(const DistTensor& x, const Shape& shape) {
  int extra = shape.size() - x.ndim();
  DT_CHECK(extra >= 0, "expand", "shape {} has fewer dimensions than {}",
           to_string(shape), x.spec()->to_string());
  std::string out = letters(shape.size()), in;
  std::vector<std::pair<char, int64_t>> sizes;
  bool same = extra == 0;
  for (int d = 0; d < shape.size(); ++d) {
    sizes.push_back({out[static_cast<size_t>(d)], shape[d]});
    if (d < extra) continue;
    int64_t n = x.shape()[d - extra];
    DT_CHECK(
        n == shape[d] || n == 1, "expand",
        "{} cannot become {}: dimension {} is {}, and only 1 can be repeated",
        x.spec()->to_string(), to_string(shape), d - extra, n);
    same &= n == shape[d];
    in += n == shape[d] ? out[static_cast<size_t>(d)] : '1';
  }
  if (same) return alias(x);
  // The rule's factor order is that of first appearance.
  return contract(known_rule(in + "->" + out), {&x, 1}, sizes, nullptr,
                  "expand");
}

DistTensor sum_to(const DistTensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  std::string in = letters(x.ndim()), out;
  int extra = x.ndim() - shape.size();
  for (int d = extra; d < x.ndim(); ++d)
    out += shape[d - extra] == x.shape()[d] ? in[static_cast<size_t>(d)] : '1';
  return contract(known_rule(in + "->" + out), {&x, 1}, {}, nullptr, "sum");
}

}  // namespace dtensor
