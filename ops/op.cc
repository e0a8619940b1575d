#include "dtensor/ops/op.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "dtensor/gather.h"
#include "dtensor/interrupt.h"
#include "dtensor/ops/in_boxes.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/trace.h"
#include "dtensor/tracer.h"

namespace dtensor {
namespace {

using Outputs = InlineVec<DistTensor, Compute::kMostOutputs>;

// For a trace: the time at which the operator began, and its record.
int64_t begin_of(const RankContext& ctx) {
  return ctx.tracer ? ctx.tracer->now() : 0;
}
void note(Tracer& tracer, int64_t begin, const Op& op, const Decision& d,
          std::span<const DistTensor> given, int64_t ordinal) {
  InlineVec<SpecRef, Compute::kMostInputs> in;
  for (const DistTensor& t : given) in.push_back(t.spec());
  tracer.op(begin, op.name(), in, d.out, d.bytes, ordinal);
}

// Throws Error under ExplicitOnly if something has to move, and if the budget
// does not suffice. Called before anything is sent.
void check_allowed(RankContext& ctx, const Op& op, const Decision& d,
                   std::span<const DistTensor> inputs) {
  for (size_t i : d.moved) {
    if (!ctx.explicit_only) break;
    const Plan& p = ctx.planner.plan(inputs[i].spec(), d.in[i]);
    DT_CHECK(
        !p.communicates(), op.name(),
        "would have to communicate: input {} is {} and is needed as {} ({}, "
        "{} bytes); write x.redistribute(\"{}\") before it",
        i, inputs[i].spec()->to_string(), d.in[i]->to_string(),
        name(p.steps.back().kind), p.bytes,
        d.in[i]->layout().to_string(d.in[i]->mesh()));
  }
  DT_CHECK(ctx.comm_budget < 0 || d.bytes <= ctx.comm_budget, op.name(),
           "needs {} bytes of communication, but the budget has {} left; raise "
           "it, or redistribute its inputs outside of the scope",
           d.bytes, ctx.comm_budget);
}

// An operator's node in the graph: the tensors that it saved, and its gradient.
class OpNode : public Node, public std::enable_shared_from_this<OpNode> {
 public:
  OpNode(const Op& op, const Attrs& attrs,
         std::shared_ptr<const Decision> decision)
      : op_(op), attrs_(attrs), decision_(std::move(decision)) {}
  ~OpNode() override { OpNode::release(); }

  // `ins` are the inputs as they were computed on, made from `given`. For a
  // parameter that is gathered on use, the parameter itself is saved instead.
  void save(std::span<const DistTensor> given, std::span<const DistTensor> ins,
            std::span<const DistTensor> outs) {
    num_outputs = static_cast<int>(outs.size());
    if (op_.facts().saved_inputs) {
      ins_.resize(ins.size());
      for (size_t i = 0; i < ins_.size(); ++i) {
        if (!op_.facts().saves_input(i)) {
          versions_.push_back(0);
          continue;
        }
        ins_[i] = ins[i];
        if (given[i].keep() == Keep::kGatherOnUse) {
          ins_[i] = given[i];
          if (given[i].spec() != decision_->in[i]) await_gather(given[i]);
        }
        versions_.push_back(ins_[i].impl()->version());
      }
    } else {
      ins_.resize(ins.size());
    }
    // Saving the output tensors would make a cycle, since they own this node,
    // so their parts are saved. restore() can rebuild the other outputs from
    // these.
    if (op_.facts().saves_outputs)
      for (size_t o = 0; o < outs.size(); ++o) {
        const bool keep = op_.facts().stores_output(o);
        outs_.push_back(keep ? outs[o].impl()->part() : Tensor());
        versions_.push_back(keep ? outs[o].impl()->version() : 0);
      }
  }

  std::vector<DistTensor> backward(std::span<const DistTensor> cotangents,
                                   std::span<const bool> needed) override {
    DT_CHECK(!released_, op_.name(),
             "its gradient was taken before, with release_graph; compute it "
             "again, or take all gradients at once");
    check_untouched();
    std::vector<DistTensor> ins = ins_;
    for (size_t i = 0; i < ins.size(); ++i)
      if (ins[i].defined() && ins[i].spec() != decision_->in[i])
        ins[i] = gathered_when_read(ins[i], decision_->in[i]);
    std::vector<DistTensor> outs(static_cast<size_t>(num_outputs));
    for (size_t i = 0; i < outs_.size(); ++i) {
      if (!op_.facts().stores_output(i)) continue;
      outs[i] = DistTensor::wrap(outs_[i], decision_->out[i]);
      if (!is_float(outs[i].dtype())) continue;
      outs[i].impl()->node = shared_from_this();
      outs[i].impl()->output = static_cast<int>(i);
      outs[i].impl()->requires_grad = true;
    }
    return op_.gradient(
        {op_, attrs_, decision_, ins, outs, cotangents, needed});
  }
  void release() override {
    if (released_) return;
    released_ = true;
    RankContext* ctx = RankContext::current_or_null();
    for (size_t i = 0; i < ins_.size(); ++i)
      if (ins_[i].defined() && ins_[i].spec() != decision_->in[i])
        forget_gather(ctx, ins_[i]);
    ins_.clear();
    outs_.clear();
    attrs_.state.reset();
  }
  std::string_view name() const override { return op_.name(); }

