#include "dtensor/ops/op.h"

#include <algorithm>
#include <unordered_map>

#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/runtime/local_part.h"
#include "dtensor/runtime/redistribute.h"

namespace dtensor {
namespace {

uint64_t hash_pointer(uint64_t h, const void* p) {
  return hash_mix(h, reinterpret_cast<uint64_t>(p));
}

// The decisions that this rank has taken, by op, inputs and attributes.
struct OpMemory : RankContext::Memory {
  struct Entry {
    const Op* op;
    std::vector<const Spec*> specs;
    uint64_t keep;  // two bits for each input
    Attrs attrs;
    std::optional<Assignment> assignment;
    std::shared_ptr<const Decision> decision;
  };
  std::unordered_multimap<uint64_t, Entry> entries;
};

OpMemory& memory(RankContext& ctx) {
  if (!ctx.op_memory) ctx.op_memory = std::make_unique<OpMemory>();
  return static_cast<OpMemory&>(*ctx.op_memory);
}

Decision decide_anew(RankContext& ctx, const Op& op,
                     std::span<const OpInput> inputs, const Attrs& attrs,
                     const Assignment* assignment) {
  const Mesh& mesh = inputs[0].spec->mesh();
  for (const OpInput& in : inputs)
    DT_CHECK(
        in.spec->mesh() == mesh, op.name(),
        "inputs are on two meshes, {} and {}; move one to the other's mesh",
        mesh.to_string(), in.spec->mesh().to_string());
  Decision d;
  if (auto own = op.decide(inputs, attrs)) {
    d = std::move(*own);
  } else {
    std::vector<Shape> shapes;
    std::vector<DType> dtypes;
    for (const OpInput& in : inputs) {
      shapes.push_back(in.spec->shape());
      dtypes.push_back(in.spec->dtype());
    }
    d.rule.emplace(op.bind(shapes, attrs));
    auto out_dtypes = op.out_dtypes(dtypes, attrs);
    d.choice = assignment ? price(*d.rule, inputs, out_dtypes, op.work(),
                                  *assignment, ctx.planner)
                          : choose(*d.rule, inputs, out_dtypes, op.work(),
                                   ctx.planner, op.name());
    d.assignment = d.choice.assignment;
    d.in = d.choice.in;
    d.out = d.choice.out;
  }
  const Coord* at = ctx.coordinate_or_null(mesh);
  d.here = at != nullptr;
  for (const Spec* s : d.out)
    d.out_local.push_back(at ? s->local_shape(*at) : Shape());
  for (size_t i = 0; i < inputs.size(); ++i)
    d.communicates |= ctx.planner.plan(inputs[i].spec, d.in[i]).communicates();
  return d;
}

// Throws under explicit_only, and when the budget does not suffice, before
// anything is sent.
void check_allowed(RankContext& ctx, const Op& op, const Decision& d,
                   std::span<const DistTensor> inputs) {
  int64_t bytes = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Plan& p = ctx.planner.plan(inputs[i].spec(), d.in[i]);
    if (!p.communicates()) continue;
    bytes += p.bytes;
    DT_CHECK(
        !ctx.explicit_only, op.name(),
        "would have to communicate: input {} is {} and is needed as {} ({}, "
        "{} bytes); write x.redistribute(\"{}\") ahead of it",
        i, inputs[i].spec()->to_string(), d.in[i]->to_string(),
        name(p.steps.back().kind), p.bytes,
        d.in[i]->layout().to_string(d.in[i]->mesh()));
  }
  DT_CHECK(ctx.comm_budget < 0 || bytes <= ctx.comm_budget, op.name(),
           "needs {} bytes of communication, but the budget has {} left; raise "
           "it, or redistribute its inputs outside of the scope",
           bytes, ctx.comm_budget);
}

// An operator's place in the graph: what it saved, and its gradient.
class OpNode : public Node, public std::enable_shared_from_this<OpNode> {
 public:
  OpNode(const Op& op, const Attrs& attrs,
         std::shared_ptr<const Decision> decision)
      : op_(op), attrs_(attrs), decision_(std::move(decision)) {}

