// SPDX-License-Identifier: Apache-2.0
#include "dtensor/redistribute.h"

#include <algorithm>
#include <utility>

#include "dtensor/async.h"
#include "dtensor/autograd.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/execute.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// Calls execute(). Then drops this rank's part in every move to a mesh that the
// rank is not in.
void carry_out(RankContext& ctx, const Execution& e,
               std::span<const Move> moves, std::span<Tensor> parts,
               bool consume = false) {
  execute(ctx, e, parts, consume);
  for (size_t i = 0; i < moves.size(); ++i)
    if (moves[i].from->mesh() != moves[i].to->mesh() &&
        !ctx.coordinate_or_null(moves[i].to->mesh()))
      parts[i] = Tensor();
}

struct How {
  bool lazy = true, async = false;
  std::optional<DType> backward_dtype = {};
  bool own = false;      // the result shares no memory with x or other results
  bool consume = false;  // may overwrite x if x is the only handle
};
DistTensor move(const DistTensor& x, const Spec* to, const How& how);
// Converts x to another type; the gradient converts back.
DistTensor convert(const DistTensor& x, DType dtype);

class ConvertNode : public Node {
 public:
  explicit ConvertNode(DType from) : from_(from) {}
  void backward(std::span<const DistTensor> cotangents, std::span<const bool>,
                std::span<DistTensor> gradients) override {
    const DistTensor& g = cotangents[0];
    gradients[0] = g.dtype() == DType::kExact ? g : convert(g, from_);
  }
  DType type_of(int) const override { return DType::kExact; }
  std::string_view name() const override { return "convert"; }

 private:
  const DType from_;
};

void record(const DistTensor& y, std::shared_ptr<Node> node,
            const DistTensor& x) {
  node->inputs = {edge_to(x)};
  y.impl()->node = std::move(node);
  y.impl()->requires_grad = true;
}

DistTensor convert(const DistTensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  DistTensor y = DistTensor::wrap(converted(x.impl()->part(), dtype),
                                  x.spec()->with(dtype));
  y.impl()->lineage = x.impl()->lineage;
  if (records(x)) record(y, std::make_shared<ConvertNode>(x.dtype()), x);
  return y;
}

// Passes the cotangent on unmoved; its consumer moves it as needed.
class LazyNode : public Node {
 public:
  void backward(std::span<const DistTensor> cotangents, std::span<const bool>,
                std::span<DistTensor> gradients) override {
    gradients[0] = cotangents[0];
  }
  DType type_of(int) const override { return DType::kExact; }
  std::string_view name() const override { return "redistribute"; }
};

// Moves the cotangent to the layout that cotangent_spec() gives for the source.
class MoveNode : public Node {
 public:
  MoveNode(const Spec* from, std::optional<DType> dtype)
      : from_(from), dtype_(dtype) {}
  void backward(std::span<const DistTensor> cotangents, std::span<const bool>,
                std::span<DistTensor> gradients) override {
    const DistTensor& g = cotangents[0];
    const Spec* to = cotangent_spec(from_, g.spec());
    gradients[0] =
        g.dtype() == DType::kExact
            ? move(g, to, {.lazy = false})
            : convert(move(g, dtype_ ? to->with(*dtype_) : to, {.lazy = false}),
                      from_->dtype());
  }
  DType type_of(int) const override { return DType::kExact; }
  std::string_view name() const override { return "redistribute"; }

 private:
  const SpecRef from_;
  const std::optional<DType> dtype_;
};

void check_run(const RankContext& ctx, const DistTensor& x) {
  DT_CHECK(x.impl()->run == ctx.run_id, "redistribute",
           "{} belongs to another run(), whose ranks this run does not reach; "
           "save it there and load it here",
           x.spec()->to_string());
}

void check_fits(const RankContext& ctx, const Mesh& mesh) {
  DT_CHECK(mesh.smallest_world() <= ctx.world_size, "redistribute",
           "mesh {} needs a run of {} ranks or more, but this one has {}; "
           "start more ranks, or make a mesh of ranks below {}",
           mesh.to_string(), mesh.smallest_world(), ctx.world_size,
           ctx.world_size);
}

