#include "dtensor/runtime/executor.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>

#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/placement/panels.h"
#include "dtensor/placement/step_schedule.h"
#include "dtensor/runtime/device/copy.h"
#include "dtensor/runtime/local_part.h"

namespace dtensor {
namespace {

// (sum, count) pairs lie along one more dimension, the first.
Region with_pairs(Region r, int components) {
  if (components > 1) r.insert(r.begin(), IntervalList{{0, components}});
  return r;
}

// What a rank of the run holds of a tensor, of one panel of it alone when there
// is one; nothing when it is not in the mesh.
Region held(const Spec* spec, int64_t world_rank, const Region* panel) {
  const int64_t rank = spec->mesh().mesh_rank_of(world_rank);
  const size_t ndim = static_cast<size_t>(spec->ndim());
  Region r =
      rank < 0 ? Region(ndim) : spec->region(spec->mesh().coordinate(rank));
  return panel ? intersect(r, *panel) : r;
}

double identity_value(ReduceOp op) {
  return op == ReduceOp::kMean ? 0 : identity(op);
}

// How a partial-fill gives this rank its part.
struct Fill {
  bool keeps = true;  // the value, or a part of it; else the identity alone
  std::optional<ReduceOp> outside;  // whose identity lies around it
  bool counts = false;              // pairs begin: each value counts once
};

// The first rank of every new partial axis keeps the value, unless the axis
// splits it: then each keeps its part. An average of equal values is exact as
// it is. Elsewhere belongs the identity of the outermost reduction to which
// this rank is not the first: a sum of maxima wants zeros from all ranks of the
// second term, whatever the maximum's own identity.
Fill fill_of(const Step& step, const Coord& at) {
  const Spec *from = step.from, *to = step.to;
  Fill f;
  for (const Partial& p : to->layout().partials) {
    if (from->layout().partial_on(p.axis) == p.op) continue;
    const bool was_split = from->split_axes() >> p.axis & 1;
    DT_CHECK((p.op != ReduceOp::kAvg && p.op != ReduceOp::kMean) || !was_split,
             "redistribute",
             "{} cannot become {}: an average needs the whole value on every "
             "rank; replicate {} first",
             from->to_string(), to->to_string(),
             from->mesh().axis_name(p.axis));
    if (p.op == ReduceOp::kAvg || (!was_split && at[p.axis] == 0)) continue;
    if (!was_split) f.keeps = false;
    if (!f.outside) f.outside = p.op;
  }
  f.counts = f.keeps && to->components() > from->components();
  return f;
}

// What a rank that keeps its value gives to a partial-fill: all that it has,
// but of what several have along the axes that split it and become partial
// (whole segments of a concatenation) only the first one gives it.
Region own_part(const Step& step, const Coord& at) {
  const Spec* from = step.from;
  const Mesh& mesh = from->mesh();
  const AxisMask fresh =
      step.to->partial_axes() & ~from->partial_axes() & from->split_axes();
  Region own = from->region(at);
  for (int d = 0; d < from->ndim(); ++d) {
    const AxisMask axes = from->dim(d).axes() & fresh;
    if (!axes || from->dim(d).kind() == Dim::Kind::kLeaf) continue;
    IntervalList& mine = own[static_cast<size_t>(d)];
    for (int64_t r : mesh.group(axes, at)) {
      const Coord c = mesh.coordinate(r);
      if (c == at) break;
      IntervalList theirs;
      from->dim(d).intervals(mesh, c, theirs);
      mine = subtract(mine, HeldRegion({theirs}).ascending()[0]);
    }
  }
  return own;
}

// sum / count of reduced pairs.
void divide_pairs(const Tensor& pairs, const Tensor& out) {
  const Tensor sum = pairs.slice(0, 0, 1), count = pairs.slice(0, 1, 2);
  visit(out.dtype(), [&]<class T>() {
    if constexpr (std::is_same_v<T, bf16> || std::is_floating_point_v<T>) {
      using Wide = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
      const T *s = sum.ptr<T>(), *c = count.ptr<T>();
      T* o = out.ptr<T>();
      for (int64_t i = 0; i < out.numel(); ++i)
        o[i] = T(static_cast<Wide>(s[i]) / static_cast<Wide>(c[i]));
    } else {
      fail("redistribute", "a mean of {} is not defined; cast to a float",
           name(out.dtype()));
    }
  });
}

// The most that one rank receives when a step all-reduces panel by panel.
int64_t all_reduce_bytes(const Step& step, const std::vector<Region>& panels) {
  const Mesh& mesh = step.from->mesh();
  int64_t most = 0;
  for_each_coord(mesh, step.from->split_axes(), [&](const Coord& c) {
    int64_t n = 0;
    for (const Region& panel : panels)
      n += all_reduce_elements(volume(intersect(step.from->region(c), panel)) *
                                   step.from->components(),
                               mesh.size_of(step.axes));
    most = std::max(most, n);
  });
  return most * size_of(step.from->dtype());
}

// One thing to do to one tensor, or to one panel of it.
struct Action {
  enum class Do : uint8_t { kView, kCopy, kFill, kTransfer, kAllReduce };
  Do what;
  size_t tensor;
  size_t event = 0;       // of a step that sends
  bool into_end = false;  // writes its panel of the destination
  bool in_place = false;  // an all-reduce of what the plan itself made
  bool divides = false;   // pairs become values in the end
  bool receives = true;   // this rank is in the destination's mesh
  Shape shape;            // of the memory that it makes
  Shape divided;          // of what that becomes
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  Region has, wants;  // what the memory before and after it holds
  Region which;       // of a copy or a fill: the indices that it takes over
  Fill fill;
  Schedule schedule;
};

// Actions of one collective, or of none.
struct Round {
  std::vector<Action> actions;
  size_t pass = 0;
  StepKind kind = StepKind::kSlice;
  Communicator* communicator = nullptr;
  uint64_t fingerprint = 0;
  // What a disagreement shows: the first step and how many more.
  const Step* first = nullptr;
  size_t tensors = 0, passes = 1;
  std::vector<Transfer> transfers;
  std::vector<Buffer> buffers;
};

std::string describe(const void* what) {
  const Round& r = *static_cast<const Round*>(what);
  std::string text =
      r.first->from->to_string() + " -> " + r.first->to->to_string();
  if (r.tensors > 1) text += fmt::format(" and {} more tensors", r.tensors - 1);
  if (r.passes > 1)
    text += fmt::format(", part {} of {}", r.pass + 1, r.passes);
  return text;
}

Shape with_pairs(Shape s, int components) {
  if (components > 1) s.insert(0, components);
  return s;
}

}  // namespace

class Execution {
 public:
  Execution(RankContext&, std::span<const Move>, Plan);
  const Plan& plan() const { return plan_; }
  const std::vector<Move>& moves() const { return moves_; }
  size_t weight() const { return weight_; }
  void run(RankContext&, std::span<Tensor> parts, bool consume);