  void save(std::span<const DistTensor> ins, std::span<const DistTensor> outs) {
    num_outputs = static_cast<int>(outs.size());
    if (op_.saves_inputs()) {
      ins_.assign(ins.begin(), ins.end());
      for (const DistTensor& t : ins_) versions_.push_back(t.impl()->version());
    } else {
      ins_.resize(ins.size());
    }
    // Not the tensors themselves: they own this node.
    if (op_.saves_outputs())
      for (const DistTensor& t : outs) outs_.push_back(t.impl()->part());
  }

  std::vector<DistTensor> backward(std::span<const DistTensor> cotangents,
                                   std::span<const bool> needed) override {
    for (size_t i = 0; i < versions_.size(); ++i)
      DT_CHECK(
          ins_[i].impl()->version() == versions_[i], op_.name(),
          "input {}, {}, was changed in place after it was used, and its old "
          "values are needed for the gradient; change a copy of it instead",
          i, ins_[i].spec()->to_string());
    std::vector<DistTensor> outs(static_cast<size_t>(num_outputs));
    for (size_t i = 0; i < outs_.size(); ++i) {
      outs[i] = DistTensor::wrap(outs_[i], decision_->out[i]);
      if (!is_float(outs[i].dtype())) continue;
      outs[i].impl()->node = shared_from_this();
      outs[i].impl()->output = static_cast<int>(i);
      outs[i].impl()->requires_grad = true;
    }
    return op_.gradient(
        {op_, attrs_, decision_, ins_, outs, cotangents, needed});
  }
  std::string_view name() const override { return op_.name(); }

 private:
  const Op& op_;
  Attrs attrs_;
  std::shared_ptr<const Decision> decision_;
  std::vector<DistTensor> ins_;
  std::vector<uint64_t> versions_;
  std::vector<Tensor> outs_;
};

}  // namespace

std::vector<DType> Op::out_dtypes(std::span<const DType> in,
                                  const Attrs&) const {
  return {in[0]};
}

std::vector<DistTensor> Op::gradient(const GradientCall&) const {
  fail(name_, "has no gradient; detach() its inputs");
}

// A collective inside an operator is one that it would have to make.
static void check_inside(RankContext& ctx, const Op& op, int64_t bytes,
                         const Decision& d) {
  DT_CHECK(!ctx.explicit_only, op.name(),
           "would have to communicate: its input {} is split along a dimension "
           "that it works along ({} bytes inside); write x.redistribute() "
           "ahead of it, so that this dimension is whole",
           d.in[0]->to_string(), bytes);
  if (ctx.comm_budget >= 0)
    spend_budget(ctx, bytes, "a collective inside " + op.name());
}

static std::vector<Region> of_group(const Compute& c, AxisMask axes,
                                    const Compute::RegionOf& region) {
  std::vector<Region> regions;
  for (int64_t r : c.mesh().group(axes, c.coord()))
    regions.push_back(region(c.mesh().coordinate(r)));
  return regions;
}

// What the members of an all-reduce inside an operator disagree about.
struct Reduced {
  const Op& op;
  const Tensor& tensor;
  ReduceOp how;
  static std::string describe(const void* what) {
    const Reduced& r = *static_cast<const Reduced*>(what);
    return fmt::format("{}{} by {} inside {}", name(r.tensor.dtype()),
                       to_string(r.tensor.shape()), name(r.how), r.op.name());
  }
};
// What an exchange inside one is about: an Op.
static std::string describe_boxes(const void* op) {
  return "boxes for " + static_cast<const Op*>(op)->name();
}
static std::string describe_sum(const void* op) {
  return "sum of boxes for " + static_cast<const Op*>(op)->name();
}

AxisMask Compute::axes_of(char factor) const {
  int f = decision.rule->rule().factor(factor);
  return f < 0 ? 0 : decision.assignment.dims[static_cast<size_t>(f)].axes();
}

IntervalList Compute::ranges_of(char factor) const {
  int f = decision.rule->rule().factor(factor);
  IntervalList list;
  decision.assignment.dims[static_cast<size_t>(f)].intervals(mesh(), coord(),
                                                             list);
  return list;
}

