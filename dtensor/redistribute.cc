#include "dtensor/redistribute.h"

#include <optional>

#include "dtensor/autograd.h"
#include "dtensor/comm/pieces.h"
#include "dtensor/device/copy.h"
#include "placement/error.h"
#include "placement/hash.h"

namespace dtensor {
namespace {

// The region of a part as its memory has it: (sum, count) pairs lie along one
// more dimension, the first.
Region memory_region(const Spec* spec, const Coord& c) {
  Region r = spec->region(c);
  if (spec->components() > 1)
    r.insert(r.begin(), IntervalList{{0, spec->components()}});
  return r;
}

std::vector<Region> group_regions(const Spec* spec, AxisMask axes,
                                  const Coord& at) {
  std::vector<Region> regions;
  for (int64_t r : spec->mesh().group(axes, at))
    regions.push_back(memory_region(spec, spec->mesh().coordinate(r)));
  return regions;
}

bool one_box(const Region& r) {
  for (const IntervalList& l : r)
    if (l.size() > 1) return false;
  return true;
}

double identity_value(ReduceOp op) {
  return op == ReduceOp::kMean ? 0 : identity(op);
}

Tensor fill_partials(RankContext& ctx, const Tensor& local, const Step& step,
                     const Coord& at) {
  const Spec *from = step.from, *to = step.to;
  // The first rank of every new partial axis keeps the value, unless the axis
  // splits it: then each keeps its part. An average of equal values is exact
  // as it is. Elsewhere belongs the identity of the outermost reduction to
  // which this rank is not the first: a sum of maxima wants zeros from all
  // ranks of the second term, whatever the maximum's own identity.
  bool keeps = true, average_only = true;
  std::optional<ReduceOp> outside;
  for (const Partial& p : to->layout().partials) {
    if (from->layout().partial_on(p.axis) == p.op) continue;
    bool was_split = from->split_axes() >> p.axis & 1;
    DT_CHECK((p.op != ReduceOp::kAvg && p.op != ReduceOp::kMean) || !was_split,
             "redistribute",
             "{} cannot become {}: an average needs the whole value on every "
             "rank; replicate {} first",
             from->to_string(), to->to_string(),
             from->mesh().axis_name(p.axis));
    if (p.op == ReduceOp::kAvg) continue;
    average_only = false;
    if (!was_split && at[p.axis] == 0) continue;
    if (!was_split) keeps = false;
    if (!outside) outside = p.op;
  }
  if (average_only && from->components() == to->components()) return local;
  Tensor out = Tensor::empty(to->local_shape(at), to->dtype());
  if (ctx.dry_run) return out;
  if (outside) out.fill(identity_value(*outside));
  if (!keeps) return out;
  Tensor values = out;
  if (to->components() > from->components()) {
    out.slice(0, 1, 2).fill(1);  // the count
    values = out.slice(0, 0, 1).reshape(from->local_shape(at));
  }
  copy_common(values, to->region(at), local, from->region(at));
  return out;
}

// sum / count of the reduced pairs.
Tensor divide_pairs(RankContext& ctx, const Tensor& pairs) {
  Shape shape = pairs.shape();
  shape.erase(0);
  Tensor out = Tensor::empty(shape, pairs.dtype());
  if (ctx.dry_run) return out;
  int64_t n = out.numel();
  visit(pairs.dtype(), [&]<class T>() {
    const T* p = pairs.ptr<T>();
    T* o = out.ptr<T>();
    if constexpr (std::is_same_v<T, bf16>) {
      for (int64_t i = 0; i < n; ++i)
        o[i] = bf16(static_cast<float>(p[i]) / static_cast<float>(p[n + i]));
    } else if constexpr (std::is_floating_point_v<T>) {
      for (int64_t i = 0; i < n; ++i) o[i] = p[i] / p[n + i];
    } else {
      fail("redistribute", "a mean of {} is not defined; cast to a float",
           name(pairs.dtype()));
    }
  });
  return out;
}

Tensor run_step(RankContext& ctx, const Tensor& local, const Step& step) {
  const Spec *from = step.from, *to = step.to;
  const Mesh& mesh = from->mesh();
  const Coord& at = ctx.coordinate(mesh);
  if (step.kind == StepKind::kSlice)
    return window(local, memory_region(from, at), memory_region(to, at));
  if (step.kind == StepKind::kFill) return fill_partials(ctx, local, step, at);

  Communicator& comm = ctx.communicator(mesh, step.axes);
  std::string text = from->to_string() + " -> " + to->to_string();
  uint64_t print = hash_mix(from->hash(), to->hash());
  Call call{name(step.kind), ctx.op, hash_mix(print, uint64_t(step.op)), text};
  Tensor out;
  int64_t counted = 0;
  if (step.kind == StepKind::kAllReduce) {
    out = Tensor::empty(local.shape(), local.dtype());
    if (!ctx.dry_run) {
      out.copy_from(local);
      ReduceOp op = step.op == ReduceOp::kMean ? ReduceOp::kSum : step.op;
      counted = comm.all_reduce(call, op, out.dtype(), out.data(), out.numel());
    }
    if (step.op == ReduceOp::kMean && to->components() == 1)
      out = divide_pairs(ctx, out);
  } else {
    Region wants = memory_region(to, at), has = memory_region(from, at);
    out = Tensor::empty(local_shape(wants), local.dtype());
    if (!ctx.dry_run) {
      auto sources = group_regions(from, step.axes, at);
      Part src = part_of(local, has), dst = part_of(out, wants);
      counted =
          step.kind == StepKind::kReduceScatter
              ? comm.reduce(call, step.op, local.dtype(), src, sources, dst)
              : comm.exchange(call, local.dtype(), src, sources, dst);
    }
  }
  record_event(ctx, mesh, step.axes, step.kind, step.bytes, counted);
  return out;
}

class RedistributeNode : public Node {
 public:
  std::vector<DistTensor> backward(std::span<const DistTensor> cotangents,
                                   std::span<const bool>) override {
    // The same global value: whoever consumes it moves it.
    return {cotangents[0]};
  }
  std::string_view name() const override { return "redistribute"; }
};

}  // namespace

Part part_of(const Tensor& t, const Region& region) {
  return {t.numel() ? t.data() : nullptr, t.strides(), &region};
}

void copy_common(const Tensor& dst, const Region& dst_region, const Tensor& src,
                 const Region& src_region) {
  if (dst.numel() == 0 || src.numel() == 0) return;
  HeldRegion to(dst_region), from(src_region);
  for (const Piece& piece : cut_reduction(to, {&from, 1})) {
    if (piece.members.empty()) continue;
    const HeldRegion* arrays[] = {&to, &from};
    Sizes strides[] = {Sizes(dst.strides()), Sizes(src.strides())};
    Boxes boxes(piece.region, arrays, strides);
    int64_t item = size_of(dst.dtype());
    boxes.each([&](Sizes shape) {
      copy_strided(item, shape, dst.ptr<char>() + boxes.offset(0) * item,
                   boxes.strides(0), src.ptr<char>() + boxes.offset(1) * item,
                   boxes.strides(1));
    });
  }
}

Tensor window(const Tensor& local, const Region& has, const Region& wants) {
  if (one_box(has) && one_box(wants)) {
    Tensor view = local;
    for (size_t d = 0; d < has.size(); ++d) {
      int64_t base = has[d].empty() ? 0 : has[d][0].lo;
      Interval w = wants[d].empty() ? Interval{base, base} : wants[d][0];
      if (w.size() != local.shape()[static_cast<int>(d)])
        view = view.slice(static_cast<int>(d), w.lo - base, w.hi - base);
    }
    return view;
  }
  Tensor out = Tensor::empty(local_shape(wants), local.dtype());
  if (!RankContext::current().dry_run) copy_common(out, wants, local, has);
  return out;
}

void record_event(RankContext& ctx, const Mesh& mesh, AxisMask axes,
                  StepKind kind, int64_t predicted, int64_t counted) {
  if (ctx.record)
    ctx.events.push_back(
        {mesh, axes, kind, std::string(ctx.op), ctx.phase, predicted, counted});
}

void spend_budget(RankContext& ctx, int64_t bytes, std::string_view why) {
  if (ctx.comm_budget < 0 || bytes == 0) return;
  DT_CHECK(
      bytes <= ctx.comm_budget, ctx.op.empty() ? "redistribute" : ctx.op,
      "{} needs {} bytes of communication, but the budget has {} left; raise "
      "it, or redistribute outside of its scope",
      why, bytes, ctx.comm_budget);
  ctx.comm_budget -= bytes;
}

Tensor redistribute_local(const Tensor& local, const Spec* from,
                          const Spec* to) {
  if (from == to) return local;
  RankContext& ctx = RankContext::current();
  const Plan& plan = ctx.planner.plan(from, to);
  spend_budget(ctx, plan.bytes, from->to_string() + " -> " + to->to_string());
  Scoped<std::string_view> op(ctx.op, ctx.op.empty() ? "redistribute" : ctx.op);
  Tensor t = local;
  // The plan may leave the cache while its steps run; they are few.
  std::vector<Step> steps = plan.steps;
  for (const Step& step : steps) t = run_step(ctx, t, step);
  return t;
}

DistTensor redistribute(const DistTensor& x, const Spec* to) {
  if (x.spec() == to) return x;
  bool record = grad_enabled() && x.requires_grad();
  DistTensor::Impl& impl = *x.impl();
  uint64_t version = impl.local.storage()->version();
  std::erase_if(impl.copies, [&](const DistTensor::Impl::Copy& c) {
    return c.version != version;
  });
  for (const auto& c : impl.copies)
    if (c.spec == to && c.tensor.requires_grad() == record) return c.tensor;
  DistTensor y =
      DistTensor::wrap(redistribute_local(x.local(), x.spec(), to), to);
  if (record) {
    auto node = std::make_shared<RedistributeNode>();
    node->inputs = {edge_to(x)};
    y.impl()->node = std::move(node);
    y.impl()->requires_grad = true;
  }
  // A parameter that is moved on purpose is not kept twice.
  if (x.stationary())
    y.impl()->stationary =
        !RankContext::current().planner.plan(x.spec(), to).communicates();
  else
    impl.copies.push_back({to, version, y});
  return y;
}

}  // namespace dtensor
