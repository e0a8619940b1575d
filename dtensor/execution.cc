// SPDX-License-Identifier: Apache-2.0
#include "dtensor/execution.h"

#include <algorithm>
#include <utility>

#include "dtensor/placement/bounded_cache.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/placement/panels.h"
#include "dtensor/placement/step_schedule.h"

namespace dtensor {
namespace {

// Adds the leading dimension of (sum, count) pairs if there are two components.
Region with_pairs(Region r, int components) {
  if (components > 1) r.insert(r.begin(), IntervalList{{0, components}});
  return r;
}

// The global indices that a rank of the run holds of a tensor, limited to
// `panel` if that is not null. No dimension has indices if the rank is not in
// the mesh.
Region held(const Spec* spec, int64_t world_rank, const Region* panel) {
  const int64_t rank = spec->mesh().mesh_rank_of(world_rank);
  const size_t ndim = static_cast<size_t>(spec->ndim());
  Region r =
      rank < 0 ? Region(ndim) : spec->region(spec->mesh().coordinate(rank));
  return panel ? intersect(r, *panel) : r;
}

Shape with_pairs(Shape s, int components) {
  if (components > 1) s.insert(0, components);
  return s;
}

// The group in which this rank takes part in the step.
Communicator& communicator_of(RankContext& ctx, const Step& step) {
  if (step.from->mesh() == step.to->mesh())
    return ctx.communicator(step.from->mesh(), step.axes);
  return ctx.communicator(members(step, ctx.world_rank));
}

// The most bytes that any rank receives in a step that all-reduces panel by
// panel.
int64_t all_reduce_bytes(const Step& step, const std::vector<Region>& panels,
                         bool one_shot) {
  const Mesh& mesh = step.from->mesh();
  int64_t most = 0;
  for_each_coord(mesh, step.from->split_axes(), [&](const Coord& c) {
    int64_t n = 0;
    for (const Region& panel : panels)
      n += all_reduce_elements(volume(intersect(step.from->region(c), panel)) *
                                   step.from->components(),
                               mesh.size_of(step.axes), one_shot);
    most = std::max(most, n);
  });
  return most * size_of(step.from->dtype());
}

}  // namespace

std::string Execution::Round::to_string() const {
  std::string text =
      fmt::format("{} -> {} on {}", first->from->to_string(),
                  first->to->to_string(), first->from->mesh().to_string());
  if (tensors > 1) text += fmt::format(" and {} more tensors", tensors - 1);
  if (passes > 1) text += fmt::format(", part {} of {}", pass + 1, passes);
  return text;
}

Execution::Execution(RankContext& ctx, std::span<const Move> given, Plan plan)
    : plan_(std::move(plan)) {
  for (const Move& m : given) {
    moves_.push_back(of_parts(m));
    end_types_.push_back(m.to->part_dtype());
  }
  const std::span<const Move> moves = moves_;
  std::vector<Path> paths(moves.size());
  for (size_t t = 0; t < moves.size(); ++t) paths[t].memory = moves[t].from;
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    const Step& s = plan_.steps[i];
    Path& path = paths[static_cast<size_t>(s.tensor)];
    DT_CHECK(s.from == path.memory, "redistribute",
             "a plan continues from {}, but its steps so far lead to {}, which "
             "is an error in dtensor; report it",
             s.from->to_string(), path.memory->to_string());
    path.memory = s.to;
    ++path.steps;
    if (makes_memory(s)) path.made = path.steps;
    // Between meshes, the event belongs to the destination's mesh.
    if (sends(s.kind))
      sent_.push_back({s.kind, s.to->mesh(), s.axes, i, s.bytes});
  }
  for (size_t t = 0; t < moves.size(); ++t)
    DT_CHECK(paths[t].memory == moves[t].to, "redistribute",
             "the plan of {} -> {} ends at {}, which is an error in dtensor; "
             "report it",
             moves[t].from->to_string(), moves[t].to->to_string(),
             paths[t].memory->to_string());
  std::vector<std::vector<Region>> lists(moves.size());
  if (plan_.chunks > 1)
    lists = panels(plan_, static_cast<int>(moves.size()),
                   ctx.planner.cost().block_bytes);
  for (const auto& list : lists) passes_ = std::max(passes_, list.size());
  for (Sent& sent : sent_) {
    const Step& s = plan_.steps[sent.step];
    const auto& list = lists[static_cast<size_t>(s.tensor)];
    // The all-reduce of each panel divides the panel into chunks, one for each
    // member, and rounds the largest chunk up. So all panels together may take
    // more bytes than one all-reduce.
    if (s.kind == StepKind::kAllReduce && !list.empty())
      sent.predicted =
          all_reduce_bytes(s, list, one_shot(s.from, ctx.planner.cost()));
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
  // A tensor with fewer panels than other tensors is done earlier.
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
        sent_[number].here = true;
      }
      if (pass == 0) sent_[number].collective = collectives_ + 1;
      uint64_t print = hash_mix(s.from->hash(), s.to->hash());
      print = hash_mix(print, static_cast<uint64_t>(s.op) + pass * 64);
      round.fingerprint = hash_mix(round.fingerprint, print);
      ++round.tensors;
    }
    if (round.tensors) ++collectives_;
    if (round.actions.empty()) continue;
    if (round.tensors) {
      round.first = &first;
      round.between = first.from->mesh() != first.to->mesh();
      round.passes = passes_;
      round.communicator = &communicator_of(ctx, first);
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
  // An all-reduce or a division writes contiguous memory, and cannot write one
  // panel of the destination.
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
      // Copy only the indices in Fill::own: the memory may hold more.
      a.which = std::move(a.fill.own);
      a.pairs = to->components() > 1;
      if (!path.panel) break;
      a.which = intersect(a.which, *path.panel);
      for (Fill::Identity& f : a.fill.identities)
        f.where = intersect(f.where, *path.panel);
      break;
    case StepKind::kAllReduce:
      a.what = Action::Do::kAllReduce;
      a.one_shot = one_shot(from, ctx.planner.cost());
      // An all-reduce treats the two components of pairs as one more dimension.
      a.has = with_pairs(a.has, pairs);
      a.wants = with_pairs(a.wants, pairs);
      a.which = a.wants;
      break;
    default:
      a.what = Action::Do::kTransfer;
      if (ctx.dry_run) break;
      const Region panel =
          path.panel ? with_pairs(*path.panel, pairs) : Region();
      a.schedule = schedule(step, ctx.world_rank, panel);
      if (communicator_of(ctx, step).needs_serves())
        serve(a.schedule, step, ctx.world_rank, panel);
      if (a.into_end) a.schedule.wants = HeldRegion(with_pairs(a.wants, pairs));
      if (memory == from && cut == (path.panel != nullptr)) break;
      // The members' memory may hold more indices than the step's source or the
      // panel. Tell the schedule which ones, so that it finds the places of
      // the pieces in that memory.
      const std::vector<int64_t> ranks = members(step, ctx.world_rank);
      for (size_t m = 0; m < ranks.size(); ++m)
        if (!a.schedule.has[m].ascending().empty())
          a.schedule.has[m] = HeldRegion(with_pairs(
              held(memory, ranks[m], cut ? path.panel : nullptr), pairs));
  }
  round.actions.push_back(std::move(a));
}