 private:
  // One tensor while its actions are put together.
  struct Path {
    size_t steps = 0, made = 0;  // made: up to the last that makes memory
    // In the current pass:
    size_t done = 0;
    const Spec* memory = nullptr;   // what the memory holds ...
    const Region* panel = nullptr;  // ... of this panel alone, if `cut`
    bool cut = false, own = false;  // own: made by the plan
    bool ended = false;             // its panel is in the destination
  };
  // And while it moves.
  struct Moving {
    Tensor source, now, end;
  };
  struct Event {
    StepKind kind;
    Mesh mesh;
    AxisMask axes;
    int64_t predicted, collective, counted;
    bool here;  // this rank takes part
  };

  void add_pass(RankContext&, std::vector<Path>&,
                const std::vector<std::vector<Region>>& panels, size_t pass);
  void add(RankContext&, Path&, const Step&, Round&);
  void finish(RankContext&, Path&, size_t tensor, size_t pass);
  Tensor make(RankContext&, const Action&, Moving&, bool consume);
  void communicate(RankContext&, Round&);
  void conclude(RankContext&, const Action&, Moving&, Tensor out);

  Plan plan_;
  std::vector<Move> moves_;
  std::vector<Round> rounds_;
  std::vector<Event> events_;
  // Where several passes fill the destination, and its shape.
  std::vector<bool> in_panels_;
  std::vector<Shape> end_shapes_;
  size_t passes_ = 1, weight_ = 1;
  int64_t collectives_ = 0;  // per pass
  // While it runs.
  std::vector<Moving> moving_;
  std::vector<Tensor> outs_;
};

Execution::Execution(RankContext& ctx, std::span<const Move> moves, Plan plan)
    : plan_(std::move(plan)),
      moves_(moves.begin(), moves.end()),
      moving_(moves.size()) {
  std::vector<Path> paths(moves.size());
  for (size_t t = 0; t < moves.size(); ++t) paths[t].memory = moves[t].from;
  for (const Step& s : plan_.steps) {
    Path& path = paths[static_cast<size_t>(s.tensor)];
    DT_CHECK(s.from == path.memory, "redistribute",
             "a plan goes on from {} where it has come to {}",
             s.from->to_string(), path.memory->to_string());
    path.memory = s.to;
    ++path.steps;
    if (makes_memory(s)) path.made = path.steps;
    if (sends(s.kind))
      events_.push_back({s.kind, s.from->mesh(), s.axes, s.bytes, 0, 0, false});
  }
  for (size_t t = 0; t < moves.size(); ++t)
    DT_CHECK(paths[t].memory == moves[t].to, "redistribute",
             "the plan of {} -> {} ends at {}", moves[t].from->to_string(),
             moves[t].to->to_string(), paths[t].memory->to_string());
  std::vector<std::vector<Region>> lists(moves.size());
  if (plan_.chunks > 1)
    lists = panels(plan_, static_cast<int>(moves.size()),
                   ctx.planner.cost().block_bytes);
  for (const auto& list : lists) passes_ = std::max(passes_, list.size());
  for (size_t i = 0, event = 0; i < plan_.steps.size(); ++i) {
    const Step& s = plan_.steps[i];
    if (!sends(s.kind)) continue;
    const auto& list = lists[static_cast<size_t>(s.tensor)];
    // The chunks of the parts are not those of the whole.
    if (s.kind == StepKind::kAllReduce && !list.empty())
      events_[event].predicted = all_reduce_bytes(s, list);
    ++event;
  }
  for (size_t pass = 0; pass < passes_; ++pass)
    add_pass(ctx, paths, lists, pass);
  for (const Move& m : moves) {
    const Coord* at = ctx.coordinate_or_null(m.to->mesh());
    end_shapes_.push_back(at ? m.to->local_shape(*at) : Shape());
  }
  for (const auto& list : lists) in_panels_.push_back(!list.empty());
  for (const Round& r : rounds_)
    for (const Action& a : r.actions)
      weight_ += 4 + a.schedule.pieces.size() + a.schedule.has.size() / 4;
}

void Execution::add_pass(RankContext& ctx, std::vector<Path>& paths,
                         const std::vector<std::vector<Region>>& panels,
                         size_t pass) {
  // A tensor with fewer panels is done by now.
  auto takes_part = [&](size_t t) {
    return pass == 0 || pass < panels[t].size();
  };
  for (size_t t = 0; t < paths.size(); ++t) {
    Path& p = paths[t];
    p.done = 0;
    p.memory = moves_[t].from;
    p.panel = pass < panels[t].size() ? &panels[t][pass] : nullptr;
    p.cut = p.own = p.ended = false;
  }
  size_t event = 0;
  collectives_ = 0;
  for (size_t i = 0; i < plan_.steps.size();) {
    const Step& first = plan_.steps[i];
    Round round;
    round.pass = pass;
    round.kind = first.kind;
    for (; i < plan_.steps.size() && plan_.steps[i].round == first.round; ++i) {
      const Step& s = plan_.steps[i];
      const size_t t = static_cast<size_t>(s.tensor);
      const size_t number = sends(s.kind) ? event++ : 0;
      if (!takes_part(t)) continue;
      const size_t before = round.actions.size();
      add(ctx, paths[t], s, round);
      if (!sends(s.kind)) continue;
      if (round.actions.size() > before) {
        round.actions.back().event = number;
        events_[number].here = true;
      }
      if (pass == 0) events_[number].collective = collectives_ + 1;
      uint64_t print = hash_mix(s.from->hash(), s.to->hash());
      print = hash_mix(print, static_cast<uint64_t>(s.op) + pass * 64);
      round.fingerprint = hash_mix(round.fingerprint, print);
      ++round.tensors;
    }
    if (round.tensors) ++collectives_;
    if (round.actions.empty()) continue;
    if (round.tensors) {
      round.first = &first;
      round.passes = passes_;
      round.communicator =
          first.from->mesh() == first.to->mesh()
              ? &ctx.communicator(first.from->mesh(), first.axes)
              : &ctx.communicator(members(first, ctx.world_rank));
    }
    rounds_.push_back(std::move(round));
  }
  for (size_t t = 0; t < paths.size(); ++t)
    if (takes_part(t)) finish(ctx, paths[t], t, pass);
}

void Execution::add(RankContext& ctx, Path& path, const Step& step,
                    Round& round) {
  const Spec *from = step.from, *to = step.to;
  const Coord* at = ctx.coordinate_or_null(from->mesh());
  const Coord* to_at = ctx.coordinate_or_null(to->mesh());
  ++path.done;
  Action a{};
  a.tensor = static_cast<size_t>(step.tensor);
  if (step.kind == StepKind::kFill) a.fill = fill_of(step, at ? *at : Coord());
  if (!makes_memory(step)) return;

  const Spec* memory = path.memory;
  const bool cut = path.cut, own = path.own;
  const bool last = path.done == path.made && path.done == path.steps;
  const int pairs = sends(step.kind) ? from->components() : to->components();
  a.divides = pairs > to->components();
  a.in_place = step.kind == StepKind::kAllReduce && own && memory == from;
  // Only a collective that writes in pieces can leave out the rest.
  a.into_end =
      last && path.panel && !a.divides && step.kind != StepKind::kAllReduce;
  path.memory = to;
  path.cut = path.panel && !a.into_end;
  path.own = true;
  path.ended = a.into_end;
  if (!at && !to_at) return;

  a.dtype = from->dtype();
  a.op = step.op == ReduceOp::kMean ? ReduceOp::kSum : step.op;
  a.has = held(memory, ctx.world_rank, cut ? path.panel : nullptr);
  a.wants = held(to, ctx.world_rank, path.cut ? path.panel : nullptr);
  a.receives = to_at != nullptr;
  if (a.receives) {
    a.divided = local_shape(a.wants);
    a.shape = with_pairs(a.divided, pairs);
    a.divided = with_pairs(a.divided, to->components());
  }
  switch (step.kind) {
    case StepKind::kFill:
      a.what = Action::Do::kFill;
      a.has = with_pairs(a.has, from->components());
      a.wants = with_pairs(a.wants, from->components());
      // The memory may hold more than the step is about.
      if (at) a.which = own_part(step, *at);
      if (path.panel) a.which = intersect(a.which, *path.panel);
      a.which = with_pairs(a.which, from->components());
      break;
    case StepKind::kAllReduce:
      a.what = Action::Do::kAllReduce;
      // All partials look alike to it.
      a.has = with_pairs(a.has, pairs);
      a.wants = with_pairs(a.wants, pairs);
      a.which = a.wants;
      break;
    default:
      a.what = Action::Do::kTransfer;
      if (ctx.dry_run) break;
      a.schedule =
          schedule(step, ctx.world_rank,
                   path.panel ? with_pairs(*path.panel, pairs) : Region());
      if (a.into_end) a.schedule.wants = HeldRegion(with_pairs(a.wants, pairs));
      if (memory == from && cut == (path.panel != nullptr)) break;
      // The memory holds more than that.
      const std::vector<int64_t> ranks = members(step, ctx.world_rank);
      for (size_t m = 0; m < ranks.size(); ++m)
        if (!a.schedule.has[m].ascending().empty())
          a.schedule.has[m] = HeldRegion(with_pairs(
              held(memory, ranks[m], cut ? path.panel : nullptr), pairs));
  }
  round.actions.push_back(std::move(a));
}

// What the steps left becomes the destination, or a panel of it.
void Execution::finish(RankContext& ctx, Path& path, size_t tensor,
                       size_t pass) {
  const Spec* to = moves_[tensor].to;
  if (path.ended || !ctx.coordinate_or_null(to->mesh())) return;
  if (path.panel == nullptr && path.memory == to) return;
  Action a{};
  a.tensor = tensor;
  a.what = path.own ? Action::Do::kCopy : Action::Do::kView;
  a.into_end = path.panel != nullptr;
  a.dtype = to->dtype();
  a.has = with_pairs(
      held(path.memory, ctx.world_rank, path.cut ? path.panel : nullptr),
      to->components());
  a.wants = with_pairs(held(to, ctx.world_rank, nullptr), to->components());
  if (!a.into_end && a.has == a.wants) return;
  a.which = with_pairs(held(to, ctx.world_rank, path.panel), to->components());
  a.shape = local_shape(a.wants);
  Round round;
  round.pass = pass;
  round.actions.push_back(std::move(a));
  rounds_.push_back(std::move(round));
}

// The memory that the action writes to, made ready.
Tensor Execution::make(RankContext& ctx, const Action& a, Moving& m,
                       bool consume) {
  using Do = Action::Do;
  if (a.what == Do::kView) return window(m.now, a.has, a.wants);
  if (a.in_place) return m.now;
  const bool fresh = !a.into_end || !m.end.defined();
  Tensor out;
  if (a.into_end) {
    if (fresh) m.end = Tensor::empty(end_shapes_[a.tensor], a.dtype);
    out = m.end;
  } else if (a.what == Do::kAllReduce && consume && m.now.contiguous() &&
             m.now.shape() == a.shape && m.now.storage().use_count() == 1 &&
             m.now.storage()->bytes() == m.now.bytes()) {
    return m.now;
  } else if (a.receives) {
    out = Tensor::empty(a.shape, a.dtype);
  }
  if (ctx.dry_run) return out;
  if (a.what == Do::kCopy) copy_indices(a.which, out, a.wants, m.now, a.has);
  if (a.what == Do::kAllReduce) {
    if (m.now.shape() == a.shape)
      out.copy_from(m.now);
    else
      copy_indices(a.which, out, a.wants, m.now, a.has);
  }
  if (a.what != Do::kFill) return out;
  if (fresh && a.fill.outside) out.fill(identity_value(*a.fill.outside));
  Tensor values = out;
  if (a.fill.counts) {
    if (fresh) out.slice(0, 1, 2).fill(1);
    Shape shape = out.shape();
    shape.erase(0);
    values = out.slice(0, 0, 1).reshape(shape);
  }
  if (a.fill.keeps) copy_indices(a.which, values, a.wants, m.now, a.has);
  return out;
}

void Execution::communicate(RankContext& ctx, Round& r) {
  const Call call{r.kind, ctx.op, r.fingerprint, describe, &r};
  if (r.kind == StepKind::kAllReduce) {
    r.buffers.clear();
    for (size_t i = 0; i < r.actions.size(); ++i)
      r.buffers.push_back({r.actions[i].op, r.actions[i].dtype, outs_[i].data(),
                           outs_[i].numel()});
    r.communicator->all_reduce(call, ctx.stream, r.buffers);
    for (size_t i = 0; i < r.actions.size(); ++i)
      events_[r.actions[i].event].counted += r.buffers[i].counted;
    return;
  }
  r.transfers.clear();
  for (size_t i = 0; i < r.actions.size(); ++i) {
    const Action& a = r.actions[i];
    const Tensor &src = moving_[a.tensor].now, &dst = outs_[i];
    const int ndim = static_cast<int>(a.schedule.wants.ascending().size());
    const Shape none = Shape::filled(ndim, 1);
    r.transfers.push_back({&a.schedule, a.dtype,
                           src.defined() && src.numel() ? src.data() : nullptr,
                           src.defined() ? src.strides() : none,
                           dst.defined() && dst.numel() ? dst.data() : nullptr,
                           dst.defined() ? dst.strides() : none, a.op});
  }
  if (reduces(r.kind))
    r.communicator->reduce(call, ctx.stream, r.transfers);
  else
    r.communicator->exchange(call, ctx.stream, r.transfers);
  for (size_t i = 0; i < r.actions.size(); ++i)
    events_[r.actions[i].event].counted += r.transfers[i].counted;
}

void Execution::conclude(RankContext& ctx, const Action& a, Moving& m,
                         Tensor out) {
  if (a.into_end) {
    m.now = Tensor();
  } else if (a.divides) {
    m.now = Tensor();
    m.now = Tensor::empty(a.divided, a.dtype);
    if (!ctx.dry_run) divide_pairs(out, m.now);
  } else {
    m.now = std::move(out);
  }
}

void Execution::run(RankContext& ctx, std::span<Tensor> parts, bool consume) {
  // Whatever happens, nothing is kept alive.
  struct Release {
    Execution& e;
    ~Release() {
      for (Moving& m : e.moving_) m = {};
      e.outs_.clear();
    }
  } release{*this};
  for (size_t t = 0; t < parts.size(); ++t) {
    moving_[t].now = std::move(parts[t]);
    if (in_panels_[t]) moving_[t].source = moving_[t].now;
  }
  for (Event& e : events_) e.counted = 0;
  size_t pass = 0;
  for (Round& r : rounds_) {
    if (r.pass != pass) {
      pass = r.pass;
      for (Moving& m : moving_)
        if (m.source.defined()) m.now = m.source;
    }
    outs_.clear();
    for (const Action& a : r.actions)
      outs_.push_back(make(ctx, a, moving_[a.tensor], consume));
    if (r.communicator && !ctx.dry_run) communicate(ctx, r);
    for (size_t i = 0; i < r.actions.size(); ++i)
      conclude(ctx, r.actions[i], moving_[r.actions[i].tensor],
               std::move(outs_[i]));
  }
  for (size_t t = 0; t < parts.size(); ++t)
    parts[t] =
        std::move(moving_[t].end.defined() ? moving_[t].end : moving_[t].now);
  if (ctx.record)
    for (const Event& e : events_)
      if (e.here)
        ctx.events.push_back({e.mesh, e.axes, e.kind, std::string(ctx.op),
                              ctx.phase, e.predicted, e.counted,
                              ctx.collectives + e.collective,
                              static_cast<int64_t>(passes_)});
  ctx.collectives += collectives_;
}

namespace {

// The executions that this rank keeps.
struct Executions : RankContext::Memory {
  std::unordered_multimap<uint64_t, std::shared_ptr<Execution>> known;
  size_t weight = 0;
};

}  // namespace

std::shared_ptr<Execution> execution(RankContext& ctx,
                                     std::span<const Move> moves) {
  constexpr size_t kMost = 1 << 18;
  if (!ctx.executions) ctx.executions = std::make_unique<Executions>();
  auto& all = static_cast<Executions&>(*ctx.executions);
  uint64_t h = moves.size();
  for (const Move& m : moves) {
    h = hash_mix(h, reinterpret_cast<uint64_t>(m.from));
    h = hash_mix(h, reinterpret_cast<uint64_t>(m.to));
  }
  auto [first, last] = all.known.equal_range(h);
  for (auto it = first; it != last; ++it)
    if (std::equal(moves.begin(), moves.end(), it->second->moves().begin(),
                   it->second->moves().end()))
      return it->second;
  const Plan& plan = moves.size() == 1
                         ? ctx.planner.plan(moves[0].from, moves[0].to)
                         : ctx.planner.plan(moves);
  auto made = std::make_shared<Execution>(ctx, moves, plan);
  if (all.weight + made->weight() > kMost) {
    all.known.clear();
    all.weight = 0;
  }
  all.weight += made->weight();
  all.known.emplace(h, made);
  return made;
}

const Plan& plan_of(const Execution& e) { return e.plan(); }

void execute(RankContext& ctx, Execution& e, std::span<Tensor> parts,
             bool consume) {
  e.run(ctx, parts, consume);
}

}  // namespace dtensor
