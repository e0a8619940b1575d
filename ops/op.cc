// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/op.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "dtensor/dist_tensor_impl.h"
#include "dtensor/gather.h"
#include "dtensor/interrupt.h"
#include "dtensor/ops/op_node.h"
#include "dtensor/ops/op_watch.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

using Inputs = InlineVec<DistTensor, Compute::kMostInputs>;
using Outputs = InlineVec<DistTensor, Compute::kMostOutputs>;

// The lineage of the values that the call makes.
Lineage lineage_of(RankContext& ctx, const Op& op, const Attrs& attrs,
                   const Decision& d, std::span<const DistTensor> given) {
  uint64_t h = attrs.fold_into(fold_lineage(d.lineage, attrs.seed[0]), false);
  h = fold_lineage(h, attrs.seed[1]);
  for (const DistTensor& in : given)
    h = fold_lineage(h, in.impl()->lineage.hash);
  return {h, op.name(), ctx.kept_path(), ctx.ordinal};
}

// Output o of the call, with `part` as this rank's part.
DistTensor output_of(const Op& op, RankContext& ctx, const Decision& d,
                     size_t o, Tensor part) {
  if (d.here)
    DT_CHECK(part.defined() && part.shape() == d.out_local[o] &&
                 part.dtype() == d.out[o]->part_dtype(),
             op.name(),
             "computed {} for output {}, {}; let compute() write a part of "
             "shape {} and of that output's type",
             part.defined()
                 ? fmt::format("a part of shape {} and type {}",
                               to_string(part.shape()), name(part.dtype()))
                 : "no part",
             o, d.out[o]->to_string(), to_string(d.out_local[o]));
  auto impl = std::make_shared<DistTensor::Impl>();
  impl->spec = d.out[o];
  impl->run = ctx.run_id;
  impl->local = std::move(part);
  return DistTensor(std::move(impl));
}

// Gathers the parameters that are gathered on use. If checkpoint() (grad.h) has
// kept the outputs, only the gradient may read a parameter; then it is gathered
// when that happens. Returns the inputs, which `own` holds.
std::span<const DistTensor> gathered(RankContext& ctx,
                                     std::span<const DistTensor> given,
                                     bool kept, Inputs& own) {
  for (const DistTensor& in : given)
    own.push_back(kept && gathers(in) ? gathered_when_read(in, in.use_spec())
                                      : in);
  if (!kept) gather_inputs(ctx, own);
  return own;
}

// Throws Error if an input would have to be sent under ExplicitOnly, or if the
// budget (CommBudget) is too small.
void check_allowed(const Compute& c, std::span<const DistTensor> inputs) {
  const Decision& d = c.decision;
  if (!d.communicates) return;
  for (size_t i : d.moved) {
    if (!c.context.explicit_only) break;
    const Plan& p = c.context.planner.plan(inputs[i].spec(), d.in[i]);
    DT_CHECK(
        !p.communicates(), c.op.name(),
        "would have to communicate, which ExplicitOnly forbids: input {} is {} "
        "and is needed as {} ({}, {} bytes); write x.redistribute(\"{}\") "
        "before it",
        i, inputs[i].spec()->to_string(), d.in[i]->to_string(),
        name(std::find_if(p.steps.begin(), p.steps.end(),
                          [](const auto& step) { return sends(step.kind); })
                 ->kind),
        p.bytes, d.in[i]->layout().to_string(d.in[i]->mesh()));
  }
  DT_CHECK(c.context.comm_budget < 0 || d.bytes <= c.context.comm_budget,
           c.op.name(),
           "needs {} bytes of communication, but the budget has {} left; raise "
           "the budget, or redistribute the inputs outside of the CommBudget",
           d.bytes, c.context.comm_budget);
}

