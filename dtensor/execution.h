// SPDX-License-Identifier: Apache-2.0
// A plan prepared for one rank: the schedules, groups and sizes that carrying
// it out needs. It is built once, and running it does not change it.
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
  // One operation on one tensor, or on one panel of it.
  struct Action {
    enum class Do : uint8_t { kView, kCopy, kFill, kTransfer, kAllReduce };
    Do what;
    size_t tensor;
    size_t event = 0;       // index in sent(), for a step that sends
    bool into_end = false;  // writes its panel of the destination
    bool in_place = false;  // all-reduces memory that the plan itself made
    bool one_shot = false;  // see all_reduce()
    bool divides = false;   // divides (sum, count) pairs afterwards
    bool receives = true;   // this rank is in the destination's mesh
    Shape shape;            // of the memory that it writes
    Shape divided;          // the same after the division
    DType dtype = DType::kF32;
    ReduceOp op = ReduceOp::kSum;
    Region has, wants;  // global indices held before and after
    Region which;       // indices that a copy or a fill copies
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
    // Whether it is between two meshes. Their ranks may run different
    // operators, so that lineages cannot be compared.
    bool between = false;
    // For the error of ranks that disagree.
    const Step* first = nullptr;
    size_t tensors = 0, passes = 1;
    std::string to_string() const;
  };

  // One tensor's share of a collective, for the events.
  struct Sent {
    StepKind kind;
    Mesh mesh;
    AxisMask axes;
    size_t step;             // in plan().steps
    int64_t predicted;       // bytes
    int64_t collective = 0;  // equal for tensors of one collective
    bool here = false;       // whether this rank takes part
  };

  // `plan` is the planner's plan for the moves; throws Error if it does not
  // lead from their sources to their destinations.
  Execution(RankContext&, std::span<const Move>, Plan);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  const Plan& plan() const { return plan_; }
  const std::vector<Move>& moves() const { return moves_; }
  const std::vector<Round>& rounds() const { return rounds_; }  // by pass
  const std::vector<Sent>& sent() const { return sent_; }
  // The rounds of a pass handle one panel of each tensor.
  size_t passes() const { return passes_; }
  // Whether tensor t is moved panel by panel, and the shape of its destination
  // on this rank.
  bool in_panels(size_t t) const { return in_panels_[t]; }
  const Shape& end_shape(size_t t) const { return end_shapes_[t]; }
  int64_t collectives() const { return collectives_; }  // per pass
  size_t weight() const { return weight_; }             // for the cache's limit

 private:
  // One tensor while its actions are built.
  struct Path {
    size_t steps = 0, made = 0;  // made: steps up to the last with new memory
    // In the current pass:
    size_t done = 0;
    const Spec* memory = nullptr;   // the spec of the current memory ...
    const Region* panel = nullptr;  // ... limited to this panel if `cut`
    bool cut = false, own = false;  // own: the plan made the memory
    bool ended = false;             // the destination has the panel
  };

  void add_pass(RankContext&, std::vector<Path>&,
                const std::vector<std::vector<Region>>& panels, size_t pass);
  void add(RankContext&, Path&, const Step&, Round&);
  void finish(RankContext&, Path&, size_t tensor, size_t pass);

  const Plan plan_;
  const std::vector<Move> moves_;
  std::vector<Round> rounds_;
  std::vector<Sent> sent_;
  std::vector<bool> in_panels_;
  std::vector<Shape> end_shapes_;
  size_t passes_ = 1, weight_ = 1;
  int64_t collectives_ = 0;
};

// The execution of moves that run together, from this rank's bounded cache.
// Throws Error if there is no plan for them.
std::shared_ptr<const Execution> execution(RankContext&, std::span<const Move>);
// The step of a plan that the event belongs to; null for a collective inside an
// operator.
const Step* step_of(const CommEvent&);
// Statistics of that cache.
CacheUse execution_use(RankContext&);

}  // namespace dtensor
