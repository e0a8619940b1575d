// SPDX-License-Identifier: Apache-2.0
// An execution: a plan prepared for one rank, with the schedules, groups and
// sizes that are needed to carry it out. It is built once, and running it does
// not change it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dtensor/partial_fill.h"
#include "dtensor/placement/bounded_cache.h"
#include "dtensor/placement/plan.h"
#include "dtensor/placement/region.h"
#include "dtensor/placement/schedule.h"
#include "dtensor/rank_context.h"

namespace dtensor {

class Execution : public std::enable_shared_from_this<Execution> {
 public:
  // One operation on one tensor, or on one panel of it (placement/panels.h).
  struct Action {
    enum class Do : uint8_t { kView, kCopy, kFill, kTransfer, kAllReduce };
    Do what;
    size_t tensor;
    size_t event = 0;       // index in sent(), for a step that sends
    bool into_end = false;  // writes a panel directly into the destination
    bool in_place = false;  // all-reduces memory that an earlier step made
    bool one_shot = false;  // see Communicator::all_reduce()
    bool divides = false;   // then divides each sum by its count (of pairs)
    bool receives = true;   // this rank is in the destination's mesh
    Shape shape;            // the shape of the memory that it writes
    Shape divided;          // the shape after the division
    DType dtype = DType::kF32;
    ReduceOp op = ReduceOp::kSum;
    Region has, wants;  // global indices that this rank holds before and after
    Region which;       // global indices whose elements are copied
    Fill fill;
    bool pairs = false;  // the result of a fill has (sum, count) pairs
    Schedule schedule;
  };

  // The actions of one collective, or local actions.
  struct Round {
    std::vector<Action> actions;
    size_t pass = 0;
    StepKind kind = StepKind::kSlice;
    Communicator* communicator = nullptr;  // null if nothing is sent
    uint64_t fingerprint = 0;
    // Whether the collective is between two meshes. The ranks of two meshes may
    // run different operators, so their lineages are not compared.
    bool between = false;
    // For to_string(), which describes the round if ranks disagree.
    const Step* first = nullptr;
    size_t tensors = 0, passes = 1;
    std::string to_string() const;
  };

  // One tensor's share of a collective, from which a CommEvent is made.
  struct Sent {
    StepKind kind;
    Mesh mesh;
    AxisMask axes;
    size_t step;             // index in plan().steps
    int64_t predicted;       // the most bytes that a rank receives
    int64_t collective = 0;  // the same for all tensors of a collective
    bool here = false;       // whether this rank takes part
  };

  // `plan` is the planner's plan for the moves; throws Error if it does not
  // lead from their sources to their destinations.
  Execution(RankContext&, std::span<const Move>, Plan);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  const Plan& plan() const { return plan_; }
  // The moves of the local parts alone: of_parts() of each given move.
  const std::vector<Move>& moves() const { return moves_; }
  // All rounds, in the order in which they run: pass after pass.
  const std::vector<Round>& rounds() const { return rounds_; }
  const std::vector<Sent>& sent() const { return sent_; }
  // The number of passes. The rounds of one pass handle at most one panel of
  // each tensor. Tensors that are not in panels move in the first pass.
  size_t passes() const { return passes_; }
  // in_panels(): whether tensor t is moved panel by panel. end_shape(): the
  // shape of this rank's part of tensor t at the destination.
  bool in_panels(size_t t) const { return in_panels_[t]; }
  const Shape& end_shape(size_t t) const { return end_shapes_[t]; }
  // The type of the moved parts. (The types in moves() may be kExact.)
  DType end_type(size_t t) const { return end_types_[t]; }
  int64_t collectives() const { return collectives_; }  // in the last pass
  size_t weight() const { return weight_; }  // counts in the cache's limit

 private:
  // One tensor while its actions are built.
  struct Path {
    // The number of steps, and of those up to the last that makes memory.
    size_t steps = 0, made = 0;
    // The state in the current pass:
    size_t done = 0;                // the number of steps added so far
    const Spec* memory = nullptr;   // the spec of the memory with the values
    const Region* panel = nullptr;  // the panel of this pass; null: all indices
    // cut: the memory has only the panel. own: the plan made the memory.
    bool cut = false, own = false;
    bool ended = false;  // the destination has the panel
  };

  void add_pass(RankContext&, std::vector<Path>&,
                const std::vector<std::vector<Region>>& panels, size_t pass);
  void add(RankContext&, Path&, const Step&, Round&);
  void finish(RankContext&, Path&, size_t tensor, size_t pass);

  const Plan plan_;
  std::vector<Move> moves_;
  std::vector<Round> rounds_;
  std::vector<Sent> sent_;
  std::vector<bool> in_panels_;
  std::vector<Shape> end_shapes_;
  std::vector<DType> end_types_;
  size_t passes_ = 1, weight_ = 1;
  int64_t collectives_ = 0;
};

// The execution of moves that run together, from this rank's bounded cache.
// Throws Error if there is no plan for them.
std::shared_ptr<const Execution> execution(RankContext&, std::span<const Move>);
// The step of a plan in which this rank made the event; null if
// CommEvent::execution is.
const Step* step_of(const CommEvent&);
// Statistics of this rank's cache of executions.
CacheUse execution_use(RankContext&);

}  // namespace dtensor