// Adds the local action, if one is needed, that makes the destination, or one
// panel of the destination, from the memory that the steps left.
void Execution::finish(RankContext& ctx, Path& path, size_t tensor,
                       size_t pass) {
  const Spec* to = moves_[tensor].to;
  if (path.ended || !ctx.coordinate_or_null(to->mesh())) return;
  if (path.panel == nullptr && path.memory == to) return;
  Action a{};
  a.tensor = tensor;
  // A rank outside the memory's mesh has nothing to view.
  const bool outside = !ctx.coordinate_or_null(path.memory->mesh());
  a.what = path.own || outside ? Action::Do::kCopy : Action::Do::kView;
  a.into_end = path.panel != nullptr;
  a.dtype = to->dtype();
  a.has = with_pairs(
      held(path.memory, ctx.world_rank, path.cut ? path.panel : nullptr),
      to->components());
  a.wants = with_pairs(held(to, ctx.world_rank, nullptr), to->components());
  if (!a.into_end && a.has == a.wants && !outside) return;
  a.which = with_pairs(held(to, ctx.world_rank, path.panel), to->components());
  a.shape = local_shape(a.wants);
  Round round;
  round.pass = pass;
  round.actions.push_back(std::move(a));
  rounds_.push_back(std::move(round));
}

namespace {

// This rank's cache of executions.
struct Executions : RankServices::Service {
  BoundedCache<std::vector<Move>, std::shared_ptr<const Execution>, MovesHash,
               SameMoves>
      known{"executions", cache_limit::kExecutions};
};

Executions& memory(RankContext& ctx) { return ctx.services.get<Executions>(); }

}  // namespace

std::shared_ptr<const Execution> execution(RankContext& ctx,
                                           std::span<const Move> moves) {
  auto& known = memory(ctx).known;
  if (const auto* found = known.find(moves)) return *found;
  const Plan& plan = moves.size() == 1
                         ? ctx.planner.plan(moves[0].from, moves[0].to)
                         : ctx.planner.plan(moves);
  auto made = std::make_shared<const Execution>(ctx, moves, plan);
  const size_t weight = made->weight();
  return known.insert({moves.begin(), moves.end()}, std::move(made), weight);
}

const Step* step_of(const CommEvent& event) {
  if (!event.execution) return nullptr;
  const Execution& e = *event.execution;
  return &e.plan().steps[e.sent()[event.place].step];
}

CacheUse execution_use(RankContext& ctx) { return memory(ctx).known.use(); }

}  // namespace dtensor