// Moves the inputs to the layouts of the decision. Returns them; `own` holds
// them if any input moves.
std::span<const DistTensor> moved(const Compute& c,
                                  std::span<const DistTensor> inputs,
                                  Inputs& own) {
  const Decision& d = c.decision;
  if (d.moved.empty()) return inputs;
  check_allowed(c, inputs);
  if (own.empty())
    for (const DistTensor& in : inputs) own.push_back(in);
  relayout(own, d.in, {.copies = true, .execution = &d.execution});
  return own;
}

// Computes the outputs, or takes those that were kept and restores the others
// from them.
void compute_outputs(Compute& c, std::span<const DistTensor> inputs,
                     OpCaptures* kept, Outputs& outputs) {
  const Decision& d = c.decision;
  if (kept) {
    for (const Tensor& t : kept->take()) {
      const size_t o = c.out.size();
      const bool missing = d.here && !c.op.facts().stores_output(o);
      c.out.push_back(
          missing ? Tensor::empty(d.out_local[o], d.out[o]->part_dtype()) : t);
    }
    if (d.here) c.op.restore(c);
  } else {
    for (const DistTensor& in : inputs) c.in.push_back(in.impl()->part());
    c.allocate_outputs();
    if (d.here) c.op.compute(c);
  }
  for (size_t o = 0; o < c.out.size(); ++o)
    outputs.push_back(output_of(c.op, c.context, d, o, std::move(c.out[o])));
}

// Throws Error if the bits of a call in a reproducible run would depend on the
// mesh.
void check_reproducible(const Op& op, const Decision& d) {
  for (const Spec* out : d.out)
    if (is_float(out->dtype()))
      for (const Partial& p : out->layout().partials)
        DT_CHECK(p.op == ReduceOp::kMax || p.op == ReduceOp::kMin ||
                     p.op == ReduceOp::kExactSum,
                 op.name(),
                 "gives {}, a sum whose bits depend on the mesh, because the "
                 "axis {} splits what it adds; leave --reproducible out, or do "
                 "not split features, heads, experts or the vocabulary",
                 out->to_string(), d.in[0]->mesh().axis_name(p.axis));
}

void run_op(const Op& op, std::span<const DistTensor> given, const Attrs& asked,
            const Assignment* assignment, Outputs& outputs) {
  RankContext& ctx = RankContext::current();
  check_interrupted();
  Scoped<std::string_view> running(ctx.op, op.name());
  constexpr size_t kMost = Compute::kMostInputs;
  DT_CHECK(!given.empty() && given.size() <= kMost, op.name(),
           "takes 1 to {} inputs, but got {}", kMost, given.size());
  check_defined(op.name(), given);
  OpWatch watch(ctx, op, given);

  InlineVec<OpInput, kMost> specs;
  bool record = false, gathers_some = false;
  Keep keep = Keep::kGatherOnUse;  // the greatest
  for (const DistTensor& in : given) {
    keep = std::min(keep, specs.push_back(as_input(in)).keep);
    record |= in.requires_grad();
    gathers_some |= gathers(in);
  }
  record &= ctx.grad_enabled && op.facts().differentiable;
  std::optional<Attrs> with_state;
  if (record)
    if (std::shared_ptr<void> state = op.new_state()) {
      with_state = asked;
      with_state->state = std::move(state);
    }
  const Attrs& attrs = with_state ? *with_state : asked;
  const auto d = decide(op, specs, attrs, assignment);
  if (ctx.reproducible) check_reproducible(op, *d);
  const Lineage lineage = lineage_of(ctx, op, attrs, *d, given);
  const Scoped<const Lineage*> about(ctx.about, &lineage);
  watch.decided(attrs, *d);

  OpCaptures* const kept = watch.kept();
  Inputs own, unmoved;
  std::span<const DistTensor> inputs = given, sources;
  {
    Compute c(op, attrs, *d, ctx);
    if (gathers_some) inputs = gathered(ctx, given, kept != nullptr, own);
    // The cotangents of a tensor add up where its edges lead. In a reproducible
    // run, they lead to the tensor itself: copies in several layouts would add
    // in an order that depends on the mesh.
    if (ctx.reproducible && record) {
      for (const DistTensor& in : own) unmoved.push_back(in);
      sources = unmoved.empty() ? given : unmoved;
    }
    // If the outputs were kept and no gradient reads the inputs, they are not
    // moved: graph edges to the unmoved inputs are equivalent.
    if (!kept || (record && op.facts().saved_inputs))
      inputs = moved(c, inputs, own);
    compute_outputs(c, inputs, kept, outputs);
  }

  for (size_t o = 0; o < outputs.size(); ++o) {
    outputs[o].impl()->lineage = lineage;
    outputs[o].impl()->lineage.hash = fold_lineage(lineage.hash, o);
    if (keep != Keep::kMove && op.facts().renames)
      outputs[o].impl()->keep = keep;
  }
  if (record)
    record_node(op, attrs, d, given, inputs,
                ctx.reproducible ? sources : inputs, outputs);
  if (gathers_some)
    for (const DistTensor& in : given) free_gathered(ctx, in);
  watch.ran(attrs, *d, outputs);
}

}  // namespace