std::string text_of(const Spec* from, const Spec* to) {
  return from->to_string() + " -> " + to->to_string();
}

// Returns the tensor's copies after removing stale ones: those made before the
// tensor was written to, and copies with spec `to` that were written to
// themselves. Waits for pending copies with that spec.
std::vector<DistTensor::Impl::Copy>& copies(DistTensor::Impl& impl,
                                            uint64_t version, const Spec* to) {
  std::erase_if(impl.copies, [&](const auto& c) {
    return c.version != version ||
           (c.spec == to && !c.tensor.impl()->untouched());
  });
  return impl.copies;
}

// Returns the part, contiguous and in memory that nothing else uses; clones it
// if necessary. `source` is the move's source, or an earlier copy, and stays in
// use. It is undefined if the move consumed the source: then the part may be a
// view of memory that is larger, or that other tensors hold.
Tensor own_part(Tensor part, const Tensor& source) {
  if (!part.defined()) return part;
  const bool shares = source.defined()
                          ? part.storage() == source.storage()
                          : part.storage().use_count() > 1 ||
                                part.storage()->bytes() > part.bytes();
  if (shares) return part.clone();
  return part.contiguous() ? std::move(part) : part.clone();
}

// Records in the graph that y is the moved x, if uses of x are recorded.
DistTensor finished(const DistTensor& x, DistTensor y, const How& how) {
  if (records(x)) {
    std::shared_ptr<Node> node;
    if (how.lazy)
      node = std::make_shared<LazyNode>();
    else
      node = std::make_shared<MoveNode>(x.spec(), how.backward_dtype);
    record(y, std::move(node), x);
  }
  return y;
}

// Throws Error in a reproducible run if the move adds floats of several ranks.
void check_order(const RankContext& ctx, const Spec* from, const Spec* to) {
  if (!ctx.reproducible || !is_float(from->dtype())) return;
  for (const Partial& p : from->layout().partials)
    DT_CHECK(p.op == ReduceOp::kMax || p.op == ReduceOp::kMin ||
                 p.op == ReduceOp::kExactSum ||
                 from->mesh().axis_size(p.axis) == 1,
             "redistribute",
             "{} would be added in an order that depends on the mesh, to give "
             "{}; leave --reproducible out, or cast to exact before",
             from->to_string(), to->to_string());
}

// Makes the tensor for the moved x, without its part yet. It keeps the lineage
// only within a mesh: ranks of another mesh do not know how x was made.
DistTensor unmade(const RankContext& ctx, const DistTensor& x,
                  const Spec* spec) {
  check_order(ctx, x.spec(), spec);
  auto made = std::make_shared<DistTensor::Impl>();
  made->spec = spec;
  made->run = ctx.run_id;
  if (x.mesh() == spec->mesh())
    made->lineage = x.impl()->lineage;
  else
    made->lineage.hash = spec->hash();
  return DistTensor(std::move(made));
}

// The lineage for a collective: that of the running operator, or else that of
// the value that is moved.
const Lineage* subject_of(const RankContext& ctx, const Lineage& moved) {
  return ctx.about ? ctx.about : &moved;
}

// Adds the lineage of x to that of the values that move together.
void add(Lineage& all, const DistTensor& x) {
  const Lineage& its = x.impl()->lineage;
  if (all.op.empty()) {
    all.op = its.op;
    all.path = its.path;
    all.ordinal = its.ordinal;
  }
  all.hash = fold_lineage(all.hash, its.hash);
}