int64_t Compute::global_size(char factor) const {
  return decision.rule->size(decision.rule->rule().factor(factor));
}

void Compute::all_reduce(const Tensor& t, AxisMask axes, ReduceOp reduce_op) {
  if (!axes) return;
  const bool one_shot = t.bytes() <= context.planner.cost().one_shot_bytes;
  int64_t predicted =
      all_reduce_elements(t.numel(), mesh().size_of(axes), one_shot) *
      size_of(t.dtype());
  check_inside(context, op, predicted, decision);
  Communicator& comm = context.communicator(mesh(), axes);
  int64_t counted = 0;
  if (!context.dry_run) {
    uint64_t print = hash_mix(hash_text(op.name()), uint64_t(reduce_op));
    print = hash_mix(print, uint64_t(t.dtype()) * 31 + uint64_t(t.numel()));
    const Reduced what{op, t, reduce_op};
    Buffer b{.op = reduce_op,
             .dtype = t.dtype(),
             .data = t.data(),
             .n = t.numel(),
             .one_shot = one_shot};
    comm.all_reduce(
        {StepKind::kAllReduce, op.name(), print, Reduced::describe, &what},
        context.stream, {&b, 1});
    counted = b.counted;
  }
  record_event(context, mesh(), axes, StepKind::kAllReduce, predicted, counted);
}

Tensor Compute::fetch(const Tensor& part, AxisMask axes, const RegionOf& holds,
                      const RegionOf& wants) {
  int64_t most = 0, item = size_of(part.dtype());
  for_each_coord(mesh(), mesh().all_axes(), [&](const Coord& c) {
    Region w = wants(c);
    most = std::max(most, (volume(w) - overlap(w, holds(c))) * item);
  });
  Region has = holds(coord()), want = wants(coord());
  // Decided from what all ranks need: all of them skip it, or none.
  if (most == 0) return window(part, has, want);
  check_inside(context, op, most, decision);
  Tensor out = Tensor::empty(local_shape(want), part.dtype());
  int64_t counted = 0;
  if (!context.dry_run) {
    const Call call{StepKind::kAllToAll, op.name(),
                    hash_mix(hash_text(op.name()), 1), describe_boxes, &op};
    counted = context.communicator(mesh(), axes)
                  .exchange(call, context.stream, part.dtype(),
                            part_of(part, has), of_group(*this, axes, holds),
                            part_of(out, want), of_group(*this, axes, wants));
  }
  record_event(context, mesh(), axes, StepKind::kAllToAll, most, counted);
  return out;
}

Tensor Compute::collect_sum(const Tensor& part, AxisMask axes,
                            const RegionOf& holds, const RegionOf& wants) {
  int64_t most = 0, item = size_of(part.dtype());
  bool same = true;
  for_each_coord(mesh(), mesh().all_axes(), [&](const Coord& c) {
    Region w = wants(c);
    int64_t bytes = 0;
    int64_t self = mesh().rank(c);
    for (int64_t r : mesh().group(axes, c))
      if (r != self) bytes += overlap(w, holds(mesh().coordinate(r))) * item;
    most = std::max(most, bytes);
    same &= w == holds(c);
  });
  Region has = holds(coord()), want = wants(coord());
  if (most == 0 && same) return part;
  check_inside(context, op, most, decision);
  Tensor out = Tensor::empty(local_shape(want), part.dtype());
  int64_t counted = 0;
  if (!context.dry_run) {
    const Call call{StepKind::kReduceScatter, op.name(),
                    hash_mix(hash_text(op.name()), 2), describe_sum, &op};
    counted = context.communicator(mesh(), axes)
                  .reduce(call, context.stream, ReduceOp::kSum, part.dtype(),
                          part_of(part, has), of_group(*this, axes, holds),
                          part_of(out, want), of_group(*this, axes, wants));
  }
  record_event(context, mesh(), axes, StepKind::kReduceScatter, most, counted);
  return out;
}

