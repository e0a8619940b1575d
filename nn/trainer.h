// The training loop: gradients over micro-batches, clipping, the learning rate,
// checkpoints, progress, and the check that every step sends what was planned.
//
//   nn::Trainer trainer(net, loss,
//                       {.steps = 200, .lr = 2e-2, .checkpoints = "run"});
//   trainer.resume();
//   const nn::TrainingReport report = trainer.train(batches);
//
// In a run with a trace (dtensor/trace.h), each step is a span.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/io/checkpoint_value.h"
#include "dtensor/memory_kind.h"
#include "dtensor/nn/pipeline_times.h"

namespace dtensor {
struct OpCall;  // dtensor/ops/op.h
struct RunOptions;
class Runtime;
}  // namespace dtensor

namespace dtensor::nn {

class LanguageModel;
class Module;

// A batch, which every rank has in full: row r of both tensors is one example.
// Each rank keeps the rows that the mesh gives it.
struct Batch {
  Tensor inputs, targets;
};
// Makes the batch of a step (0, 1, ...). Every rank calls it. If it depends on
// nothing but the step, a resumed training continues with the same data.
using Batches = std::function<Batch(int64_t step)>;
// A scalar: the mean over the rows of its arguments.
using Loss = std::function<DistTensor(const DistTensor& inputs,
                                      const DistTensor& targets)>;

struct TrainerOptions {
  int64_t steps = 1000;
  // AdamW's learning rate warms up and then falls, as CosineSchedule says, over
  // lr_steps (0: `steps`, or as many as the resumed training had).
  double lr = 1e-3;
  int64_t lr_steps = 0;
  int64_t warmup = -1;
  double weight_decay = 0.01;  // of matrices; see decay_matrices()
  double clip = 1;             // the largest norm of the gradient; 0: no limit
  // A step cuts its batch into this many parts and adds their gradients.
  int64_t micro_batches = 1;
  // The type that gradients are sent in; their own if not set.
  std::optional<DType> wire_dtype = {};
  double loss_scale = 0;  // the first one (GradScaler); 0: none
  // Bytes of parameters that ZeRO's stage 3 may hold, or gather ahead, besides
  // those in use; -1: those of the largest block (of two if blocks are
  // recomputed). Blocks are numbered in the names of their parameters: "h.0.".
  int64_t gather_budget = -1;
  // Whether the third step becomes a graph (dtensor/graph.h), which later steps
  // replay. Not for a pipeline or with a loss scale.
  bool cuda_graph = false;
  // The schedule of a language model on a mesh with an axis pp; its
  // micro-batches replace those above. The default is 1F1B.
  std::optional<PipelineSchedule> schedule = {};

  // The folder that train() saves checkpoints in, after every save_every steps
  // and after the last one; "": none. `keep` as in CheckpointOptions.
  std::string checkpoints = {};
  int64_t save_every = 100;
  int64_t keep = 0;
  // Values that decide the data of a step, such as the seed of a shuffle. They
  // are saved, and a training with other values is not resumed.
  CheckpointValues data = {};
  // Steps between two calls of check_copies() in train(); 0: none.
  int64_t check_copies_every = 0;
  // Whether train() counts what it sends; see train(). Turn it off if batches
  // differ in their shapes.
  bool check_bytes = true;
  bool progress = true;  // on rank 0, on standard error
};

struct StepResult {
  double loss;        // before the update
  double grad_norm;   // global, before clipping
  double loss_scale;  // for the next step; 1 without scaling
  bool replayed;      // as a graph, so its collectives were not counted
  // The loss scaler skipped the update, since grad_norm is not finite.
  bool skipped;
  double seconds;  // on this rank, including the making of the batch
  double exposed;  // seconds of communication that no computation hid
  PipelineTimes pipeline = {};
};

// The most bytes that a rank holds during a step, of each MemoryKind and of all
// together. (The maxima need not occur at the same time.)
struct MemoryUse {
  std::array<int64_t, kMemoryKinds> kinds = {};
  int64_t peak = 0;
};

// The steps of train(), on this rank, and what all ranks sent and held.
struct TrainingReport {
  int64_t first_step = 0;
  std::vector<StepResult> steps;
  std::vector<CommEvent> events;  // of the first of these steps, merged
  MemoryUse memory;               // the most of any rank
  // The times of the rank with the longest span, over the steps without the
  // first, which makes all plans.
  PipelineTimes pipeline;
};

// The predicted memory of the rank that holds most, and the predicted messages
// of one training step.
struct Prediction {
  std::vector<CommEvent> events;
  MemoryUse memory;
  int64_t parameter_bytes = 0;
  int64_t parameters = 0;  // elements of the model, each counted once
};
using OnOp = std::function<void(const OpCall&)>;

// Every rank makes one, for a module that outlives it, and makes the same
// calls. They are collective over all ranks of the run.
class Trainer {
 public:
  // Rows are split over those of the module's mesh axes dp, fsdp and ep that
  // exist. Throws Error for options out of range, and if another job saves to
  // the folder of checkpoints.
  Trainer(Module&, Loss, TrainerOptions = {});
  // Trains with the model's loss(). Inputs and targets are tokens [rows, s],
  // whose sequences are split over cp (batch_layout()). On a mesh with an axis
  // pp it runs as a pipeline.
  Trainer(LanguageModel&, TrainerOptions = {});
  ~Trainer();
  Trainer(Trainer&&) noexcept;

  // Loads the last checkpoint of the folder, if there is one, and returns its
  // path. It may come from another mesh and other layouts. Throws Error as
  // check_resume() does.
  std::optional<std::string> resume();
  // Trains up to options().steps. Throws Error, on every rank, if loss or norm
  // are not finite (apart from steps that the loss scaler skips), unless every
  // step receives as many bytes as its plans predicted and as the first one
  // did, and if the folder has checkpoints that were not resumed.
  TrainingReport train(const Batches&);

  // Trains the next step. Loss and norm are 0 in a dry run.
  StepResult step(const Batches&);
  int64_t next_step() const;
  const TrainerOptions& options() const;
  // The mean loss over the rows of `count` batches, without gradients; for a
  // language model its text_loss().
  double evaluate(int64_t count, const Batches&) const;
  // Saves the parameters, the optimizer and the scaler in the background, as
  // step-N of the options' folder for the next step N.
  void save() const;
  void load(const std::string& checkpoint);
  // Throws Error on every rank, which names a rank, if its copies of parameters
  // or state differ from those of others.
  void check_copies() const;
  // Sets RankContext::gather_budget as the constructor does, for a run with
  // several trainers.
  void set_gather_budget() const;
  // Predicts what this rank sends and holds in a step. REQUIRES: a dry run.
  // on_op (may be empty) is called for the operators of the step.
  Prediction predict(const Batches&, const OnOp& on_op = {});

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

// Predicts by dry runs of one training step: the same code, without data, as
// each rank that has the largest part of a batch of inputs (one for each
// position along pp). `on_rank` makes a model and its trainer, and returns
// Trainer::predict(). Not for use inside a run.
Prediction predict(const RunOptions&, const Shape& inputs,
                   const std::function<Prediction(Runtime&)>& on_rank);
// Throws Error unless the training sent what was predicted (step_checks.h).
void check_agreement(const Prediction&, const TrainingReport&);

// Throws Error, headed by `where`, if a training with these options cannot
// resume from the checkpoint, which was saved with other `data`. If lr_steps is
// 0, takes it from the checkpoint. Any thread may call it.
void check_resume(std::string_view where, const std::string& checkpoint,
                  TrainerOptions&);

}  // namespace dtensor::nn
