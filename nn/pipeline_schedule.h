// SPDX-License-Identifier: Apache-2.0
// The schedule of a pipeline: which position does which task when.
//
// A model is cut into stages 0, 1, ... that pass activations on. The stages lie
// at `positions` places of a mesh axis, stage s at s % positions. With V
// chunks, position r has the stages r, r + positions, ... (interleaving). A
// batch is cut into micro-batches, each of which goes forward through all
// stages and backward through them again. A task needs
//   forward   the same micro-batch's forward at the stage before
//   backward  its forward at the same stage, and its backward at the next stage
//   weight    its backward at the same stage
// With weight tasks (zero bubble), a backward computes only the gradient of the
// stage's input, and the weight task that of the weights. Without them, a
// backward computes both gradients.
// A schedule is pure data and knows no tensors. (placement/schedule.h is about
// the pieces of a collective.)
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor::nn {

enum class PipelineWork : uint8_t { kForward, kBackward, kWeight };
// "forward", "backward", "weight".
std::string_view name(PipelineWork);

struct PipelineTask {
  PipelineWork work = PipelineWork::kForward;
  int64_t stage = 0;
  int64_t micro = 0;  // which micro-batch
  // The time slot in which the task runs, if every task takes one slot and
  // starts as soon as it can. Set by checked().
  int64_t slot = -1;
  bool operator==(const PipelineTask&) const = default;
};

struct PipelineSchedule {
  std::string name;
  int64_t positions = 1, chunks = 1, micros = 1;
  bool weight_tasks = false;
  // The tasks of each position, in the order in which it does them.
  std::vector<std::vector<PipelineTask>> tasks;

  int64_t stages() const { return positions * chunks; }
  int64_t position(int64_t stage) const { return stage % positions; }
};

// "F3" for the forward of micro-batch 3 in the first chunk (at stages 0 to
// positions - 1), "F3.1" in the next one; B for backward, W for weight.
// Schedule files use these names (programs/report/schedule_file.h).
std::string short_name(const PipelineTask&, const PipelineSchedule&);
// "the forward of micro-batch 3 at stage 1".
std::string to_string(const PipelineTask&);

// The names that make_schedule() knows: "gpipe", "1f1b", "interleaved",
// "zb-h1", "zb-h2".
const std::vector<std::string>& schedule_names();
bool is_schedule_name(std::string_view);

// The largest product of positions, chunks and micro-batches that is allowed.
inline constexpr int64_t kMostScheduled = 1'000'000;

// Makes the schedule of this name, checked.
//   gpipe        all forwards, then all backwards (Huang et al., 1811.06965)
//   1f1b         each backward as soon as possible, so that a position holds
//                at most `positions` micro-batches (Narayanan et al.,
//                2104.04473)
//   interleaved  1f1b with `chunks` stages at each position, which divides the
//                bubble by `chunks`; needs at least `positions` micro-batches
//   zb-h1        1f1b, but where it would wait, a position computes weight
//                gradients; no more memory than 1f1b (Qi et al., 2401.10241)
//   zb-h2        zb-h1 with up to 2 * positions - 1 micro-batches at a
//                position; no bubble if all tasks take equally long and a batch
//                has at least that many micro-batches
// Throws Error for another name, sizes below 1 or with a product above
// kMostScheduled, several chunks in a schedule other than interleaved, and too
// few micro-batches for interleaved.
PipelineSchedule make_schedule(std::string_view name, int64_t positions,
                               int64_t micros, int64_t chunks = 1);

// Returns the schedule with its slots set. Throws Error, headed by `where`, if
// a size is out of range; if a task is missing, is there twice or is in the
// list of another position; or if the order would deadlock. The message names
// the tasks.
PipelineSchedule checked(PipelineSchedule, std::string_view where = "pipeline");

// The tasks that must be done before this one.
std::vector<PipelineTask> needs(const PipelineTask&, const PipelineSchedule&);

// ---- Simulation ----
//
// How long a schedule takes, how long ranks wait, and how many micro-batches
// they hold.

// The times of a stage's tasks, in any unit. In a schedule without weight
// tasks, a backward takes backward + weight.
struct StageTimes {
  double forward = 1, backward = 1, weight = 1;
  double of(const PipelineTask&, const PipelineSchedule&) const;
};

struct TimedTask {
  PipelineTask task;
  double start, finish;
};

struct PipelineSimulation {
  std::vector<std::vector<TimedTask>> tasks;  // by position, in order
  double makespan = 0;                        // until the last task is finished
  // `span`: the longest time that any position takes from its first task's
  // start to its last task's finish. `busy`: the part of the span in which this
  // position computes. The rest is the bubble, which Qi et al. measure in this
  // way because a position that starts its step later may also end it later.
  double span = 0, busy = 0;
  double bubble() const { return span > 0 ? 1 - busy / span : 0; }
  // By position: the most micro-batches that are live at a time, each counted
  // once for every stage where it is live. A micro-batch is live at a stage
  // from its forward to the end of its last task there.
  std::vector<int64_t> live;
  int64_t peak_live() const;
};

// Every position does its tasks in order, each as soon as it can. `times` has
// one entry for all stages or one for each. Throws Error if `times` has another
// number of entries or a negative time. REQUIRES: a schedule from checked().
PipelineSimulation simulate(const PipelineSchedule&,
                            const std::vector<StageTimes>& times = {{}});

// The theoretical share of the bubble in a step, with p positions, V chunks and
// m micro-batches, if the tasks of every stage take the times F, B and W, and
// sending takes none: idle / (idle + V * m * (F + B + W)). The idle time is
//   gpipe, 1f1b, interleaved   (p - 1) * (F + B + W)
//   zb-h1                      (p - 1) * (F + B) - min(p - 1, m - 1) * W
//   zb-h2                      (p - 1) * (F + B) - min(2 * p - 2, m - 1) * W
// and 0 if that is negative.
// (Narayanan et al., 2104.04473, section 2; Qi et al., 2401.10241, table 2, for
// large m. The zb-h1 and zb-h2 of make_schedule() reach the last two if F, B
// and W are equal. For other times, a schedule must be made for these times to
// reach them.) nullopt for other names, such as a schedule from a file.
std::optional<double> bubble_formula(const PipelineSchedule&,
                                     const StageTimes& = {});

}  // namespace dtensor::nn
