// A plan as one rank carries it out: what it needs of the rank (schedules,
// groups, sizes), put together once. It does not change when it runs.
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

class Execution {
 public:
  // One thing to do to one tensor, or to one panel of it.
  struct Action {
    enum class Do : uint8_t { kView, kCopy, kFill, kTransfer, kAllReduce };
    Do what;
    size_t tensor;
    size_t event = 0;       // of a step that sends
    bool into_end = false;  // writes its panel of the destination
    bool in_place = false;  // an all-reduce of what the plan itself made
    bool one_shot = false;  // see all_reduce()
    bool divides = false;   // pairs become values in the end
    bool receives = true;   // this rank is in the destination's mesh
    Shape shape;            // of the memory that it makes
    Shape divided;          // of what that becomes
    DType dtype = DType::kF32;
    ReduceOp op = ReduceOp::kSum;
    Region has, wants;  // what the memory before and after it holds
    Region which;       // of a copy or a fill: the indices that it takes over
    Fill fill;
    bool pairs = false;  // a fill makes (sum, count) pairs, or has them
    Schedule schedule;
  };

  // Actions of one collective, or of none.
  struct Round {
    std::vector<Action> actions;
    size_t pass = 0;
    StepKind kind = StepKind::kSlice;
    Communicator* communicator = nullptr;  // null: nothing is sent
    uint64_t fingerprint = 0;
    // Between two meshes, of which each rank knows its own operators alone.
    bool between = false;
    // What a disagreement shows: the first step and how many more.
    const Step* first = nullptr;
    size_t tensors = 0, passes = 1;
    std::string to_string() const;
  };

  // A collective of one tensor, to be recorded.
  struct Sent {
    StepKind kind;
    Mesh mesh;
    AxisMask axes;
    int64_t predicted;
    int64_t collective = 0;  // tensors of one have one number
    bool here = false;       // this rank takes part
  };

  // By the rank's planner. Throws Error when there is no plan.
  Execution(RankContext&, std::span<const Move>, Plan);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  const Plan& plan() const { return plan_; }
  const std::vector<Move>& moves() const { return moves_; }
  const std::vector<Round>& rounds() const { return rounds_; }  // by pass
  const std::vector<Sent>& sent() const { return sent_; }
  // The rounds are carried out on one panel of the tensors after the other.
  size_t passes() const { return passes_; }
  // Does several passes' work make up tensor t, and then of which shape?
  bool in_panels(size_t t) const { return in_panels_[t]; }
  const Shape& end_shape(size_t t) const { return end_shapes_[t]; }
  int64_t collectives() const { return collectives_; }  // per pass
  size_t weight() const { return weight_; }  // what it costs to be kept

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

// That of tensors which move together. Kept by the rank, bounded.
std::shared_ptr<const Execution> execution(RankContext&, std::span<const Move>);
// How what is kept was used.
CacheUse execution_use(RankContext&);

}  // namespace dtensor
