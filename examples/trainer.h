// The body of the training loop, on tensors with or without data.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/graph.h"
#include "dtensor/nn/checkpoint.h"
#include "dtensor/nn/grad_scaler.h"
#include "dtensor/nn/language_model.h"
#include "dtensor/nn/optimizer.h"
#include "dtensor/nn/pipeline_model.h"
#include "dtensor/nn/schedule.h"
#include "dtensor/ops/op.h"
#include "dtensor/rank_context.h"
#include "examples/text_data.h"
#include "examples/train_config.h"

namespace dtensor::examples {

struct StepResult {
  double loss;       // before the update
  double grad_norm;  // global, before clipping
  bool replayed;     // as a graph, so its collectives were not counted
  // The loss scaler skipped the update, since grad_norm is not finite.
  bool skipped;
};

// A model and its optimizer on this rank. Every rank makes one, and makes the
// same calls.
class Trainer {
 public:
  // REQUIRES: config.validate(mesh) has passed.
  Trainer(const TrainConfig& config, const Mesh& mesh);

  // Trains step i. Loss and norm are 0 in a dry run. With config.cuda_graph the
  // third call makes a graph, which it and later calls replay.
  StepResult step(int64_t i, const TextData& text);
  // The mean cross-entropy of the text, in windows of seq bytes.
  double evaluate(const TextData& text) const;
  const nn::LanguageModel& model() const { return *model_; }
  const nn::GradScaler& scaler() const { return scaler_; }
  // This rank's pipeline tasks in the last step; empty without a pipeline.
  const std::vector<nn::TimedTask>& tasks() const { return tasks_; }
  // Saves the parameters, the optimizer and the scaler as DIR/step-i in the
  // background; step i is the next one to train. `keep`: how many checkpoints
  // stay (CheckpointOptions).
  void save(const std::string& dir, int64_t i, const TextData&,
            int64_t keep = 0) const;
  // Loads a checkpoint, and returns the next step to train.
  int64_t load(const std::string& checkpoint);
  // Throws Error on every rank, which names a rank, if its copies of parameters
  // or state differ from those of others.
  void check_copies() const;
  // Sets RankContext::gather_budget for this model, as the constructor does:
  // config.gather_budget, or the bytes of a block (two with recomputed blocks).
  void set_gather_budget() const;

 private:
  struct Windows {
    DistTensor inputs, targets;
    double share;  // the share of the step's windows, from 0 to 1
  };
  static DistTensor spread(const Tensor& rows, const Mesh&);
  Windows micro_batch(const Batch&, int64_t m) const;
  // The gradients of the parameters and the loss, over all micro-batches.
  using MicroBatches = std::function<Windows(int64_t m)>;
  std::vector<DistTensor> gradients(const MicroBatches&,
                                    DistTensor& loss) const;
  std::vector<DistTensor> pipeline_gradients(const MicroBatches&,
                                             DistTensor& loss);
  void make_pipeline();
  std::optional<DType> wire() const;
  // Gives a whole step to the device. Returns a device tensor with the loss and
  // the norm.
  Tensor run(const MicroBatches&, double lr);
  Tensor replay(const Batch&, double lr);
  TrainConfig config_;
  Mesh mesh_;
  std::unique_ptr<nn::LanguageModel> model_;
  nn::AdamW optimizer_;
  nn::GradScaler scaler_;
  nn::CosineSchedule schedule_;
  int64_t bucket_bytes_;
  // The meshes of a micro-batch's inputs and targets.
  Mesh first_mesh_, last_mesh_;
  int64_t micros_;
  // With an axis pp: the pipeline; for each of the optimizer's parameters its
  // stage and its position there; and the targets of the running step.
  std::unique_ptr<nn::Pipeline> pipeline_;
  std::vector<std::pair<size_t, size_t>> places_;
  std::vector<DistTensor> targets_;
  std::vector<nn::TimedTask> tasks_;
  int64_t steps_run_ = 0;
  // With a graph: the tensors that a replay reads and writes.
  std::vector<Windows> windows_;
  Tensor report_;
  std::unique_ptr<Graph> graph_;
};

// Throws Error if this training cannot resume from the checkpoint: it was saved
// with another batch, sequence, seed or size of the text, or has all the steps.
// If the flags do not say over how many steps the learning rate falls, takes
// the number from the checkpoint.
void check_goes_on(const std::string& checkpoint, TrainConfig&,
                   const TextData&);

// The most bytes that a rank holds during a step, of each MemoryKind and of all
// together. (The maxima need not occur at the same time.)
struct MemoryUse {
  std::array<int64_t, kMemoryKinds> kinds = {};
  int64_t peak = 0;
};
MemoryUse memory_use(const Allocator::Stats&);
// The larger value of the two, element by element.
MemoryUse largest(const MemoryUse&, const MemoryUse&);

// The predicted memory of the rank that holds most, and the predicted messages
// of one training step.
struct Prediction {
  std::vector<CommEvent> events;
  MemoryUse memory;
  int64_t parameter_bytes = 0;
  int64_t parameters = 0;  // elements of the model, each counted once
};

// Predicts by a dry run of one training step: the same code, without data.
// `trace` (may be empty) is called for the operators of the step.
using Trace = std::function<void(const OpCall&)>;
Prediction predict(const TrainConfig&, const RunOptions&,
                   const Trace& trace = {});

}  // namespace dtensor::examples