DistTensor move(const DistTensor& x, const Spec* to, const How& how) {
  const Spec* from = x.spec();
  const bool wants_grad = records(x);
  if (from == to && !how.own && (how.lazy || !wants_grad)) return x;
  if (from->exact() && from->dtype() != to->dtype())
    return convert(move(x, to->with(from->dtype()), how), to->dtype());
  RankContext& ctx = RankContext::current();
  check_run(ctx, x);
  DistTensor::Impl& impl = *x.impl();
  // True if x is still pending, and this move need not wait for it. Its version
  // may then be unknown, so its copies are not used.
  const bool waits = how.async && impl.pending;
  const uint64_t version = waits ? 0 : impl.version();
  bool found = from == to, sent = false;
  Tensor part = found ? impl.part() : Tensor();
  if (!found && !waits) {
    for (const auto& c : copies(impl, version, to)) {
      if (c.spec != to) continue;
      if (!how.own && c.tensor.requires_grad() == wants_grad &&
          (!wants_grad ||
           (c.lazy == how.lazy && c.backward_dtype == how.backward_dtype)))
        return c.tensor;
      part = c.tensor.impl()->local;
      found = true;
    }
  }
  DistTensor result = unmade(ctx, x, to);
  const auto& made = result.impl();
  const bool gone = how.consume && !waits && x.impl().use_count() == 1;
  if (gone && from == to) {
    impl.local = Tensor();
    made->local = own_part(std::move(part), Tensor());
  } else if (found) {
    made->local = how.own ? own_part(part, part) : part;
  } else {
    if (from->mesh() != to->mesh()) {
      check_fits(ctx, from->mesh());
      check_fits(ctx, to->mesh());
    }
    const bool converts = from->dtype() != to->dtype();
    const Move m{converts ? from->with(to->dtype()) : from, to};
    if (converts)
      DT_CHECK(!from->partial_axes() ||
                   (is_float(from->dtype()) && is_float(to->dtype())),
               "redistribute",
               "the partial values of {} cannot be converted to {} before they "
               "are combined; redistribute first, then cast",
               from->to_string(), dtensor::name(to->dtype()));
    const auto e = execution(ctx, {&m, 1});
    const Plan& plan = e->plan();
    sent = plan.communicates();
    if (ctx.comm_budget >= 0) spend_budget(ctx, plan.bytes, text_of(from, to));
    const Scoped<const Lineage*> about(ctx.about,
                                       subject_of(ctx, impl.lineage));
    if (how.async && sent && !ctx.dry_run) {
      made->pending =
          begin_moves(ctx, {&m, 1}, {impl.local},
                      {.after = impl.pending, .continues = true})[0];
    } else {
      Scoped<std::string_view> op(ctx.op,
                                  ctx.op.empty() ? "redistribute" : ctx.op);
      impl.part();
      part = gone ? std::exchange(impl.local, Tensor()) : impl.local;
      carry_out(ctx, *e, {&m, 1}, {&part, 1}, gone);
      made->local =
          how.own ? own_part(std::move(part), impl.local) : std::move(part);
    }
  }
  made->note_version();
  if (!sent) made->keep = x.keep();
  const DistTensor y = finished(x, std::move(result), how);
  // To save memory, copies of parameters that operators may not send freely are
  // not kept. Neither is a copy in memory of its own that needed no
  // communication: making it again is cheap.
  if (x.keep() != Keep::kMove || waits || gone) return y;
  if (!how.own)
    impl.copies.push_back({to, version, y, how.lazy, how.backward_dtype});
  else if (sent)
    impl.copies.push_back({to, version, y.detach(), true, std::nullopt});
  return y;
}

// Whether x has a copy with spec `to` that may still be used.
bool moved_before(const DistTensor& x, const Spec* to) {
  DistTensor::Impl& impl = *x.impl();
  if (impl.copies.empty()) return false;
  const auto& known = copies(impl, impl.version(), to);
  return std::any_of(known.begin(), known.end(),
                     [&](const auto& c) { return c.spec == to; });
}

// Whether something is sent for the execution's move k.
bool sent(const Execution& e, size_t k) {
  const auto& steps = e.plan().steps;
  return std::any_of(steps.begin(), steps.end(), [&](const Step& s) {
    return s.tensor == static_cast<int>(k) && sends(s.kind);
  });
}

}  // namespace

DistTensor alias(const DistTensor& x) {
  return passes_as_it_comes(x, x.detach());
}

DistTensor passes_as_it_comes(const DistTensor& x, DistTensor y) {
  return finished(x, std::move(y), {});
}

Tensor converted(const Tensor& t, DType dtype) {
  if (!t.defined() || t.dtype() == dtype) return t;
  Tensor out = Tensor::empty(t.shape(), dtype);
  out.device().cast(out.stream(), t.shape(), dtype, out.mutable_data(),
                    out.strides(), t.dtype(), t.data(), t.strides());
  return out;
}

