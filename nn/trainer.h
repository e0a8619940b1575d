// SPDX-License-Identifier: Apache-2.0
// The training loop: gradients over micro-batches, clipping, the learning rate,
// checkpoints, progress, and the check of the bytes that steps receive.
//
//   nn::Trainer trainer(net, loss,
//                       {.steps = 200, .lr = 2e-2, .checkpoints = "run"});
//   trainer.resume();
//   const nn::TrainingReport report = trainer.train(batches);
//
// In a run with a trace (dtensor/trace.h), each step is a span.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/comm_table.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/io/stored.h"
#include "dtensor/nn/pipeline.h"

namespace dtensor {
struct OpRan;  // observer.h
struct RunOptions;
class Runtime;
}  // namespace dtensor

namespace dtensor::nn {

class LanguageModel;
class Module;
class Optimizer;
class ParameterGroups;

// A batch: row r of both tensors is one example. Every rank passes the whole
// batch, and keeps the rows that the mesh gives it.
struct Batch {
  Tensor inputs, targets;
};
// Makes the batch of a step (0, 1, ...). Every rank calls it. If the batch
// depends only on the step, a resumed training continues with the same data.
using Batches = std::function<Batch(int64_t step)>;
// Returns a scalar: the mean loss over the rows of its arguments.
using Loss = std::function<DistTensor(const DistTensor& inputs,
                                      const DistTensor& targets)>;

// Linear warm-up, then half a cosine down to floor * lr.
struct CosineSchedule {
  double lr = 1e-3;
  int64_t steps = 1;
  int64_t warmup = -1;  // steps; -1: min(10, steps / 10)
  double floor = 0.1;

  // The rate at step 0, 1, ..., steps - 1:
  //   step < warmup   lr * (step + 1) / warmup
  //   afterwards      lr * (floor + (1 - floor) * (1 + cos(pi * t)) / 2), with
  //                   t = (step - warmup) / (steps - warmup)
  double at(int64_t step) const;
};

// The rate of step 0, 1, ... (TrainerOptions::rate), under torch's names. The
// first argument is the rate that torch's optimizer has.
using Rate = std::function<double(int64_t step)>;
// lr * gamma^(step / step_size), rounded down.
Rate StepLR(double lr, int64_t step_size, double gamma = 0.1);
// eta_min + (lr - eta_min) * (1 + cos(pi * step / T_max)) / 2.
Rate CosineAnnealingLR(double lr, int64_t T_max, double eta_min = 0);

// Makes an optimizer, given decay_matrices() of the model's parameters. It need
// not take all of them.
using MakeOptimizer =
    std::function<std::unique_ptr<Optimizer>(const ParameterGroups&)>;

struct TrainerOptions {
  int64_t steps = 1000;
  // The largest learning rate. The rate warms up to it and then falls, as
  // CosineSchedule says for these three members.
  double lr = 1e-3;
  int64_t lr_steps = 0;  // 0: `steps`, or those of a training that is resumed
  int64_t warmup = -1;   // steps; -1: see CosineSchedule::warmup
  // The rate of step 0, 1, ..., in place of the three members above.
  Rate rate = {};
  // AdamW with this weight decay of matrices, if not set.
  MakeOptimizer optimizer = {};
  double weight_decay = 0.01;
  // The names of tables that the loss passes to used_rows() (data_shapes.h),
  // in every micro-batch. Their gradients and updates are sparse: see
  // Optimizer::step(). Other uses of such a table get no gradient. Only with
  // SGD or AdamW, and without cuda_graph, a pipeline and check_bytes.
  std::vector<std::string> sparse = {};
  double clip = 1;  // the largest norm of the gradient; 0: no limit
  // A step cuts its batch into this many parts and adds their gradients, each
  // weighted by the part's share of the rows.
  int64_t micro_batches = 1;
  // The type in which gradients are sent; their own type if not set.
  std::optional<DType> wire_dtype = {};
  double loss_scale = 0;  // the initial one (GradScaler); 0: none
  // How many bytes of parameters ZeRO stage 3 may hold or gather ahead, besides
  // those in use. -1: as many as the largest block has, or twice that if blocks
  // are recomputed. (A block is an element of a list, such as "h.0". Without
  // lists, it is a module that owns parameters.)
  int64_t gather_budget = -1;
  // Whether the trainer's third step becomes a graph (dtensor/graph.h), which
  // later steps replay. Leave it off for a pipeline, with a loss scale, or for
  // an optimizer that updates by operators.
  bool cuda_graph = false;
  // Whether the optimizer's state is in the host's memory between updates
  // (ParameterGroup::offload_state). Not with cuda_graph.
  bool offload_state = false;
  // The schedule of a language model on a mesh with an axis pp. Its number of
  // micro-batches replaces `micro_batches`. The default is 1F1B.
  std::optional<PipelineSchedule> schedule = {};

