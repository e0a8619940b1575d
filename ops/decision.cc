// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/decision.h"

#include <algorithm>
#include <functional>

#include "dtensor/ops/compute.h"
#include "dtensor/ops/op.h"
#include "dtensor/placement/candidates.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/placement/shared_cache.h"

namespace dtensor {
namespace {

// A key of the cache of decisions. A Question refers to the caller's data, so
// that a look-up copies nothing; a Key is its copy that the cache stores.
struct Question {
  const Op* op;
  std::span<const OpInput> inputs;
  const Attrs& attrs;
  const Assignment* assignment;
  bool forward_only;
  uint64_t hash;
};
struct Key {
  explicit Key(const Question& q)
      : op(q.op),
        inputs(q.inputs.begin(), q.inputs.end()),
        attrs(q.attrs),
        forward_only(q.forward_only),
        hash(q.hash) {
    attrs.state.reset();  // it belongs to the call
    for (const OpInput& in : inputs) held.push_back(in.spec);
    if (q.assignment) assignment = *q.assignment;
  }
  Question question() const {
    return {op,           inputs, attrs, assignment ? &*assignment : nullptr,
            forward_only, hash};
  }
  const Op* op;
  std::vector<OpInput> inputs;
  std::vector<SpecRef> held;  // the inputs' specs
  Attrs attrs;
  std::optional<Assignment> assignment;
  bool forward_only;
  uint64_t hash;
};

const Question& as_question(const Question& q) { return q; }
Question as_question(const Key& k) { return k.question(); }

struct HashOf {
  using is_transparent = void;
  size_t operator()(const auto& k) const noexcept { return k.hash; }
};
struct Same {
  using is_transparent = void;
  bool operator()(const auto& left, const auto& right) const {
    const Question& a = as_question(left);
    const Question& b = as_question(right);
    return a.hash == b.hash && a.op == b.op &&
           a.forward_only == b.forward_only &&
           std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(),
                      b.inputs.end(),
                      [](const OpInput& x, const OpInput& y) {
                        return x.spec == y.spec && x.keep == y.keep;
                      }) &&
           a.attrs.decide_as(b.attrs) && !a.assignment == !b.assignment &&
           (!a.assignment || *a.assignment == *b.assignment);
  }
};

// The decisions of the ranks of this process.
struct CommonDecisions : RankServices::Service {
  SharedCache<Key, CommonDecision, HashOf, Same> decisions{
      "shared decisions", cache_limit::kDecisions};
};

struct OpMemory : RankServices::Service {
  BoundedCache<Key, std::shared_ptr<const Decision>, HashOf, Same> decisions{
      "decisions", cache_limit::kDecisions};
};

OpMemory& memory(RankContext& ctx) { return ctx.services.get<OpMemory>(); }

uint64_t hash_of(const Op& op, std::span<const OpInput> inputs,
                 const Attrs& attrs, const Assignment* assignment,
                 bool forward_only) {
  uint64_t h = hash_mix(1 + forward_only, reinterpret_cast<uint64_t>(&op));
  for (const OpInput& in : inputs)
    h = hash_mix(h, reinterpret_cast<uint64_t>(in.spec) +
                        static_cast<uint64_t>(in.keep));
  h = hash_mix(h, attrs.hash());
  if (assignment)
    for (const Dim& d : assignment->dims) h = hash_mix(h, d.hash());
  return h;
}

// The argument `forward_only` of choose(): an input is partial, and no gradient
// of the outputs will be taken. No graph is recorded (under NoGrad, or in a
// backward pass without create_graph), and the call is not in a function that
// checkpoint() will run again with a graph.
bool is_forward_only(const RankContext& ctx, std::span<const OpInput> inputs) {
  return !ctx.grad_enabled && !ctx.captures &&
         std::any_of(inputs.begin(), inputs.end(), [](const OpInput& in) {
           return in.spec->partial_axes() != 0;
         });
}

// Unlike hash_of(), this is equal in all processes.
uint64_t lineage_of(const Op& op, std::span<const OpInput> inputs,
                    const Attrs& attrs) {
  uint64_t h = attrs.fold_into(hash_text(op.name()), true);
  for (const OpInput& in : inputs) h = hash_mix(h, in.spec->hash());
  return attrs.like ? hash_mix(h, attrs.like->hash()) : h;
}

// Chooses the cheapest of the ways (Op::ways()) and returns its arguments. Sets
// `way` to the choice, and the specs of `inputs` to those of the chosen
// layouts. `way` must outlive `inputs`, because it owns these specs.
Attrs cheapest(std::vector<Way> ways, std::vector<OpInput>& inputs, Choice& way,
               const Op& op, Planner& planner) {
  std::vector<Candidate> layouts;
  for (Way& w : ways) layouts.push_back(std::move(w.layouts));
  size_t which = 0;
  way = choose(layouts, inputs, op.facts().work, planner, op.name(), &which);
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i].spec = way.in[i];
  return ways[which].attrs;
}

