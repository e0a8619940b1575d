// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/step_schedule.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/placement/sources.h"

namespace dtensor {
namespace {

AxisMask bit(int axis) { return AxisMask{1} << axis; }

// A mixed-radix number. Its digits are the coordinates on some axes.
struct Digits {
  const Mesh& mesh;
  AxisMask axes;
  int64_t count() const { return mesh.size_of(axes); }
  template <class At>
  int64_t value(At&& coordinate) const {
    int64_t v = 0;
    for (int a = 0; a < mesh.num_axes(); ++a)
      if (axes & bit(a)) v = v * mesh.axis_size(a) + coordinate(a);
    return v;
  }
  template <class Set>
  void spread(int64_t v, Set&& set) const {
    for (int a = mesh.num_axes() - 1; a >= 0; --a) {
      if (!(axes & bit(a))) continue;
      set(a, static_cast<int32_t>(v % mesh.axis_size(a)));
      v /= mesh.axis_size(a);
    }
  }
};

bool crosses(const Step& step) { return step.from->mesh() != step.to->mesh(); }

// Makes one rank's schedule of a step.
class StepSchedule {
 public:
  // `ranks` are the step's members. Only a step between two meshes uses them.
  StepSchedule(const Step&, int64_t world_rank, const Region& panel,
               std::span<const int64_t> ranks);
  Schedule make();
  // The indices that this rank has and, for takes(), all holders that share
  // some of them, for each dimension of memory.
  Region has() const;
  std::vector<std::vector<Holder>> holders(const Region& has) const;
  // Calls fn(region) for every piece that this rank takes from member `from`,
  // which has the indices `has` (ascending).
  template <class Fn>
  void takes(int from, const Region& has,
             const std::vector<std::vector<Holder>>& holders, Fn&& fn);

 private:
  Region in_memory(Region) const;
  int index_of(int64_t world_rank) const;  // in ranks_
  // Returns the number of the rank from which this rank takes a piece; if the
  // piece is a sum over several ranks, the first of them. The piece is the
  // product of one part of each dimension: d contributes
  // dims_[d].parts[part[d]]. Sets holder_ to the holder of each of these parts.
  int64_t giver(const std::vector<size_t>& part);
  int64_t turn(const std::vector<size_t>& part, int64_t number) const;
  // Fills dims_: in each dimension d of memory, groups the wanted indices by
  // their holders. each(d, add) must call add(list, offset), with the members
  // of Holder, for every holder that may have some of these indices.
  template <class Each>
  void cut(const Region& wants, Each&& each);
  // Calls fn(part, number) for every piece, with the number of the rank that
  // gives its first term.
  template <class Fn>
  void each_piece(Fn&& fn);
  int member(int64_t number) const {
    return across_ ? index_of(mesh_.world_rank(number))
                   : static_cast<int>(number);
  }
  bool pairs() const { return from_.components() > 1; }