DistTensor settled(const DistTensor& x, DType dtype) {
  if (!x.defined() || (x.dtype() != DType::kExact && !x.spec()->exact()))
    return x;
  Layout whole = x.layout();
  whole.partials.clear();
  return convert(move(x, x.spec()->with(whole), {}), dtype);
}

const Spec* cotangent_spec(const Spec* x, const Spec* g) {
  Layout l = x->layout();
  l.partials.clear();
  if (x->mesh() == g->mesh()) {
    const AxisMask used = x->split_axes() | x->partial_axes();
    for (const Partial& p : g->layout().partials)
      if ((p.op == ReduceOp::kSum || p.op == ReduceOp::kAvg) &&
          !(used >> p.axis & 1))
        l.partials.push_back(p);
  }
  return Spec::get(x->mesh(), x->shape(), l, g->dtype());
}

Tensor redistribute_local(const Tensor& local, const Spec* from,
                          const Spec* to) {
  if (from == to) return local;
  RankContext& ctx = RankContext::current();
  const Move m{from, to};
  const auto e = execution(ctx, {&m, 1});
  if (ctx.comm_budget >= 0)
    spend_budget(ctx, e->plan().bytes, text_of(from, to));
  Scoped<std::string_view> op(ctx.op, ctx.op.empty() ? "redistribute" : ctx.op);
  Tensor part = local;
  carry_out(ctx, *e, {&m, 1}, {&part, 1});
  return part;
}

DistTensor relayout(const DistTensor& x, const Spec* to) {
  return move(x, to, {});
}

DistTensor redistribute(const DistTensor& x, const Spec* to,
                        const RedistributeOptions& o, MoveMode mode) {
  DT_CHECK(to->dtype() == x.dtype(), "redistribute",
           "{} cannot become {}, because the types differ; pass a spec of type "
           "{}, and the option forward_dtype for another type",
           x.spec()->to_string(), to->to_string(), name(x.dtype()));
  DT_CHECK(!o.backward_dtype || is_float(*o.backward_dtype), "redistribute",
           "backward_dtype is {}; write DType::kF32, kF64, kBF16 or kF16",
           name(*o.backward_dtype));
  if (o.forward_dtype) to = to->with(*o.forward_dtype);
  return move(x, to,
              {.lazy = false,
               .async = mode.async,
               .backward_dtype = o.backward_dtype,
               .own = true,
               .consume = mode.consume});
}