  // The folder in which train() saves checkpoints, after every save_every steps
  // and after the last one; "": none. `keep` means what it does in
  // CheckpointOptions.
  std::string checkpoints = {};
  int64_t save_every = 100;
  int64_t keep = 0;
  // Values that decide the data of a step, such as the seed of a shuffle. They
  // are saved, and a training with other values is not resumed.
  CheckpointValues data = {};
  // train() calls check_copies() once in so many steps; 0: never.
  int64_t check_copies_every = 0;
  // Whether train() checks the bytes that each step receives, except in
  // replayed steps. Turn it off if batches differ in their shapes.
  bool check_bytes = true;
  bool progress = true;  // on rank 0, on standard error
};

struct StepResult {
  double loss;        // before the update
  double grad_norm;   // global, before clipping
  double loss_scale;  // for the next step; 1 without scaling
  bool replayed;      // ran as a graph, so that its bytes were not counted
  // Whether the loss scaler skipped the update, because grad_norm is not
  // finite.
  bool skipped;
  double seconds;  // on this rank, including the making of the batch
  double exposed;  // seconds of communication that no computation hid
  PipelineTimes pipeline = {};
};

using dtensor::MemoryUse;

// The steps of train(), on this rank, and what all ranks sent and held.
struct TrainingReport {
  int64_t first_step = 0;
  std::vector<StepResult> steps;
  std::vector<CommEvent> events;  // of all ranks in the first of these steps
  MemoryUse memory;               // the largest values of any rank
  // The times of the rank with the longest span, summed over all steps but the
  // first, which makes the plans (or over the first if it is the only one).
  PipelineTimes pipeline;
};

// The predicted messages, memory and work of one training step. The result of
// Trainer::predict() is for one rank. In that of the function predict(), the
// memory, work and parameter_bytes are the largest of any rank.
struct Prediction : Totals {
  int64_t parameter_bytes = 0;
  int64_t parameters = 0;  // elements of the model, each counted once
};

// Every rank makes a trainer, for a module that outlives it, and makes the same
// calls, because most functions are collective over all ranks of the run.
class Trainer {
 public:
  // Rows are split over the axes dp, fsdp and ep, as far as the module's mesh
  // has them. Throws Error for options that are out of range or do not go
  // together, and if another job saves to the folder of checkpoints.
  Trainer(Module&, Loss, TrainerOptions = {});
  // Trains with the model's loss(). Inputs and targets are tokens [rows, s],
  // whose sequences are split over cp (batch_layout()). On a mesh with an axis
  // pp, a step runs as a pipeline.
  Trainer(LanguageModel&, TrainerOptions = {});
  ~Trainer();
  Trainer(Trainer&&) noexcept;

  // Loads the last checkpoint of the folder, if there is one, and returns its
  // path. The checkpoint may come from another mesh and other layouts. Does
  // nothing in a dry run. Throws Error if options().checkpoints is empty, and
  // as check_resume() does.
  std::optional<std::string> resume();
  // Trains up to options().steps. Throws Error on every rank if a loss is not
  // finite; if a gradient norm is not finite (unless the loss scaler skips that
  // step, and its scale is at least 1e-4); if options().check_bytes is set and
  // the first step receives other bytes than planned, or a later one other
  // bytes than the first; or if training would begin at step 0 although the
  // folder has checkpoints of an earlier training.
  TrainingReport train(const Batches&);

  // Trains the next step. Loss and norm are 0 in a dry run.
  StepResult step(const Batches&);
  int64_t next_step() const;
  const TrainerOptions& options() const;
  // The mean loss over the rows of batches 0 to count - 1, without gradients
  // and in the mode of Module::eval(); for a language model its text_loss().
  // Throws Error if count is below 1.
  double evaluate(int64_t count, const Batches&) const;
  // Saves the parameters, the optimizer and the scaler in the background, as
  // step-N in the options' folder, with N = next_step().
  void save() const;
  void load(const std::string& checkpoint);
  // Throws Error on every rank if the copies of a parameter or of optimizer
  // state differ between ranks. The error lists the ranks that differ.
  void check_copies() const;
  // Sets RankContext::gather_budget, as the constructor does. Trainers of one
  // run share that budget, so call this before another trainer takes over.
  void set_gather_budget() const;
  // Predicts what this rank sends and holds in a step. Throws Error unless this
  // is a dry run. on_op (may be empty) is called for each operator of the step
  // that this rank runs.
  Prediction predict(const Batches&,
                     const std::function<void(const OpRan&)>& on_op = {});

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

// Predicts by dry runs of one training step: the same code, without data. For
// each position along the mesh axis pp, one dry run takes the place of the rank
// that has the largest part of a batch of inputs. `on_rank` makes a model and
// its trainer, and returns Trainer::predict(). Must not be called inside a run.
Prediction predict(const RunOptions&, const Shape& inputs,
                   const std::function<Prediction(Runtime&)>& on_rank);
// Throws Error unless the training communicated as predicted (step_checks.h).
void check_agreement(const Prediction&, const TrainingReport&);

// Throws Error, headed by `where`, if a training with these options cannot
// resume from the checkpoint, because it was saved with other `data`. If
// lr_steps is 0, takes it from the checkpoint; throws Error if that lacks it.
// Any thread may call this.
void check_resume(std::string_view where, const std::string& checkpoint,
                  TrainerOptions&);

}  // namespace dtensor::nn