BoundRule Op::bind(const std::vector<Shape>&, const Attrs&) const {
  fail(name_,
       "declares a rule, but does not implement bind(); implement it, or "
       "declare has_rule = false");
}

std::vector<Candidate> Op::candidates(std::span<const OpInput>,
                                      const Attrs&) const {
  fail(name_,
       "has neither a rule nor a list of layouts; implement candidates()");
}

std::vector<DType> Op::out_dtypes(std::span<const DType> in,
                                  const Attrs&) const {
  return {in[0]};
}

InputGradients Op::gradient(const GradientCall&) const {
  fail(name_, "has no gradient; detach() its inputs");
}

void check_defined(std::string_view op, TensorList inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    DT_CHECK(
        inputs[i].defined(), op,
        "input {} of {}, counted from 0, is an undefined tensor; assign it "
        "a value first",
        i, inputs.size());
}

std::vector<DistTensor> apply(const Op& op, TensorList inputs,
                              const Attrs& attrs,
                              const Assignment* assignment) {
  Outputs outputs;
  run_op(op, inputs, attrs, assignment, outputs);
  return {std::make_move_iterator(outputs.begin()),
          std::make_move_iterator(outputs.end())};
}

DistTensor apply1(const Op& op, TensorList inputs, const Attrs& attrs,
                  const Assignment* assignment) {
  Outputs outputs;
  run_op(op, inputs, attrs, assignment, outputs);
  return std::move(outputs[0]);
}

BoundRule RuleOp::bind(const std::vector<Shape>& shapes, const Attrs&) const {
  return BoundRule(rule_, shapes, name());
}

std::vector<DType> RuleOp::out_dtypes(std::span<const DType> in,
                                      const Attrs&) const {
  DT_CHECK(is_float(in[0]), name(),
           "takes f32, f64, bf16 or f16, but got {}; write cast(x, "
           "DType::kF32)",
           dtensor::name(in[0]));
  for (size_t i = 1; i < in.size(); ++i)
    DT_CHECK(in[i] == in[0], name(),
             "input 0 is {} and input {} is {}; cast both to one float type",
             dtensor::name(in[0]), i, dtensor::name(in[i]));
  return std::vector<DType>(rule_.outputs().size(), in[0]);
}

std::vector<Sample> RuleOp::samples() const {
  constexpr int64_t kSizes[] = {5, 3, 4, 2};
  Sample s;
  for (const Rule::Term& term : rule_.inputs()) {
    SampleInput in;
    for (const Rule::DimFactors& d : term) {
      int64_t n = 1;  // for "1" in the rule
      for (int f : d)
        n *= f == Rule::kEllipsis ? 3 : kSizes[static_cast<size_t>(f) % 4];
      in.shape.push_back(n);
    }
    s.inputs.push_back(in);
  }
  return {s};
}

}  // namespace dtensor