// Pins the factors that a reproducible run may not split (OpFacts::Sums).
void pin_sums(const Op& op, std::span<const DType> out, BoundRule& bound) {
  using Sums = OpFacts::Sums;
  const Sums sums = op.facts().sums;
  const Rule& rule = bound.rule();
  if (std::ranges::none_of(out, is_float)) return;
  if (sums == Sums::kExact && !std::ranges::count(out, DType::kF64)) return;
  // Products of f64 add by leaves, but the order in which a sum of one input
  // adds depends on the rank's other rows.
  const bool all = sums == Sums::kTogether ||
                   (sums == Sums::kExact && rule.inputs().size() == 1);
  // Whether an output has a factor, or the one that it is split with.
  const auto has = [&](const Rule::Term& term, int f) {
    return contains(term, f) ||
           std::ranges::any_of(rule.links(), [&](const auto& link) {
             const auto& [near, far] = link;
             return (near == f && contains(term, far)) ||
                    (far == f && contains(term, near));
           });
  };
  const auto pins = [&](int f) {
    const Factor& factor = rule.factors()[static_cast<size_t>(f)];
    if (all) return true;
    if (factor.inside) return sums != Sums::kInOrder;
    if (factor.reduction == ReduceOp::kMax ||
        factor.reduction == ReduceOp::kMin)
      return false;
    for (size_t o = 0; o < out.size(); ++o)
      if (is_float(out[o]) && !has(rule.outputs()[o], f)) return true;
    return false;
  };
  for (int f = 0; f < std::ssize(rule.factors()); ++f)
    if (pins(f)) bound.pin(f);
}

void decide_by_rule(CommonDecision& d, RankContext& ctx, const Op& op,
                    std::span<const OpInput> given, const Attrs& asked,
                    const Assignment* assignment, bool forward_only) {
  std::vector<OpInput> inputs(given.begin(), given.end());
  std::vector<Way> ways;
  Choice way;  // holds the specs of `inputs`, if there are ways
  if (!assignment) ways = op.ways(given, asked);
  const bool has_ways = !ways.empty();
  const Attrs attrs =
      has_ways ? cheapest(std::move(ways), inputs, way, op, ctx.planner)
               : asked;
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;
  for (const OpInput& in : inputs) {
    shapes.push_back(in.spec->shape());
    dtypes.push_back(in.spec->dtype());
  }
  d.rule.emplace(op.bind(shapes, attrs));
  const auto out_dtypes = op.out_dtypes(dtypes, attrs);
  if (ctx.reproducible) {
    pin_sums(op, out_dtypes, *d.rule);
    for (size_t f = 0; f < d.rule->rule().factors().size(); ++f)
      if (assignment && d.rule->rule().factors()[f].pinned &&
          !assignment->dims[f].whole())
        assignment = nullptr;
  }
  Choice& choice = d;
  if (assignment) {
    choice = price(*d.rule, inputs, out_dtypes, op.facts().work, *assignment,
                   ctx.planner);
    choice.basis = Basis::kGiven;
  }
  if (!assignment || !choice.feasible)
    choice = choose(*d.rule, inputs, out_dtypes, op.facts().work, ctx.planner,
                    op.name(), forward_only);
  if (has_ways) choice.basis = Basis::kWay;
}

