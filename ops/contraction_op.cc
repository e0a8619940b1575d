// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/contraction_op.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>

#include "dtensor/ops/exact.h"
#include "dtensor/ops/local_product.h"
#include "dtensor/placement/bounded_cache.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

class Contraction : public Op {
 public:
  Contraction(std::string name, Rule rule, bool exact)
      : Op(std::move(name),
           {.work = {2},
            .saved_inputs = rule.inputs().size() > 1 ? OpFacts::kAll : 0,
            .allocates = !LocalProduct::views(rule),
            .sums = OpFacts::Sums::kExact}),
        rule_(std::move(rule)),
        exact_(exact),
        only_in_output_(only_in_output(rule_)) {
    DT_CHECK(!rule_.has_groups(), this->name(),
             "{} has a group in parentheses, which a contraction cannot take; "
             "write one letter for each dimension",
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
    BoundRule bound(rule_, shapes, name(), sizes);
    if (rule_.inputs().size() == 2 && sum_granule() > 1)
      bound.sum_in_leaves(LocalProduct::leaf_factor(bound.rule()),
                          sum_granule());
    return bound;
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    return {exact_ ? DType::kExact : in[0]};
  }
  void compute(Compute& c) const override { memo(c.decision).local.run(c); }
  InputGradients gradient(const GradientCall& g) const override;
  std::vector<Sample> samples() const override;

 private:
  // Made once per decision: the local computation, and the gradient of each
  // operand.
  struct Memo : Decision::Memo {
    explicit Memo(const Rule& rule) : local(rule) {}
    LocalProduct local;
    // By whether the run is reproducible, and by operand.
    std::array<std::array<std::optional<ProductGradient>, 2>, 2> gradients;
  };
  static Memo& memo(const Decision& d) {
    if (!d.memo) d.memo = std::make_shared<Memo>(d.rule->rule());
    return static_cast<Memo&>(*d.memo);
  }

  Rule rule_;
  bool exact_;
  std::string only_in_output_;
};

InputGradients Contraction::gradient(const GradientCall& call) const {
  InputGradients grads(call.inputs.size());
  const bool leaves = has_exact_sums(call.cotangents[0].dtype());
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!call.needed[i]) continue;
    const Decision& d = *call.decision;
    std::optional<ProductGradient>& g = memo(d).gradients[leaves][i];
    if (!g) g = product_gradient(name(), *d.rule, d.assignment, i, leaves);
    DistTensor operands[2];
    for (size_t k = 0; k < grads.size(); ++k)
      operands[k] = k == i ? call.cotangents[0] : call.inputs[k];
    // If the forward pass repeated an operand along new dimensions, its
    // assignment may leave these whole, even if only a part of the copies was
    // used afterwards. The layout of the cotangent shows better how to split
    // the sum over them, so no assignment is given.
    grads[i] = apply1(*g->op, {operands, grads.size()}, g->attrs,
                      only_in_output_.empty() ? &g->assignment : nullptr);
  }
  return grads;
}

std::vector<Sample> Contraction::samples() const {
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

}  // namespace

std::string only_in_output(const Rule& rule) {
  std::string letters;
  for (size_t f = 0; f < rule.factors().size(); ++f)
    if (std::none_of(rule.inputs().begin(), rule.inputs().end(),
                     [&](const Rule::Term& t) {
                       return dim_of(t, static_cast<int>(f)) >= 0;
                     }))
      letters += rule.factors()[f].letter;
  return letters;
}

void check_types(std::string_view op, TensorList operands) {
  const DType a = operands[0].dtype();
  if (!has_arithmetic(a)) refuse_arithmetic(a);
  for (const DistTensor& x : operands) {
    const DType b = x.dtype();
    DT_CHECK(is_float(a) == is_float(b), op,
             "the operands are {} and {}; cast the one of {} to {}", name(a),
             name(b), name(is_float(a) ? b : a), name(is_float(a) ? a : b));
    DT_CHECK(a == b, op,
             "the operands are {} and {}; cast them to one type, such as {}",
             name(a), name(b), name(promote(a, b)));
  }
}

ProductGradient product_gradient(std::string_view name, const BoundRule& bound,
                                 const Assignment& forward, size_t operand,
                                 bool reproducible) {
  const Rule rule = bound.rule().gradient(static_cast<int>(operand));
  ContractionArgs args;
  for (char letter : only_in_output(rule))
    args.sizes.push_back(bound.size(bound.rule().factor(letter)));
  const bool exact = reproducible && !LocalProduct::views(rule) &&
                     (operand == 1 || rule.inputs().size() == 1);
  ProductGradient g{&contraction_op(name, rule, exact), {}, forward};
  if (!args.sizes.empty()) g.attrs = args;
  // Over axes on which this operand is partial, so is the output. The cotangent
  // is replicated over these axes, so their Assignment::passes are left out.
  std::erase_if(g.assignment.passes, [&](const Assignment::Pass& p) {
    return p.note == static_cast<int>(operand);
  });
  return g;
}

const Rule& product_rule(std::string_view text) {
  thread_local BoundedCache<std::string, Rule> known("rules of einsum",
                                                     cache_limit::kRules);
  std::string key(text);
  if (const Rule* rule = known.find(key)) return *rule;
  const Rule plain(text);
  std::string t(text.substr(0, text.find('|')));
  for (size_t i = 0; i < plain.inputs().size(); ++i)
    t += fmt::format("{}linear {}", i == 0 ? " | " : "; ", i);
  return known.insert(std::move(key), Rule(t));
}

const Op& product_op(std::string_view name, std::string_view text, bool exact) {
  thread_local std::map<std::string, const Op*, std::less<>> known;
  std::string key(name);
  key += exact ? '=' : ' ';
  key += text;
  const Op*& op = known[key];
  if (!op) op = &contraction_op(name, product_rule(text), exact);
  return *op;
}

// Operators are never freed, because decisions and graphs refer to them. There
// are only as many as the program has rules.
const Op& contraction_op(std::string_view name, const Rule& rule, bool exact) {
  std::string key(name);
  if (exact) key += '=';
  for (const Factor& f : rule.factors()) key += f.letter;  // order matters
  key += rule.to_string();
  static std::mutex mutex;
  static auto* all = new std::map<std::string, std::unique_ptr<const Op>>;
  std::lock_guard lock(mutex);
  auto& op = (*all)[key];
  if (!op) op = std::make_unique<Contraction>(std::string(name), rule, exact);
  return *op;
}

}  // namespace dtensor
