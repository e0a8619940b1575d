// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/compute.h"

#include <algorithm>
#include <map>

#include "dtensor/exposed.h"
#include "dtensor/local_part.h"
#include "dtensor/ops/op.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/placement/received.h"
#include "dtensor/placement/schedule.h"
#include "dtensor/redistribute.h"

namespace dtensor {

// One collective inside an operator, as this rank takes part in it. Kept in
// Decision::inner for later calls, except by Compute::exchange().
struct InnerExchange {
  StepKind kind = StepKind::kAllReduce;
  AxisMask axes = 0;
  Communicator* communicator = nullptr;
  uint64_t fingerprint = 0;
  // For reduce_rows(): rows[n] is the number of ranks that have n rows.
  std::map<int64_t, int64_t> rows;
  // For boxes: the largest number of elements that a rank receives, and the sum
  // over all ranks.
  int64_t most = 0, by_all = 0;
  bool idle = false;  // no rank needs what another one has
  bool adds = false;  // if reproducible: several ranks have terms of one sum
  Region has, wants;
  Shape shape;
  Schedule schedule;
};

namespace {

// Describes a collective inside an operator, for the Error that is thrown if
// its members disagree.
struct Subject {
  const Op& op;
  const Tensor& tensor;
  const char* what;
  const RankContext& context;
  static std::string describe(const void* subject) {
    const Subject& s = *static_cast<const Subject*>(subject);
    return fmt::format("{}{}, {} inside {}", name(s.tensor.dtype()),
                       to_string(s.tensor.shape()), s.what, s.op.name());
  }
  static std::string made(const void* subject) {
    return static_cast<const Subject*>(subject)->context.about_text();
  }
  Call call(StepKind kind, uint64_t fingerprint) const {
    return {kind, op.name(),         fingerprint, describe,
            this, context.lineage(), made};
  }
};

// Calls region() for the coordinate of each rank in this rank's group over
// `axes`, in the group's order.
std::vector<Region> of_group(const Compute& c, AxisMask axes,
                             const Compute::RegionOf& region) {
  std::vector<Region> regions;
  for (int64_t r : c.mesh().group(axes, c.coord()))
    regions.push_back(region(c.mesh().coordinate(r)));
  return regions;
}

// A rank receives `all` - `own` elements: it needs `all` elements, and has
// `own` of them. Returns the largest such difference of any rank, and the sum
// over all ranks. `own` is a product over the dimensions, and `all` is such a
// product times `copies`. For dimensions whose indices depend on common axes
// (DimsTogether, received.h), measure(dims, axes, c) returns their factors of
// `all` and `own` at coordinate c.
struct Lack {
  int64_t most = 0, by_all = 0;
};
template <class Measure>
Lack lack_of_all(const Mesh& mesh, std::span<const AxisMask> depend,
                 Measure&& measure, int64_t copies = 1) {
  using Pair = std::pair<int64_t, int64_t>;
  std::map<Pair, int64_t> ranks{{{copies, 1}, 1}};  // how many by {all, own}
  AxisMask left = mesh.all_axes();
  for (const auto& [dims, axes] : dims_together(depend)) {
    std::map<Pair, int64_t> here, both;
    for_each_coord(mesh, axes,
                   [&](const Coord& c) { ++here[measure(dims, axes, c)]; });
    for (const auto& [a, n] : ranks)
      for (const auto& [b, m] : here)
        both[{a.first * b.first, a.second * b.second}] += n * m;
    ranks = std::move(both);
    left &= ~axes;
  }
  Lack lack;
  for (const auto& [pair, n] : ranks) {
    lack.most = std::max(lack.most, pair.first - pair.second);
    lack.by_all += (pair.first - pair.second) * n * mesh.size_of(left);
  }
  return lack;
}

// Returns `depend`. If that is empty, every dimension depends on all axes.
std::vector<AxisMask> given_or_all(const Compute& c,
                                   std::span<const AxisMask> depend,
                                   size_t dims) {
  if (depend.empty()) return std::vector<AxisMask>(dims, c.mesh().all_axes());
  return {depend.begin(), depend.end()};
}

int index_in_group(const Compute& c, AxisMask axes) {
  const auto group = c.mesh().group(axes, c.coord());
  const auto me =
      std::find(group.begin(), group.end(), c.mesh().rank(c.coord()));
  return static_cast<int>(me - group.begin());
}

}  // namespace

void Compute::allocate_outputs() {
  for (size_t o = 0; o < decision.out.size(); ++o)
    out.push_back(op.facts().allocates && decision.here
                      ? Tensor::empty(decision.out_local[o],
                                      decision.out[o]->part_dtype())
                      : Tensor());
}

AxisMask Compute::axes_of(char factor) const {
  int f = decision.rule->rule().factor(factor);
  return f < 0 ? 0 : decision.assignment.dims[static_cast<size_t>(f)].axes();
}

bool Compute::first_of(char factor) const {
  const AxisMask axes = axes_of(factor);
  for (int a = 0; axes >> a; ++a)
    if ((axes >> a & 1) && coord()[a] != 0) return false;
  return true;
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

int64_t Compute::rows_at(char factor, const Coord& at) const {
  const Rule& rule = decision.rule->rule();
  const Rule::Term& term = rule.inputs()[0];
  const Shape part = decision.in[0]->local_shape(at);
  int64_t rows = 1;
  for (size_t d = 0; d < term.size(); ++d)
    if (term[d] != Rule::DimFactors{rule.factor(factor)})
      rows *= part[static_cast<int>(d)];
  return rows;
}

int64_t Compute::place_of(char factor, const Coord& at) const {
  const int f = decision.rule->rule().factor(factor);
  const Dim& dim = decision.assignment.dims[static_cast<size_t>(f)];
  // Empty parts come last; parts with the same begin are ordered by rank.
  const auto begin = [&](int64_t rank) {
    IntervalList has;
    dim.intervals(mesh(), mesh().coordinate(rank), has);
    return std::pair(has.empty() ? dim.size() : has[0].lo, rank);
  };
  const auto mine = begin(mesh().rank(at));
  int64_t place = 0;
  for (int64_t r : mesh().group(dim.axes(), at)) place += begin(r) < mine;
  return place;
}

// Returns the InnerExchange for this call's next collective: the one that the
// decision's first call made, or an empty one for the caller to fill in.
InnerExchange* Compute::next_exchange() {
  auto& all = decision.inner;
  if (exchanges_ == all.size())
    all.push_back(std::make_shared<InnerExchange>());
  return all[exchanges_++].get();
}

static std::string inputs_of(const Decision& decision) {
  std::string t;
  for (const auto& spec : decision.in)
    t += (t.empty() ? "" : ", ") + spec->to_string();
  return t;
}

void Compute::check_order() const {
  DT_CHECK(!context.reproducible, op.name(),
           "would combine the values of several ranks in an order that depends "
           "on the mesh (the inputs are {}); leave --reproducible out, or do "
           "not split sequences, features, heads, experts or the vocabulary",
           inputs_of(decision));
}

// The error begins with "would have to communicate", like that for inputs that
// have to move (check_allowed() in op.cc).
void Compute::allow(StepKind kind, int64_t bytes) {
  DT_CHECK(
      !context.explicit_only, op.name(),
      "would have to communicate while it computes ({}, {} bytes), which "
      "ExplicitOnly forbids, because an input is split along a dimension that "
      "is needed whole; call redistribute() on it first (the inputs are {})",
      name(kind), bytes, inputs_of(decision));
  if (context.comm_budget >= 0)
    spend_budget(context, bytes, "a collective inside " + op.name());
}

void Compute::reduce_rows(const Tensor& t, char factor, ReduceOp reduce_op,
                          int64_t per_row) {
  const AxisMask axes = axes_of(factor);
  if (!axes) return;
  if (is_float(t.dtype()) && reduce_op != ReduceOp::kMax &&
      reduce_op != ReduceOp::kMin)
    check_order();
  InnerExchange& e = *next_exchange();
  if (!e.communicator) {
    e.axes = axes;
    for_each_coord(mesh(), mesh().all_axes(),
                   [&](const Coord& at) { ++e.rows[rows_at(factor, at)]; });
    e.fingerprint =
        hash_mix(hash_text(op.name()), static_cast<uint64_t>(reduce_op));
    e.communicator = &context.communicator(mesh(), axes);
  }
  // Small messages use the one-shot algorithm, in which a rank may receive more
  // bytes than for a larger message. So all numbers of rows are looked at.
  const int64_t item = size_of(t.dtype());
  const auto one_shot = [&](int64_t n) {
    return n * item <= context.planner.cost().one_shot_bytes;
  };
  int64_t bytes = 0, by_all = 0;
  const int64_t size = mesh().size_of(axes);
  for (const auto& [rows, ranks] : e.rows) {
    const int64_t n = rows * per_row;
    bytes = std::max(bytes, all_reduce_elements(n, size, one_shot(n)) * item);
    by_all +=
        ranks / size * all_reduce_elements_of_all(n, size, one_shot(n)) * item;
  }
  allow(e.kind, bytes);
  int64_t counted = 0;
  if (!context.dry_run) {
    const Subject subject{op, t, "a reduction", context};
    Buffer b{.op = reduce_op,
             .dtype = t.dtype(),
             .data = t.mutable_data(),
             .n = t.numel(),
             .one_shot = one_shot(t.numel())};
    const uint64_t print =
        hash_mix(e.fingerprint, static_cast<uint64_t>(t.dtype()) * 31 +
                                    static_cast<uint64_t>(t.numel()));
    const Exposed sending(context);
    e.communicator->all_reduce(subject.call(e.kind, print), stream, {&b, 1});
    counted = b.counted;
  }
  record_event(context, mesh(), axes, e.kind, bytes, counted, by_all);
}

Tensor Compute::fetch(const Tensor& part, AxisMask axes, const RegionOf& holds,
                      const RegionOf& wants, AxesOfDims depend) {
  InnerExchange& e = *next_exchange();
  if (!e.communicator) {
    e.has = holds(coord());
    e.wants = wants(coord());
    const Lack lack = lack_of_all(
        mesh(), given_or_all(*this, depend, e.has.size()),
        [&](const std::vector<size_t>& dims, AxisMask, const Coord& c) {
          const Region w = wants(c), h = holds(c);
          std::pair<int64_t, int64_t> n{1, 1};
          for (const size_t d : dims) {
            n.first *= length(w[d]);
            n.second *= overlap(w[d], h[d]);
          }
          return n;
        });
    e.most = lack.most;
    e.by_all = lack.by_all;
    e.idle = e.most == 0;
    e.kind = StepKind::kAllToAll;
    e.axes = axes;
    e.shape = local_shape(e.wants);
    e.schedule = exchange_schedule(e.wants, of_group(*this, axes, holds),
                                   index_in_group(*this, axes), op.name());
    e.fingerprint = hash_mix(hash_text(op.name()), 1);
    e.communicator = &context.communicator(mesh(), axes);
    if (e.communicator->needs_serves())
      serve_exchange(e.schedule, of_group(*this, axes, wants));
  }
  // `idle` depends on the regions of all ranks, so either all ranks skip the
  // exchange, or none does.
  if (e.idle) return window(part, e.has, e.wants);
  allow(e.kind, e.most * size_of(part.dtype()));
  return move_boxes(part, e, "boxes");
}

Tensor Compute::collect_sum(const Tensor& part, AxisMask axes,
                            const RegionOf& holds, const RegionOf& wants,
                            AxesOfDims depend) {
  InnerExchange& e = *next_exchange();
  if (!e.communicator) {
    e.has = holds(coord());
    e.wants = wants(coord());
    const std::vector<AxisMask> of_dims =
        given_or_all(*this, depend, e.has.size());
    // The axes of the group on which no dimension depends. Members that differ
    // only in these hold the same region, and each adds a term to the sum.
    AxisMask free = axes;
    for (const AxisMask of_dim : of_dims) free &= ~of_dim;
    bool same = true;
    const Lack lack = lack_of_all(
        mesh(), of_dims,
        [&](const std::vector<size_t>& dims, AxisMask its, const Coord& c) {
          const Region w = wants(c);
          const auto common = [&](const Region& h) {
            int64_t n = 1;
            for (const size_t d : dims) n *= overlap(w[d], h[d]);
            return n;
          };
          const Region own = holds(c);
          for (const size_t d : dims) same &= w[d] == own[d];
          std::pair<int64_t, int64_t> n{0, common(own)};
          for (int64_t r : mesh().group(axes & its, c))
            n.first += common(holds(mesh().coordinate(r)));
          return n;
        },
        mesh().size_of(free));
    e.most = lack.most;
    e.by_all = lack.by_all;
    e.idle = e.most == 0 && same;
    if (context.reproducible)
      for_each_coord(mesh(), mesh().all_axes(), [&](const Coord& c) {
        for (const int64_t r : mesh().group(axes, c))
          e.adds |= r > mesh().rank(c) &&
                    overlap(holds(c), holds(mesh().coordinate(r))) > 0;
      });
    e.kind = StepKind::kReduceScatter;
    e.axes = axes;
    e.shape = local_shape(e.wants);
    e.schedule = reduce_schedule(e.wants, of_group(*this, axes, holds),
                                 index_in_group(*this, axes));
    e.fingerprint = hash_mix(hash_text(op.name()), 2);
    e.communicator = &context.communicator(mesh(), axes);
    if (e.communicator->needs_serves())
      serve_reduction(e.schedule, of_group(*this, axes, wants));
  }
  if (e.idle) return part;
  if (e.adds) check_order();
  allow(e.kind, e.most * size_of(part.dtype()));
  return move_boxes(part, e, "sums of boxes");
}

Tensor Compute::move_boxes(const Tensor& part, InnerExchange& e,
                           const char* what) {
  const Tensor out = Tensor::empty(e.shape, part.dtype());
  Transfer t{.schedule = &e.schedule,
             .dtype = part.dtype(),
             .src = part.numel() ? part.data() : nullptr,
             .src_strides = part.strides(),
             .dst = out.numel() ? out.mutable_data() : nullptr,
             .dst_strides = out.strides()};
  if (!context.dry_run) {
    const Subject subject{op, part, what, context};
    const Call call = subject.call(e.kind, e.fingerprint);
    const Exposed sending(context);
    if (e.kind == StepKind::kReduceScatter)
      e.communicator->reduce(call, stream, {&t, 1});
    else
      e.communicator->exchange(call, stream, {&t, 1});
  }
  const int64_t item = size_of(part.dtype());
  record_event(context, mesh(), e.axes, e.kind, e.most * item, t.counted,
               e.by_all * item);
  return out;
}

std::vector<int64_t> Compute::gather_numbers(AxisMask axes,
                                             std::span<const int64_t> mine) {
  Communicator& group = context.communicator(mesh(), axes);
  std::vector<int64_t> all(mine.size() * static_cast<size_t>(group.size()));
  const Exposed sending(context);
  group.all_gather_bytes({.kind = StepKind::kAllGatherBytes,
                          .op = op.name(),
                          .lineage = context.lineage()},
                         mine.data(), static_cast<int64_t>(mine.size_bytes()),
                         all.data());
  return all;
}

Tensor Compute::exchange(const Tensor& part, AxisMask axes,
                         std::span<const Region> holds,
                         std::span<const Region> wants) {
  const int me = index_in_group(*this, axes);
  InnerExchange e;
  e.kind = StepKind::kAllToAll;
  e.axes = axes;
  e.fingerprint = hash_mix(hash_text(op.name()), 3);
  for (size_t m = 0; m < wants.size(); ++m) {
    const int64_t lack = volume(wants[m]) - overlap(wants[m], holds[m]);
    e.most = std::max(e.most, lack);
    e.by_all += lack;
    e.fingerprint = hash_of(hash_of(e.fingerprint, holds[m]), wants[m]);
  }
  // A rank knows only the regions of its own group. It assumes that the members
  // of every other group receive as many elements.
  e.by_all *= mesh().num_ranks() / mesh().size_of(axes);
  const Region& mine = wants[static_cast<size_t>(me)];
  e.shape = local_shape(mine);
  if (!context.dry_run) {
    e.communicator = &context.communicator(mesh(), axes);
    e.schedule = exchange_schedule(mine, holds, me, name(e.kind));
    if (e.communicator->needs_serves()) serve_exchange(e.schedule, wants);
  }
  return move_boxes(part, e, "rows");
}

}  // namespace dtensor
