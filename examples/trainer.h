// The training loop's body, on tensors with or without data.
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
  bool replayed;     // of a graph: nothing of it was counted
  // By the loss's scaler: no parameter changed, and grad_norm is not finite.
  bool skipped;
};

// A model and its optimizer on this rank. Every rank makes one.
class Trainer {
 public:
  // `config` has been validated.
  Trainer(const TrainConfig& config, const Mesh& mesh);

  // Collective. Both are 0 in a dry run. With config.cuda_graph, the third one
  // becomes a graph, which it and those after replay.
  StepResult step(int64_t i, const TextData& text);
  // The mean cross-entropy of the text, in windows of seq. Collective.
  double evaluate(const TextData& text) const;
  const nn::LanguageModel& model() const { return *model_; }
  const nn::GradScaler& scaler() const { return scaler_; }
  // What this rank's stages did in the last step; empty without a pipeline.
  const std::vector<TimedTask>& tasks() const { return tasks_; }
  // Its parameters and optimizer, which goes on with step i, as DIR/step-i, in
  // the background; and the step that a saved one goes on with. Collective.
  void save(const std::string& dir, int64_t i, const TextData&,
            int64_t keep = 0) const;
  int64_t load(const std::string& checkpoint);
  // Throws Error, on every rank, that names a rank whose copies of parameters
  // or state differ from the others'. Collective.
  void check_copies() const;
  // The rank's, for this model; the constructor does it too.
  void set_gather_budget() const;

 private:
  struct Windows {
    DistTensor inputs, targets;
    double share;  // of the step's windows
  };
  static DistTensor spread(const Tensor& rows, const Mesh&);
  Windows micro_batch(const Batch&, int64_t m) const;
  // Of the parameters, and the loss, of all micro-batches together.
  using MicroBatches = std::function<Windows(int64_t m)>;
  std::vector<DistTensor> gradients(const MicroBatches&,
                                    DistTensor& loss) const;
  std::vector<DistTensor> pipeline_gradients(const MicroBatches&,
                                             DistTensor& loss);
  void make_pipeline();
  std::optional<DType> wire() const;
  // Gives all of a step to the device. What comes is to be read: the loss and
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
  // Where a micro-batch's inputs and targets go.
  Mesh first_mesh_, last_mesh_;
  int64_t micros_;
  // Of an axis pp: the stages, where each of the optimizer's parameters is
  // among theirs, and the targets of the running step.
  std::unique_ptr<nn::Pipeline> pipeline_;
  std::vector<std::pair<size_t, size_t>> places_;
  std::vector<DistTensor> targets_;
  std::vector<TimedTask> tasks_;
  int64_t steps_run_ = 0;
  // With a graph: what a replay reads and writes.
  std::vector<Windows> windows_;
  Tensor report_;
  std::unique_ptr<Graph> graph_;
};

// Throws Error when steps of this kind cannot go on from that checkpoint: it
// was saved with another batch, sequence, seed or text, or has all the steps.
// A learning rate whose steps the flags do not name goes on as it was saved.
void check_goes_on(const std::string& checkpoint, TrainConfig&,
                   const TextData&);

// The most that a rank holds during a step, in bytes, of each MemoryKind and
// of all together. (These need not come at the same time.)
struct MemoryUse {
  std::array<int64_t, kMemoryKinds> kinds = {};
  int64_t peak = 0;
};
MemoryUse memory_use(const Allocator::Stats&);
// Of both, the larger.
MemoryUse largest(const MemoryUse&, const MemoryUse&);

// What the rank that holds most holds, and what one training step sends.
struct Prediction {
  std::vector<CommEvent> events;
  MemoryUse memory;
  int64_t parameter_bytes = 0;
  int64_t parameters = 0;  // elements of all ranks, each counted once
};

// From a dry run of one training step: the same code, without data. `trace`
// (may be empty) is told of the step's operators.
using Trace = std::function<void(const OpCall&)>;
Prediction predict(const TrainConfig&, const RunOptions&,
                   const Trace& trace = {});

}  // namespace dtensor::examples