 private:
  // Throws Error if a saved tensor was changed in place since.
  void check_untouched() const {
    size_t saved = 0;
    const auto check = [&](uint64_t version, const char* what, size_t i,
                           const Spec* spec) {
      DT_CHECK(
          version == versions_[saved++], op_.name(),
          "{} {}, {}, was changed in place after it was {}, and its old "
          "values are needed for the gradient; change a copy of it instead",
          what, i, spec->to_string(),
          std::string_view(what) == "input" ? "used" : "made");
    };
    if (op_.facts().saved_inputs)
      for (size_t i = 0; i < ins_.size(); ++i)
        check(ins_[i].defined() ? ins_[i].impl()->version() : 0, "input", i,
              decision_->in[i]);
    for (size_t i = 0; i < outs_.size(); ++i)
      check(outs_[i].defined() ? outs_[i].storage()->version() : 0, "output", i,
            decision_->out[i]);
  }

  const Op& op_;
  Attrs attrs_;
  std::shared_ptr<const Decision> decision_;
  std::vector<DistTensor> ins_;
  std::vector<Tensor> outs_;
  std::vector<uint64_t> versions_;  // of saved inputs, then of outputs
  bool released_ = false;
};

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
             op.name(), "computed a part of shape {} for output {}, {}",
             to_string(part.shape()), o, d.out[o]->to_string());
  auto impl = std::make_shared<DistTensor::Impl>();
  impl->spec = d.out[o];
  impl->run = ctx.run_id;
  impl->local = std::move(part);
  return DistTensor(std::move(impl));
}

void take_outputs(Compute& c, Outputs& outputs) {
  for (size_t o = 0; o < c.out.size(); ++o)
    outputs.push_back(
        output_of(c.op, c.context, c.decision, o, std::move(c.out[o])));
}

void compute_outputs(const Op& op, RankContext& ctx, const Decision& d,
                     std::span<const DistTensor> inputs, const Attrs& attrs,
                     Outputs& outputs) {
  Compute c(op, attrs, d, ctx);
  for (const DistTensor& in : inputs) c.in.push_back(in.impl()->part());
  c.allocate_outputs();
  if (d.here) op.compute(c);
  take_outputs(c, outputs);
}

// Like compute_outputs(), but reads input `which` in place: the only input that
// moves, or a parameter that gather_inputs() would gather. They return false,
// without outputs, if the input cannot be read in place.
bool compute_moved(const Op& op, RankContext& ctx, const Decision& d,
                   std::span<const DistTensor> inputs, const Attrs& attrs,
                   size_t which, Outputs& outputs) {
  Compute c(op, attrs, d, ctx);
  if (!read_moved(c, which, inputs)) return false;
  take_outputs(c, outputs);
  return true;
}
bool compute_gathered(const Op& op, RankContext& ctx, const Decision& d,
                      std::span<const DistTensor> given,
                      std::span<DistTensor> seen,
                      std::span<const DistTensor> ready, const Attrs& attrs,
                      size_t which, Outputs& outputs) {
  Compute c(op, attrs, d, ctx);
  if (!read_gathered(c, which, given, seen, ready)) return false;
  take_outputs(c, outputs);
  return true;
}

// Takes the outputs that were kept, and restores the others from them.
void restore_outputs(const Op& op, RankContext& ctx, const Decision& d,
                     const Attrs& attrs, std::span<const Tensor> kept,
                     Outputs& outputs) {
  Compute c(op, attrs, d, ctx);
  for (size_t o = 0; o < kept.size(); ++o) {
    const bool missing = d.here && !op.facts().stores_output(o);
    c.out.push_back(missing ? Tensor::empty(d.out_local[o], d.out[o]->dtype())
                            : kept[o]);
  }
  if (d.here) op.restore(c);
  for (size_t o = 0; o < kept.size(); ++o)
    outputs.push_back(output_of(op, ctx, d, o, std::move(c.out[o])));
}

void record_node(const Op& op, const Attrs& attrs,
                 std::shared_ptr<const Decision> d,
                 std::span<const DistTensor> given,
                 std::span<const DistTensor> inputs, Outputs& outputs) {
  auto node = std::make_shared<OpNode>(op, attrs, std::move(d));
  node->save(given, inputs, outputs);
  node->inputs.reserve(inputs.size());
  for (const DistTensor& in : inputs) node->inputs.push_back(edge_to(in));
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!is_float(outputs[o].dtype())) continue;
    outputs[o].impl()->node = node;
    outputs[o].impl()->output = static_cast<int>(o);
    outputs[o].impl()->requires_grad = true;
  }
}