void relayout(std::span<DistTensor> x, std::span<const SpecRef> to,
              const RelayoutOptions& options) {
  RankContext& ctx = RankContext::current();
  DT_CHECK(x.size() == to.size(), "redistribute",
           "got {} for {}; pass one layout for each tensor",
           quantity(to.size(), "layout", "layouts"),
           quantity(x.size(), "tensor", "tensors"));
  // The moves from mesh `from` to mesh `to`, which run together. Batches are in
  // the order of their first moves.
  struct Batch {
    Mesh from, to;
    std::vector<Move> moves;
    std::vector<size_t> places;
    std::vector<Tensor> parts;
    std::shared_ptr<const Execution> execution;
    Lineage lineage;
  };
  std::vector<Batch> batches;
  // (i, k) if x[i] is the same tensor as an earlier x[k], and to[i] is to[k].
  std::vector<std::pair<size_t, size_t>> same;
  bool all = true;  // whether the batches have every tensor that moves
  for (size_t i = 0; i < x.size(); ++i) {
    const Spec* from = x[i].spec();
    if (from == to[i]) {
      if (options.own) x[i] = redistribute(x[i], to[i], {});
      continue;
    }
    check_run(ctx, x[i]);
    if (options.copies && moved_before(x[i], to[i])) {
      x[i] = move(x[i], to[i], {});
      all = false;
      continue;
    }
    const Mesh &a = from->mesh(), &b = to[i]->mesh();
    auto it = std::find_if(
        batches.begin(), batches.end(),
        [&](const Batch& batch) { return batch.from == a && batch.to == b; });
    if (it == batches.end()) {
      check_fits(ctx, a);
      check_fits(ctx, b);
      it = batches.insert(it, {a, b, {}, {}, {}, nullptr, {}});
    }
    const auto like = [&](size_t k) {
      return x[k].same_as(x[i]) && to[k] == to[i];
    };
    const auto first = options.copies ? std::find_if(it->places.begin(),
                                                     it->places.end(), like)
                                      : it->places.end();
    if (first != it->places.end()) {
      same.emplace_back(i, *first);
      continue;
    }
    it->moves.push_back({from, to[i]});
    it->places.push_back(i);
    add(it->lineage, x[i]);
  }
  const bool async = options.async && batches.size() == 1 &&
                     batches[0].from == batches[0].to && !ctx.dry_run &&
                     ctx.comm_budget < 0;
  int64_t bytes = 0;
  size_t moves = 0;
  for (Batch& b : batches) {
    if (async) break;
    moves += b.moves.size();
    const bool cached = options.execution && all && batches.size() == 1;
    if (cached) b.execution = *options.execution;
    if (!b.execution) b.execution = execution(ctx, b.moves);
    if (cached) *options.execution = b.execution;
    bytes += b.execution->plan().bytes;
  }
  if (ctx.comm_budget >= 0)
    spend_budget(ctx, bytes, "moving " + quantity(moves, "tensor", "tensors"));
  Scoped<std::string_view> op(ctx.op, ctx.op.empty() ? "redistribute" : ctx.op);
  for (Batch& b : batches) {
    for (size_t i : b.places) {
      // A move may overwrite a part only if nothing else refers to it. So drop
      // x[i]'s own reference to its part, unless x[i] shares it with another
      // handle.
      Tensor part = x[i].impl()->part();
      if (x[i].impl().use_count() == 1) x[i].impl()->local = Tensor();
      b.parts.push_back(std::move(part));
    }
    const Scoped<const Lineage*> about(ctx.about, subject_of(ctx, b.lineage));
    std::vector<std::shared_ptr<Pending>> pending;
    if (async)
      pending =
          begin_moves(ctx, b.moves, std::move(b.parts), {.consume = true});
    else
      carry_out(ctx, *b.execution, b.moves, b.parts, true);
    for (size_t k = 0; k < b.places.size(); ++k) {
      DistTensor& y = x[b.places[k]];
      const DistTensor from = std::exchange(y, unmade(ctx, y, b.moves[k].to));
      DistTensor::Impl& made = *y.impl();
      if (async) {
        made.pending = pending[k];
      } else {
        made.local = options.own
                         ? own_part(std::move(b.parts[k]), from.impl()->local)
                         : std::move(b.parts[k]);
        made.note_version();
      }
      if (from.keep() != Keep::kMove && !async && !sent(*b.execution, k))
        made.keep = from.keep();
      y = finished(from, std::move(y), {.lazy = !options.own});
      if (options.copies && from.keep() == Keep::kMove)
        from.impl()->copies.push_back(
            {y.spec(), from.impl()->version(), y, true, std::nullopt});
    }
  }
  for (const auto& [i, first] : same) x[i] = x[first];
}

void record_event(RankContext& ctx, const Mesh& mesh, AxisMask axes,
                  StepKind kind, int64_t predicted, int64_t counted,
                  int64_t by_all) {
  ++ctx.collectives;
  if (ctx.record)
    ctx.events.push_back({.mesh = mesh,
                          .axes = axes,
                          .kind = kind,
                          .op = std::string(ctx.op),
                          .phase = ctx.phase,
                          .predicted = predicted,
                          .counted = counted,
                          .collective = ctx.collectives,
                          .by_all = by_all});
  for (Observer* o : ctx.observers) o->sent(ctx);
  bound_record(ctx);
}

void spend_budget(RankContext& ctx, int64_t bytes, std::string_view why) {
  if (ctx.comm_budget < 0 || bytes == 0) return;
  DT_CHECK(bytes <= ctx.comm_budget, ctx.op.empty() ? "redistribute" : ctx.op,
           "{} needs {} of communication, but the budget has {} left; raise "
           "the budget, or communicate outside its scope",
           why, quantity(bytes, "byte", "bytes"), ctx.comm_budget);
  ctx.comm_budget -= bytes;
}

}  // namespace dtensor
