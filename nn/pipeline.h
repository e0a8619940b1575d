// SPDX-License-Identifier: Apache-2.0
// Pipeline parallelism: each stage has its own mesh, and micro-batches go
// through the stages in the order of a schedule (pipeline_schedule.h).
//
//   Pipeline pipe(make_schedule("1f1b", 2, 8), {
//       {first, [&](const DistTensor& x, int64_t, auto) { return f(x); }, {w}},
//       {second, [&](const DistTensor& x, int64_t m, auto) {
//          return mse_loss(g(x), target[m]); }, {v}}});
//   PipelineResult r = pipe.run(inputs, shares);   // every rank of the run
//
// Stage outputs are redistributed to the next mesh, and their gradients back,
// whatever the layouts on these meshes. A second thread of each rank does this
// while the rank computes. Each rank starts its transfers in one global order,
// so that ranks cannot wait for each other in a cycle. This is the order in
// which a simulation finishes the tasks that produce the data.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/nn/pipeline_schedule.h"

namespace dtensor::nn {

// A stage's function, from the previous stage's outputs to its own. For one
// tensor: DistTensor(const DistTensor& x, int64_t micro, Borrowed). For
// several: the same with std::vector<DistTensor> as argument and result. The
// parameters are explained at PipelineStage::forward.
class StageForward {
 public:
  using Tensors = std::vector<DistTensor>;
  using Borrowed = std::span<const DistTensor>;
  template <class F>
  StageForward(F f) {
    if constexpr (std::is_invocable_v<F&, const DistTensor&, int64_t, Borrowed>)
      run_ = [f = std::move(f)](const Tensors& x, int64_t micro, Borrowed b) {
        return Tensors{f(x[0], micro, b)};
      };
    else
      run_ = std::move(f);
  }
  Tensors operator()(const Tensors& x, int64_t micro, Borrowed b) const {
    return run_(x, micro, b);
  }

 private:
  std::function<Tensors(const Tensors&, int64_t, Borrowed)> run_;
};

struct PipelineStage {
  Mesh mesh;
  // Computes the stage for micro-batch `micro`, on its mesh; the last stage
  // returns its loss, a scalar. The Borrowed are the tensors of `borrows` on
  // this mesh. The tensors that other stages return must be floats; all are
  // sent on, and their gradients come back. Ranks outside the mesh call it too,
  // without data, once for each new combination of input layouts, to learn the
  // layouts of its outputs.
  StageForward forward;
  // The parameters, on this mesh; each belongs to only one stage.
  std::vector<DistTensor> parameters;
  // Parameters of other stages that this one uses too, such as tied embeddings.
  // The stage receives them once in each run, as operators see them (gathered,
  // in the case of gather_on_use()), and their gradients are sent back once and
  // added.
  std::vector<DistTensor> borrows = {};
  // The layout in which the stage receives x (the first tensor, if there are
  // several); may not be partial. If not set, it is the layout in which the
  // previous stage makes x, with partial sums reduced; the two meshes must then
  // have axes of the same names and sizes, in the same order.
  std::optional<Placements> input = {};
};

struct PipelineOptions {
  // The type in which the gradients of parameters are sent among the ranks of a
  // stage (GradOptions::wire_dtype); their own type if not set. Gradients that
  // go to another stage keep their own type.
  std::optional<DType> wire_dtype = {};
  // 0: each rank adds its gradients of all micro-batches, unsharded, and sends
  // the sum once at the end. Otherwise the gradients of each micro-batch are
  // sent as soon as this many bytes are complete (GradOptions::bucket_bytes),
  // and are added where they belong. If gradients are sharded (ZeRO's stages 2
  // and 3), a rank then holds only its shards and two buckets, but the bytes
  // sent are multiplied by the number of micro-batches.
  int64_t bucket_bytes = 0;
};

struct PipelineResult {
  // The loss of each micro-batch, on the last stage's mesh.
  std::vector<DistTensor> losses;
  // By stage, the gradients of its parameters, as grad() would return them;
  // without data on ranks outside the stage.
  std::vector<std::vector<DistTensor>> grads;
  // This rank's tasks in the order in which they ran, in seconds since the run
  // began; waiting for other stages is not part of a task.
  std::vector<TimedTask> tasks;
};

class Pipeline {
 public:
  // `times`: the task times assumed to order the transfers; see simulate(). Any
  // times give correct results; with the actual ones, no rank waits because of
  // that order. Throws Error unless there is one stage for each of the
  // schedule's, every parameter is on its stage's mesh, and every borrowed
  // tensor is a parameter of exactly one other stage.
  Pipeline(PipelineSchedule, std::vector<PipelineStage>,
           const std::vector<StageTimes>& times = {{}});

  // Computes the gradients of the sum over m of shares[m] * loss_m, where
  // loss_m is the loss of micro-batch m. inputs[m] is on the first stage's
  // mesh. Every rank of the run calls it. Throws Error unless there is an input
  // and a share for each of the schedule's micro-batches, and if an input is on
  // another mesh.
  PipelineResult run(const std::vector<DistTensor>& inputs,
                     std::span<const double> shares,
                     const PipelineOptions& = {});
  const PipelineSchedule& schedule() const { return schedule_; }

 private:
  class Run;
  PipelineSchedule schedule_;
  std::vector<PipelineStage> stages_;
  // All tasks of all positions, in the order in which the simulation finishes
  // them.
  std::vector<PipelineTask> order_;
  using Specs = std::vector<SpecRef>;
  // The specs of a stage's outputs, by the stage and the specs of its inputs.
  std::map<std::pair<int64_t, Specs>, Specs> made_;
};

// ---- Times ----

// Times of one rank, in seconds: `span` from the start of its first task to the
// end of its last one, and `busy` in tasks. For the rest of the span it waits.
struct PipelineTimes {
  double span = 0, busy = 0;
  double bubble() const { return span > 0 ? 1 - busy / span : 0; }
};

// The times from PipelineResult::tasks; zeros if the rank ran no task.
PipelineTimes pipeline_times(const std::vector<TimedTask>&);

// The times of the rank with the longest span (as PipelineSimulation::span).
// Collective over all ranks of the run.
PipelineTimes longest(const PipelineTimes& mine);

}  // namespace dtensor::nn