void run_op(const Op& op, std::span<const DistTensor> given, const Attrs& asked,
            const Assignment* assignment, Outputs& outputs) {
  RankContext& ctx = RankContext::current();
  check_interrupted();
  const int64_t begin = begin_of(ctx);
  Scoped<std::string_view> running(ctx.op, op.name());
  constexpr size_t kMost = Compute::kMostInputs;
  DT_CHECK(!given.empty() && given.size() <= kMost, op.name(),
           "takes 1 to {} inputs, but got {}", kMost, given.size());
  check_defined(op.name(), given);
  OpCaptures* const captures = captures_of(ctx);
  if (captures)
    for (const DistTensor& in : given) captures->used(in);
  const bool known = captures && captures->has(op);  // its outputs were kept
  InlineVec<DistTensor, kMost> seen;
  std::span<const DistTensor> inputs = given;
  const bool gathered = std::any_of(given.begin(), given.end(), gathers);
  if (gathered) {
    seen.resize(given.size());
    if (known)
      for (size_t i = 0; i < given.size(); ++i)
        seen[i] = gathers(given[i])
                      ? gathered_when_read(given[i], given[i].use_spec())
                      : given[i];
    else
      see_inputs(given, seen);
    inputs = seen;
  }
  InlineVec<OpInput, kMost> specs;
  bool record = false;
  Keep keep = inputs[0].keep();
  for (const DistTensor& in : inputs) {
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

  std::optional<size_t> which;
  if (!known && (gathered || d->communicates))
    which = to_read(op, *d, record, given);
  const bool gather_first = gathered && !known && !which;
  if (gather_first) gather_inputs(ctx, given, seen);
  InlineVec<DistTensor, kMost> moved;
  std::span<const DistTensor> ready = inputs;
  bool done = false;
  // If the outputs are known, only the gradient may need the inputs. Otherwise
  // they need not be moved: edges to unmoved inputs are equivalent.
  if (!d->moved.empty() && (!known || (record && op.facts().saved_inputs))) {
    if (d->communicates && (ctx.explicit_only || ctx.comm_budget >= 0))
      check_allowed(ctx, op, *d, inputs);
    if (which && !gathers(given[*which]))
      done = compute_moved(op, ctx, *d, inputs, attrs, *which, outputs);
    if (!done) {
      moved.resize(inputs.size());
      relayout(ctx, inputs, d->in, d->execution, moved);
      ready = moved;
    }
  }
  if (which && gathers(given[*which]))
    done = compute_gathered(op, ctx, *d, given, seen, ready, attrs, *which,
                            outputs);
  if (known)
    restore_outputs(op, ctx, *d, attrs, captures->take(op, attrs, *d), outputs);
  else if (!done)
    compute_outputs(op, ctx, *d, ready, attrs, outputs);
  for (size_t o = 0; o < outputs.size(); ++o) {
    outputs[o].impl()->lineage = lineage;
    outputs[o].impl()->lineage.hash = fold_lineage(lineage.hash, o);
  }
  if (keep != Keep::kMove && op.facts().renames)
    for (DistTensor& out : outputs) out.impl()->keep = keep;
  if (captures) captures->ran(op, attrs, *d, outputs);
  if (record) record_node(op, attrs, d, given, ready, outputs);
  if (gathered)
    for (const DistTensor& in : given) free_gathered(ctx, in);
  const int64_t ordinal = ctx.ordinal++;
  if (const auto& trace = op_trace(ctx); trace && !known)
    trace({op, attrs, *d, given, outputs, ctx.path, ordinal});
  if (ctx.tracer) [[unlikely]]
    note(*ctx.tracer, begin, op, *d, given, ordinal);
}

}  // namespace

BoundRule Op::bind(const std::vector<Shape>&, const Attrs&) const {
  fail(name_, "has no rule");
}

std::vector<Candidate> Op::candidates(std::span<const OpInput>,
                                      const Attrs&) const {
  fail(name_, "has neither a rule nor a list of layouts");
}

std::vector<DType> Op::out_dtypes(std::span<const DType> in,
                                  const Attrs&) const {
  return {in[0]};
}

std::vector<DistTensor> Op::gradient(const GradientCall&) const {
  fail(name_, "has no gradient; detach() its inputs");
}

void check_defined(std::string_view op, std::span<const DistTensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    DT_CHECK(inputs[i].defined(), op,
             "input {} of {} is an undefined tensor; assign it a value first",
             i, inputs.size());
}

std::vector<DistTensor> apply(const Op& op, std::span<const DistTensor> inputs,
                              const Attrs& attrs,
                              const Assignment* assignment) {
  Outputs outputs;
  run_op(op, inputs, attrs, assignment, outputs);
  return {std::make_move_iterator(outputs.begin()),
          std::make_move_iterator(outputs.end())};
}

DistTensor apply1(const Op& op, std::span<const DistTensor> inputs,
                  const Attrs& attrs, const Assignment* assignment) {
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
             "input 0 is {} and input {} is {}; cast one to the other's type",
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
