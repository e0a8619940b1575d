// Training in a pipeline: stages on meshes of their own, and micro-batches that
// go through them in the order of a schedule (placement/pipeline_schedule.h).
//
//   Pipeline pipe(make_schedule("1f1b", 2, 8), {
//       {first, [&](const DistTensor& x, int64_t) { return f(x); }, {w}},
//       {second, [&](const DistTensor& x, int64_t m) {
//          return mse_loss(g(x), target[m]); }, {v}}});
//   PipelineResult r = pipe.run(inputs, shares);   // every rank of the run
//
// What a stage makes, and its gradient, is redistributed to the next mesh and
// back, whatever the layouts there, by the rank's other thread while the rank
// computes. All ranks know the order of all of these transfers and take part in
// theirs in that order, so that they cannot wait for each other in a circle: it
// is that in which a simulation finishes the tasks that make what is sent.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dtensor/placement/pipeline_simulation.h"
#include "dtensor/runtime/dist_tensor.h"

namespace dtensor::nn {

struct PipelineStage {
  Mesh mesh;
  // What the stage makes of micro-batch number `micro`, on its mesh; of the
  // last stage its loss, a scalar. `borrowed`: see below. Ranks of other meshes
  // call it too, for the layout, once for every new layout of x.
  std::function<DistTensor(const DistTensor& x, int64_t micro,
                           std::span<const DistTensor> borrowed)>
      forward;
  // On its mesh; each of one stage alone.
  std::vector<DistTensor> parameters;
  // Parameters of other stages that this one uses too: tied embeddings. It gets
  // them once in each run, and its gradients go back once and are added.
  std::vector<DistTensor> borrows = {};
  // The layout in which x comes; else that of the stage before, summed, which
  // has to be on axes of the same names and sizes. Not partial.
  std::optional<Placements> input = {};
};

struct PipelineResult {
  // Of each micro-batch, on the last stage's mesh.
  std::vector<DistTensor> losses;
  // By stage, of its parameters, as grad() would give them; on ranks of other
  // stages without data.
  std::vector<std::vector<DistTensor>> grads;
  // This rank's tasks in the order in which they ran, in seconds since the run
  // began; waiting for what others make is not part of a task.
  std::vector<TimedTask> tasks;
};

class Pipeline {
 public:
  // `times`: what the order of transfers supposes that tasks take; see
  // simulate(). Any will do, but those that the tasks do take make nobody wait.
  // Throws Error unless there is a stage for each of the schedule's, and what
  // they borrow is a parameter of another.
  Pipeline(PipelineSchedule, std::vector<PipelineStage>,
           const std::vector<StageTimes>& times = {{}});

  // The gradients of sum_m shares[m] loss_m, of inputs[m] on the first stage's
  // mesh. Every rank of the run calls it. `wire`: what gradients that several
  // ranks have parts of are sent in. Throws Error for another number of inputs
  // or shares than the schedule's micro-batches.
  PipelineResult run(const std::vector<DistTensor>& inputs,
                     std::span<const double> shares,
                     std::optional<DType> wire = {});
  const PipelineSchedule& schedule() const { return schedule_; }

 private:
  class Run;
  PipelineSchedule schedule_;
  std::vector<PipelineStage> stages_;
  // In the order in which they are finished, of all positions.
  std::vector<PipelineTask> order_;
  // What a stage makes of an input.
  std::map<std::pair<int64_t, const Spec*>, const Spec*> made_;
};

}  // namespace dtensor::nn
