// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/op.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "dtensor/dist_tensor_impl.h"
#include "dtensor/interrupt.h"
#include "dtensor/ops/call_inputs.h"
#include "dtensor/ops/op_node.h"
#include "dtensor/ops/op_watch.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

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
                 part.dtype() == d.out[o]->dtype(),
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

// Computes the outputs, or takes those that were kept and restores the others
// from them. Leaves the inputs ready for record_node().
void compute_outputs(Compute& c, CallInputs& inputs, OpCaptures* kept,
                     bool record, Outputs& outputs) {
  const Decision& d = c.decision;
  if (kept) {
    // Only the gradient may need the moved inputs. If it does not, they are not
    // moved: graph edges to the unmoved inputs are equivalent.
    if (record && c.op.facts().saved_inputs) inputs.bring(c.op, d);
    for (const Tensor& t : kept->take()) {
      const size_t o = c.out.size();
      const bool missing = d.here && !c.op.facts().stores_output(o);
      c.out.push_back(missing ? Tensor::empty(d.out_local[o], d.out[o]->dtype())
                              : t);
    }
    if (d.here) c.op.restore(c);
  } else {
    inputs.bring(c.op, d);
    for (const DistTensor& in : inputs.ready())
      c.in.push_back(in.impl()->part());
    c.allocate_outputs();
    if (d.here) c.op.compute(c);
  }
  for (size_t o = 0; o < c.out.size(); ++o)
    outputs.push_back(output_of(c.op, c.context, d, o, std::move(c.out[o])));
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
  CallInputs inputs(ctx, given, watch.kept() != nullptr);

  InlineVec<OpInput, kMost> specs;
  bool record = false;
  Keep keep = inputs.seen()[0].keep();
  for (const DistTensor& in : inputs.seen()) {
    specs.push_back({in.spec(), in.keep()});
    record |= in.requires_grad();
    keep = std::min(keep, in.keep());
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
  const Lineage lineage = lineage_of(ctx, op, attrs, *d, given);
  const Scoped<const Lineage*> about(ctx.about, &lineage);
  watch.decided(attrs, *d);

  {
    Compute c(op, attrs, *d, ctx);
    compute_outputs(c, inputs, watch.kept(), record, outputs);
  }

  for (size_t o = 0; o < outputs.size(); ++o) {
    outputs[o].impl()->lineage = lineage;
    outputs[o].impl()->lineage.hash = fold_lineage(lineage.hash, o);
    if (keep != Keep::kMove && op.facts().renames)
      outputs[o].impl()->keep = keep;
  }
  if (record) record_node(op, attrs, d, given, inputs.ready(), outputs);
  inputs.free();
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