  const Step& step_;
  const Spec &from_, &to_;
  const Mesh &mesh_, &onto_;
  const bool across_;
  const int64_t world_rank_, from_rank_, to_rank_;  // -1: not in that mesh
  const Coord at_, to_at_;
  const Region& panel_;
  const Sources sources_;
  std::span<const int64_t> ranks_;  // the members, between two meshes
  // The axes of the source by their role. The index that is wanted decides the
  // coordinates on split axes. A reduction reads from all coordinates on
  // `terms_`. On `choice_` there are copies, of which one is chosen. On the
  // axes `kept_`, source and destination have copies at every coordinate, and a
  // receiver reads from the copy at its own coordinate. The receivers of one
  // index differ in `turns_`.
  AxisMask terms_ = 0, kept_ = 0;
  Digits choice_, turns_;
  std::vector<SourceDim> dims_;  // by dimension of memory
  std::vector<int> holder_;      // by dimension, of the piece being made
};

Coord coordinate(const Mesh& mesh, int64_t rank) {
  return rank < 0 ? Coord() : mesh.coordinate(rank);
}

StepSchedule::StepSchedule(const Step& step, int64_t world_rank,
                           const Region& panel, std::span<const int64_t> ranks)
    : step_(step),
      from_(*step.from),
      to_(*step.to),
      mesh_(from_.mesh()),
      onto_(to_.mesh()),
      across_(crosses(step)),
      world_rank_(world_rank),
      from_rank_(mesh_.mesh_rank_of(world_rank)),
      to_rank_(onto_.mesh_rank_of(world_rank)),
      at_(coordinate(mesh_, from_rank_)),
      to_at_(coordinate(onto_, to_rank_)),
      panel_(panel),
      sources_(from_, across_ ? mesh_.all_axes() : step.axes, at_),
      ranks_(ranks),
      choice_{mesh_, 0},
      turns_{onto_, 0} {
  const std::string_view where = name(step.kind);
  DT_CHECK(sends(step.kind) && step.kind != StepKind::kAllReduce, where,
           "{} has no schedule, which is an error in dtensor; report it",
           to_string(step));
  DT_CHECK(!across_ || !from_.partial_axes(), where,
           "{} is partial; combine its parts before they leave their mesh",
           from_.to_string());
  DT_CHECK(from_rank_ >= 0 || to_rank_ >= 0, where,
           "rank {} does not take part in {}, which is an error in dtensor; "
           "report it",
           world_rank, to_string(step));
  const size_t ndim = static_cast<size_t>(from_.ndim());
  DT_CHECK(panel.empty() || panel.size() == ndim + (from_.components() > 1),
           where,
           "a panel of {} dimensions does not fit {}, which is an error in "
           "dtensor; report it",
           panel.size(), from_.to_string());
  const AxisMask group = sources_.group, split = from_.split_axes();
  for (const Partial& p : from_.layout().partials)
    if ((group & bit(p.axis)) && to_.layout().partial_on(p.axis) != p.op)
      terms_ |= bit(p.axis);
  const AxisMask copies = group & ~split & ~from_.partial_axes();
  const AxisMask repeated = onto_.all_axes() & ~to_.split_axes();
  choice_.axes = across_ ? copies : copies & ~repeated;
  turns_.axes = across_ ? repeated : group & repeated & split;
  if (!across_) kept_ = group & ~split & ~choice_.axes & ~terms_;
}

// A region as it is in memory: (sum, count) pairs add a dimension.
Region StepSchedule::in_memory(Region r) const {
  if (from_.components() > 1)
    r.insert(r.begin(), IntervalList{{0, from_.components()}});
  return panel_.empty() ? r : intersect(r, panel_);
}

int StepSchedule::index_of(int64_t world_rank) const {
  const auto it = std::lower_bound(ranks_.begin(), ranks_.end(), world_rank);
  return static_cast<int>(it - ranks_.begin());
}

int64_t StepSchedule::giver(const std::vector<size_t>& part) {
  int64_t number = 0;
  bool own = from_rank_ >= 0;
  for (size_t d = 0; d < dims_.size(); ++d) {
    const SourceDim& dim = dims_[d];
    const std::vector<int>& holders = dim.parts[part[d]].holders;
    size_t i = 0;
    while (i < holders.size() &&
           dim.offsets[static_cast<size_t>(holders[i])] != dim.own)
      ++i;
    if (from_rank_ < 0 || i == holders.size()) {
      own = false;
      i = static_cast<size_t>(onto_.rank(to_at_)) % holders.size();
    }
    holder_[d] = holders[i];
    number += dim.offsets[static_cast<size_t>(holder_[d])];
  }
  if (own && across_) return from_rank_;
  number += sources_.number(kept_, at_);
  const int64_t n = choice_.count();
  const auto own_copy = [&](int a) { return at_[a]; };
  int64_t copy = 0;
  if (n > 1) copy = own ? choice_.value(own_copy) : turn(part, number) % n;
  choice_.spread(copy, [&](int a, int32_t c) {
    number += c * sources_.stride[static_cast<size_t>(a)];
  });
  return number;
}

// The receiver's turn among all receivers that ask the holders of the same
// part: by the piece of the part that they want, then by their coordinates on
// `turns_`. One of the receivers of a piece may have it and ask nobody.
int64_t StepSchedule::turn(const std::vector<size_t>& part,
                           int64_t number) const {
  int64_t piece = 0;
  for (size_t d = 0; d < dims_.size(); ++d) {
    const IntervalList& ranges = dims_[d].parts[part[d]].ranges;
    const IntervalList& list = dims_[d].lists[static_cast<size_t>(holder_[d])];
    const int64_t all = length(list), mine = length(ranges);
    if (all == mine) continue;
    int64_t at = 0;  // where the piece begins in the part
    for (const Interval& r : list) {
      if (r.lo <= ranges[0].lo && ranges[0].lo < r.hi) {
        at += ranges[0].lo - r.lo;
        break;
      }
      at += r.size();
    }
    // Assumes that the pieces have about the same size, or that ranges of one
    // size were dealt to the pieces in turn.
    const int64_t size = ranges[0].size();
    piece = piece * ((all + mine - 1) / mine) + (at + size / 2) / size;
  }
  const int64_t n = turns_.count();
  const int64_t mine = turns_.value([&](int a) { return to_at_[a]; });
  if (across_) return piece * n + mine;
  const int64_t first =
      turns_.value([&](int a) { return sources_.coordinate(number, a); });
  bool itself = true;  // whether the receiver at `first` has the piece
  for (int a = 0; a < mesh_.num_axes(); ++a)
    if (from_.split_axes() & sources_.group & ~turns_.axes & bit(a))
      itself &= sources_.coordinate(number, a) == at_[a];
  return piece * (itself ? n - 1 : n) + (mine - first + n) % n;
}

template <class Each>
void StepSchedule::cut(const Region& wants, Each&& each) {
  dims_.clear();
  if (pairs()) dims_.push_back({{wants[0]}, {0}, 0, {{wants[0], {0}}}});
  for (size_t d = dims_.size(); d < wants.size(); ++d)
    dims_.push_back(sources_.dim(static_cast<int>(d) - pairs(), wants[d],
                                 [&](auto&& add) { each(d, add); }));
  holder_.resize(wants.size());
}

template <class Fn>
void StepSchedule::each_piece(Fn&& fn) {
  std::vector<size_t> part(dims_.size(), 0);
  for (;;) {
    fn(part, giver(part));
    size_t d = dims_.size();
    while (d > 0 && ++part[d - 1] == dims_[d - 1].parts.size()) part[--d] = 0;
    if (d == 0) return;
  }
}

Schedule StepSchedule::make() {
  Schedule s;
  if (across_) {
    s.has.resize(ranks_.size());
    s.self = index_of(world_rank_);
  } else {
    s.has.resize(static_cast<size_t>(mesh_.size_of(step_.axes)));
    s.self = static_cast<int>(sources_.number(step_.axes, at_));
  }
  s.hash = hash_mix(hash_mix(from_.hash(), to_.hash()), step_.axes);
  s.hash = hash_of(s.hash, panel_);
  s.terms = mesh_.size_of(terms_);
  const size_t ndim = static_cast<size_t>(from_.ndim()) + pairs();
  if (from_rank_ >= 0) s.held = volume(has());
  s.wants =
      HeldRegion(to_rank_ >= 0 ? in_memory(to_.region(to_at_)) : Region(ndim));
  const Region& wants = s.wants.ascending();
  if (to_rank_ < 0 || empty(wants)) return s;

  cut(wants, [&](size_t d, auto&& add) {
    sources_.each_holder(static_cast<int>(d) - pairs(),
                         panel_.empty() ? nullptr : &panel_[d], add);
  });
  std::vector<int64_t> terms;
  for_each_coord(mesh_, terms_, [&](const Coord& c) {
    terms.push_back(sources_.number(terms_, c));
  });
  size_t count = 1;
  for (const SourceDim& dim : dims_) count *= dim.parts.size();
  s.pieces.reserve(count);
  // If only one dimension is cut, each of its parts is used in one piece and
  // can be moved.
  const auto used_once = [&](size_t d) {
    return dims_[d].parts.size() == count;
  };
  each_piece([&](const std::vector<size_t>& part, int64_t number) {
    Piece& piece = s.pieces.emplace_back();
    piece.region.reserve(ndim);
    for (size_t d = 0; d < ndim; ++d) {
      IntervalList& ranges = dims_[d].parts[part[d]].ranges;
      if (used_once(d))
        piece.region.push_back(std::move(ranges));
      else
        piece.region.push_back(ranges);
    }
    piece.members.reserve(terms.size());
    for (int64_t term : terms) {
      piece.members.push_back(member(number + term));
      HeldRegion& has = s.has[static_cast<size_t>(piece.members.back())];
      if (!has.ascending().empty()) continue;
      Region region;
      region.reserve(ndim);
      for (size_t d = 0; d < ndim; ++d) {
        IntervalList& list = dims_[d].lists[static_cast<size_t>(holder_[d])];
        if (used_once(d) && dims_[d].disjoint && terms.size() == 1)
          region.push_back(std::move(list));
        else
          region.push_back(list);
      }
      has = HeldRegion(std::move(region));
    }
  });
  return s;
}

Region StepSchedule::has() const { return in_memory(from_.region(at_)); }

std::vector<std::vector<Holder>> StepSchedule::holders(
    const Region& has) const {
  std::vector<std::vector<Holder>> all(has.size());
  for (size_t d = pairs(); d < has.size(); ++d)
    sources_.each_holder(static_cast<int>(d) - pairs(),
                         panel_.empty() ? nullptr : &panel_[d],
                         [&](const IntervalList& list, int64_t offset) {
                           if (overlap(list, has[d]) > 0)
                             all[d].push_back({list, offset});
                         });
  return all;
}

template <class Fn>
void StepSchedule::takes(int from, const Region& has,
                         const std::vector<std::vector<Holder>>& holders,
                         Fn&& fn) {
  if (to_rank_ < 0) return;
  // A piece depends only on its holders, so cutting `wants` down to `has` first
  // changes no piece that matters.
  const Region wants =
      intersect(HeldRegion(in_memory(to_.region(to_at_))).ascending(), has);
  if (empty(wants)) return;
  cut(wants, [&](size_t d, auto&& add) {
    for (const Holder& h : holders[d]) add(h.list, h.offset);
  });
  each_piece([&](const std::vector<size_t>& part, int64_t number) {
    bool gives = false;
    for_each_coord(mesh_, terms_, [&](const Coord& c) {
      gives |= member(number + sources_.number(terms_, c)) == from;
    });
    if (!gives) return;
    Region region;
    for (size_t d = 0; d < part.size(); ++d)
      region.push_back(dims_[d].parts[part[d]].ranges);
    fn(region);
  });
}

// The members of a step between two meshes. Empty for any other step, whose
// schedule does not need the list.
std::vector<int64_t> members_across(const Step& step, int64_t world_rank) {
  return crosses(step) ? members(step, world_rank) : std::vector<int64_t>();
}

}  // namespace

std::vector<int64_t> members(const Step& step, int64_t world_rank) {
  const Mesh& mesh = step.from->mesh();
  std::vector<int64_t> ranks;
  if (!crosses(step)) {
    const int64_t rank = mesh.mesh_rank_of(world_rank);
    if (rank < 0) return ranks;
    ranks = mesh.group(step.axes, mesh.coordinate(rank));
    for (int64_t& r : ranks) r = mesh.world_rank(r);
    return ranks;
  }
  for (const Mesh& m : {mesh, step.to->mesh()})
    for (int64_t r = 0; r < m.num_ranks(); ++r)
      ranks.push_back(m.world_rank(r));
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  if (!std::binary_search(ranks.begin(), ranks.end(), world_rank))
    ranks.clear();
  return ranks;
}

Schedule schedule(const Step& step, int64_t world_rank, const Region& panel) {
  const std::vector<int64_t> ranks = members_across(step, world_rank);
  return StepSchedule(step, world_rank, panel, ranks).make();
}

void serve(Schedule& s, const Step& step, int64_t world_rank,
           const Region& panel) {
  s.serves.clear();
  if (step.from->mesh().mesh_rank_of(world_rank) < 0) return;
  const std::vector<int64_t> ranks = members(step, world_rank);
  const StepSchedule mine(step, world_rank, panel, ranks);
  HeldRegion& has = s.has[static_cast<size_t>(s.self)];
  if (has.ascending().empty()) has = HeldRegion(mine.has());
  const Region held = HeldRegion(mine.has()).ascending();
  if (empty(held)) return;
  const std::vector<std::vector<Holder>> holders = mine.holders(held);
  for (size_t m = 0; m < ranks.size(); ++m) {
    if (static_cast<int>(m) == s.self) continue;
    StepSchedule(step, ranks[m], panel, ranks)
        .takes(s.self, held, holders, [&](const Region& region) {
          add_served(s, region, static_cast<int>(m));
        });
  }
  sort_served(s);
}

}  // namespace dtensor
