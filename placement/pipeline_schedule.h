// Who does what when in a pipeline: a table of tasks.
//
// A model is cut into stages 0, 1, ... that pass activations on. They lie at
// `positions` places of a mesh axis; stage s is at s % positions, so that with
// V chunks a position has the stages r, r + positions, ... (interleaving). A
// batch is cut into micro-batches, each of which goes forward through all
// stages and backward through them again. A task needs of
//   forward   the same micro-batch's forward at the stage before
//   backward  its own forward, and the backward at the stage after
//   weight    its own backward; then that is the gradient of the stage's input
//             alone (zero bubble). Without weight tasks a backward is both.
// Pure data: nothing here knows tensors. (placement/schedule.h is about the
// pieces of a collective.)
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor {

enum class PipelineWork : uint8_t { kForward, kBackward, kWeight };
// "forward", "backward", "weight".
std::string_view name(PipelineWork);

struct PipelineTask {
  PipelineWork work = PipelineWork::kForward;
  int64_t stage = 0;
  int64_t micro = 0;  // which micro-batch
  // When it runs if every task takes one slot and starts as soon as it can:
  // set by checked().
  int64_t slot = -1;
  bool operator==(const PipelineTask&) const = default;
};

struct PipelineSchedule {
  std::string name;
  int64_t positions = 1, chunks = 1, micros = 1;
  bool weight_tasks = false;
  // By position, in the order in which it does them.
  std::vector<std::vector<PipelineTask>> tasks;

  int64_t stages() const { return positions * chunks; }
  int64_t position(int64_t stage) const { return stage % positions; }
};

// "F3" of stage 0 to p - 1, "F3.1" of position 0's next chunk; B and W alike.
// What a file of the user's says (report/schedule_file.h).
std::string short_name(const PipelineTask&, const PipelineSchedule&);
// "the forward of micro-batch 3 at stage 1".
std::string to_string(const PipelineTask&);

// The schedules that have a name: "gpipe", "1f1b", "interleaved", "zb-h1",
// "zb-h2".
const std::vector<std::string>& schedule_names();
bool is_schedule_name(std::string_view);

// The most of positions x chunks x micro-batches that a schedule may have.
inline constexpr int64_t kMostScheduled = 1'000'000;

// One of them, checked.
//   gpipe        all forwards, then all backwards (Huang et al., 1811.06965)
//   1f1b         a backward as soon as there is one, so that a position holds
//                at most `positions` micro-batches (Narayanan et al.,
//                2104.04473)
//   interleaved  the same with `chunks` stages at each position, and their
//                bubble divided by that; of at least `positions` micro-batches
//   zb-h1        1f1b with the weights' gradients where it would wait, in the
//                memory of 1f1b (Qi et al., arXiv 2401.10241)
//   zb-h2        the same with up to 2 positions - 1 micro-batches at a
//                position, and no bubble when all tasks take equally long
// Throws Error for another name, sizes below 1 or above kMostScheduled, chunks
// with a schedule that has none, and too few micro-batches.
PipelineSchedule make_schedule(std::string_view name, int64_t positions,
                               int64_t micros, int64_t chunks = 1);

// The schedule with its slots. Throws Error headed by `where` for such sizes,
// and when a task is missing, there twice, or at another's position, or when
// the order can never be carried out; it says which tasks.
PipelineSchedule checked(PipelineSchedule, std::string_view where = "pipeline");

// What a task needs that is another position's, or comes earlier at its own.
std::vector<PipelineTask> needs(const PipelineTask&, const PipelineSchedule&);

}  // namespace dtensor