// The spec with P(exact) for P(sum), if it is of floats that have exact sums.
const Spec* with_exact_sums(const Spec* s) {
  if (!is_float(s->dtype()) || s->dtype() == DType::kF64) return s;
  Layout l = s->layout();
  for (Partial& p : l.partials)
    if (p.op == ReduceOp::kSum) p.op = ReduceOp::kExactSum;
  return s->with(l);
}

CommonDecision decide_anew(RankContext& ctx, const Op& op,
                           std::span<const OpInput> inputs, const Attrs& attrs,
                           const Assignment* assignment, bool forward_only) {
  const Mesh& mesh = inputs[0].spec->mesh();
  for (const OpInput& in : inputs)
    DT_CHECK(
        in.spec->mesh() == mesh, op.name(),
        "inputs are on two meshes, {} and {}; move one to the other's mesh",
        mesh.to_string(), in.spec->mesh().to_string());
  CommonDecision d;
  d.lineage = lineage_of(op, inputs, attrs);
  if (op.facts().has_rule) {
    decide_by_rule(d, ctx, op, inputs, attrs, assignment, forward_only);
  } else {
    std::vector<DType> dtypes;
    for (const OpInput& in : inputs) dtypes.push_back(in.spec->dtype());
    op.out_dtypes(dtypes, attrs);  // only checks them
    static_cast<Choice&>(d) = choose(op.candidates(inputs, attrs), inputs,
                                     op.facts().work, ctx.planner, op.name());
  }
  if (ctx.reproducible && op.facts().sums == OpFacts::Sums::kExact)
    for (SpecRef& out : d.out) out = with_exact_sums(out);
  DT_CHECK(d.out.size() <= Compute::kMostOutputs, op.name(),
           "has {} outputs, but an operator has at most {}; write several "
           "operators",
           d.out.size(), Compute::kMostOutputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].spec == d.in[i]) continue;
    d.moved.push_back(i);
    d.moves.push_back({inputs[i].spec, d.in[i]});
  }
  if (d.moves.empty()) return d;
  const Plan& plan = d.moves.size() == 1
                         ? ctx.planner.plan(d.moves[0].from, d.moves[0].to)
                         : ctx.planner.plan(d.moves);
  d.communicates = plan.communicates();
  d.bytes = plan.bytes;
  return d;
}

// The common part of the decision, made by this rank if no other rank of the
// process has made it.
std::shared_ptr<const CommonDecision> common_part(RankContext& ctx,
                                                  const Question& q) {
  const auto anew = [&] {
    return std::make_shared<const CommonDecision>(decide_anew(
        ctx, *q.op, q.inputs, q.attrs, q.assignment, q.forward_only));
  };
  if (!ctx.common) return anew();
  auto& known = [&]() -> auto& {
    const std::lock_guard lock(ctx.common->mutex);
    return ctx.common->services.get<CommonDecisions>().decisions;
  }
  ();
  if (auto found = known.find(q)) return found;
  auto made = anew();
  known.insert(Key(q), made);
  return made;
}

}  // namespace

std::shared_ptr<const Decision> decide(const Op& op,
                                       std::span<const OpInput> inputs,
                                       const Attrs& attrs,
                                       const Assignment* assignment) {
  RankContext& ctx = RankContext::current();
  const bool forward_only = is_forward_only(ctx, inputs);
  const Question q{
      &op,          inputs,
      attrs,        assignment,
      forward_only, hash_of(op, inputs, attrs, assignment, forward_only)};
  auto& known = memory(ctx).decisions;
  if (const auto* found = known.find(q)) return *found;
  auto made = std::make_shared<Decision>();
  static_cast<CommonDecision&>(*made) = *common_part(ctx, q);
  const Coord* at = ctx.coordinate_or_null(inputs[0].spec->mesh());
  made->here = at != nullptr;
  for (const Spec* s : made->out)
    made->out_local.push_back(at ? s->local_shape(*at) : Shape());
  return known.insert(Key(q), std::move(made));
}

CacheUse decision_use(RankContext& ctx) { return memory(ctx).decisions.use(); }

}  // namespace dtensor
