// Training in a pipeline: stages on meshes of their own, and micro-batches that
// go through them in the order of a schedule (placement/pipeline_schedule.h).
//
//   Pipeline pipe(make_schedule("1f1b", 2, 8), {
//       {first, [&](const DistTensor& x, int64_t, auto) { return f(x); }, {w}},
//       {second, [&](const DistTensor& x, int64_t m, auto) {
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
#include <type_traits>
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/placement/pipeline_simulation.h"

namespace dtensor::nn {

// A stage's function, of what the stage before made: of one tensor that makes
// one, DistTensor(const DistTensor& x, int64_t micro, Borrowed), or of several
// that makes several, with vectors in their places.
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
  // What the stage makes of micro-batch number `micro`, on its mesh; of the
  // last stage its loss, a scalar. `borrowed`: see below. Where it makes
  // several tensors, of floats all of them, all go on and their gradients come
  // back. Ranks of other meshes call it too, for the layouts, once for all new
  // layouts of x.
  StageForward forward;
  // On its mesh; each of one stage alone.
  std::vector<DistTensor> parameters;
  // Parameters of other stages that this one uses too: tied embeddings. It gets
  // them once in each run, as operators see them (of gather_on_use() whole),
  // and its gradients go back once and are added.
  std::vector<DistTensor> borrows = {};
  // The layout in which x comes, the first of several; else that of the stage
  // before, summed, which has to be on axes of the same names and sizes. Not
  // partial.
  std::optional<Placements> input = {};
};

struct PipelineOptions {
  // What gradients that several ranks have parts of are sent in.
  std::optional<DType> wire_dtype = {};
  // 0: the gradients of all micro-batches are added where they are made, whole,
  // and sent once, in the end. Else those of each micro-batch are sent as soon
  // as so many bytes are complete (GradOptions::bucket_bytes) and added where
  // they belong: of those that lie in parts a rank holds no more than its parts
  // and two buckets, for as many times the bytes as there are micro-batches.
  // (ZeRO's stages 2 and 3.)
  int64_t bucket_bytes = 0;
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
  // mesh. Every rank of the run calls it. Throws Error for another number of
  // inputs or shares than the schedule's micro-batches.
  PipelineResult run(const std::vector<DistTensor>& inputs,
                     std::span<const double> shares,
                     const PipelineOptions& = {});
  const PipelineSchedule& schedule() const { return schedule_; }

 private:
  class Run;
  PipelineSchedule schedule_;
  std::vector<PipelineStage> stages_;
  // In the order in which they are finished, of all positions.
  std::vector<PipelineTask> order_;
  using Specs = std::vector<const Spec*>;
  // What a stage makes of an input.
  std::map<std::pair<int64_t, Specs>, Specs> made_;
};

}  // namespace dtensor::nn