std::shared_ptr<const Decision> decide(const Op& op,
                                       std::span<const OpInput> inputs,
                                       const Attrs& attrs,
                                       const Assignment* assignment) {
  RankContext& ctx = RankContext::current();
  uint64_t h = hash_pointer(1, &op), keep = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    h = hash_pointer(h, inputs[i].spec);
    keep = keep << 2 | static_cast<uint64_t>(inputs[i].keep);
  }
  h = hash_mix(h, keep);
  h = hash_mix(h, attrs.hash());
  if (assignment)
    for (const Dim& d : assignment->dims) h = hash_mix(h, d.hash());
  auto& entries = memory(ctx).entries;
  auto [first, last] = entries.equal_range(h);
  for (auto it = first; it != last; ++it) {
    const OpMemory::Entry& e = it->second;
    if (e.op != &op || e.keep != keep || e.specs.size() != inputs.size() ||
        !e.attrs.decide_as(attrs) ||
        e.assignment.has_value() != (assignment != nullptr))
      continue;
    bool same = true;
    for (size_t i = 0; i < inputs.size(); ++i)
      same &= e.specs[i] == inputs[i].spec;
    if (same && (!assignment || *e.assignment == *assignment))
      return e.decision;
  }
  auto d = std::make_shared<const Decision>(
      decide_anew(ctx, op, inputs, attrs, assignment));
  constexpr size_t kMost = 1 << 16;
  if (entries.size() >= kMost) entries.clear();
  OpMemory::Entry e{&op, {}, keep, attrs, std::nullopt, d};
  for (const OpInput& in : inputs) e.specs.push_back(in.spec);
  if (assignment) e.assignment = *assignment;
  entries.emplace(h, std::move(e));
  return d;
}

std::vector<DistTensor> apply(const Op& op, std::span<const DistTensor> inputs,
                              const Attrs& attrs,
                              const Assignment* assignment) {
  RankContext& ctx = RankContext::current();
  Scoped<std::string_view> running(ctx.op, op.name());
  constexpr size_t kMost = 16;
  DT_CHECK(!inputs.empty() && inputs.size() <= kMost, op.name(),
           "takes 1 to {} inputs, but got {}", kMost, inputs.size());
  OpInput specs[kMost];
  bool record = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    specs[i] = {inputs[i].spec(),
                inputs[i].stationary() ? Keep::kStay : Keep::kMove};
    record |= inputs[i].requires_grad();
  }
  auto d = decide(op, {specs, inputs.size()}, attrs, assignment);
  if (ctx.trace) ctx.trace(op, *d);
  if (d->communicates && (ctx.explicit_only || ctx.comm_budget >= 0))
    check_allowed(ctx, op, *d, inputs);

  std::vector<DistTensor> ready;
  ready.reserve(inputs.size());
  Compute c{op, attrs, *d, {}, {}, ctx, kernels_of(*ctx.device), ctx.stream};
  c.in.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    ready.push_back(relayout(inputs[i], d->in[i]));
    c.in.push_back(ready.back().impl()->part());
  }
  c.out.resize(d->out.size());
  if (op.allocates() && d->here)
    for (size_t o = 0; o < d->out.size(); ++o)
      c.out[o] = Tensor::empty(d->out_local[o], d->out[o]->dtype());
  if (d->here) op.compute(c);

  std::vector<DistTensor> outputs;
  outputs.reserve(d->out.size());
  for (size_t o = 0; o < d->out.size(); ++o)
    outputs.push_back(DistTensor::wrap(std::move(c.out[o]), d->out[o]));
  if (record && ctx.grad_enabled && op.differentiable()) {
    auto node = std::make_shared<OpNode>(op, attrs, d);
    node->save(ready, outputs);
    for (const DistTensor& in : ready) node->inputs.push_back(edge_to(in));
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (!is_float(outputs[o].dtype())) continue;
      outputs[o].impl()->node = node;
      outputs[o].impl()->output = static_cast<int>(o);
      outputs[o].impl()->requires_grad = true;
    }
  }
  return outputs;
}

DistTensor apply1(const Op& op, std::span<const DistTensor> inputs,
                  const Attrs& attrs, const Assignment* assignment) {
  return std::move(apply(op, inputs, attrs, assignment)[0]);
}

}  // namespace dtensor
