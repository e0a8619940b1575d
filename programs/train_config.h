// SPDX-License-Identifier: Apache-2.0
// The flags of //:train and //:explain that describe a training, and the
// training that they describe.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/nn/config.h"
#include "dtensor/nn/language_model.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/nn/pipeline_model.h"
#include "dtensor/nn/trainer.h"
#include "dtensor/program/program.h"
#include "programs/text_data.h"

namespace dtensor::examples {

struct TrainConfig {
  nn::ModelConfig model;
  std::string dtype = "f32";
  std::vector<std::string> layouts;  // "PATTERN=PLACEMENTS"
  int64_t batch = 8;
  int64_t steps = 500;
  double lr = 3e-3;
  // The number of steps over which the learning rate falls; 0: `steps`, or the
  // number of a training that is resumed.
  int64_t lr_steps = 0;
  int64_t warmup = -1;  // -1: min(10, lr_steps / 10)
  double weight_decay = 0.01;
  double clip = 1;
  int64_t seed = 0;
  int64_t zero = 0;            // ZeRO's stage, over fsdp, dp or ep
  int64_t gather_budget = -1;  // bytes; -1: TrainerOptions' default
  int64_t accumulate = 1;      // micro-batches in a step
  // Used only if the mesh has an axis pp. A 0 is replaced by the number in the
  // schedule's file. If the schedule is not from a file, micro_batches becomes
  // twice the size of pp, but at most `batch`, and chunks becomes 1.
  int64_t micro_batches = 0, chunks = 0;
  std::string schedule;            // its name or its file; "": 1f1b
  std::string recompute = "none";  // see nn::Recompute
  // The most bytes that a rank may need: fit_memory() then chooses what to
  // recompute, or to offload if that is `recompute`. 0: no limit.
  int64_t recompute_memory = 0;
  bool offload_state = false;      // the optimizer's, to the host's memory
  bool cuda_graph = false;         // replay steps as a graph, on a GPU
  bool sequence_parallel = false;  // over tp
  std::string context = "auto";    // over cp; see ContextParallel
  int64_t context_memory = 0;      // bytes that "auto" may hold; 0: any
  double router_loss = -1;         // of a mixtral; -1: 0.001
  std::string wire;  // the dtype that gradients are sent in; "": their own
  // The initial loss scale (nn::GradScaler). 0: the loss is not scaled; -1:
  // 65536 in f16, else 0.
  double loss_scale = -1;

  // Throws Error for settings that do not fit together or do not fit the mesh,
  // as far as this shows before the model is made. Sets model.dtype,
  // model.router_loss and loss_scale. With an axis pp, also reads the schedule,
  // whose file is not read again later, and sets schedule, chunks and
  // micro_batches.
  void validate(const Mesh&);
  // The plan of the model's layouts: `layouts` first, then nn::default_plan(),
  // with ZeRO and the settings for split sequences applied.
  nn::ParallelPlan plan(const Mesh&) const;
  // The schedule that validate() has read. REQUIRES: validate() was called for
  // a mesh with an axis pp.
  const nn::PipelineSchedule& pipeline() const { return *pipeline_; }
  // If recompute_memory is set, finds the least recomputation, or the fewest
  // offloaded blocks, for it, by dry runs. Throws Error if it does not suffice.
  // REQUIRES: validate() was called.
  void fit_memory(const RunOptions&);
  // The strategy as text: "dp=2,tp=2, zero 3, accumulate 4".
  std::string strategy(const Mesh&) const;
  // "gpt on dp=2,tp=2, zero 3".
  std::string title(const Mesh& mesh) const {
    return model.name + " on " + strategy(mesh);
  }

  // The model and the trainer's arguments for training on a text. The text and
  // this object have to outlive the Batches. REQUIRES: validate() was called.
  std::unique_ptr<nn::LanguageModel> make_model(const Mesh&) const;
  nn::TrainerOptions trainer_options(const TextData&) const;
  nn::Batches batches(const TextData&) const;

 private:
  void validate_pipeline(const Mesh&);
  std::optional<nn::PipelineSchedule> pipeline_;
  std::vector<nn::Recompute> recompute_blocks_;  // of fit_memory()
};

// A flag that has an effect only on a mesh with an axis that splits `splits`.
struct AxisFlag {
  std::string_view flag;
  nn::Splits splits;
  bool (*given)(const TrainConfig&);  // whether it differs from the default
  void (*reset)(TrainConfig&);        // sets the default
};
std::span<const AxisFlag> axis_flags();
// The name of the first axis in model_axes() that splits this.
std::string_view axis_name_of(nn::Splits);

// Predicts one training step by a dry run. `on_op` (may be empty) is called for
// each operator of the step.
nn::Prediction predict(const TrainConfig&, const RunOptions&,
                       const std::function<void(const OpRan&)>& on_op = {});

// Adds the flags --model, --layers, ..., which set the fields of a config.
void add_train_flags(Program&, TrainConfig&);

}  // namespace dtensor::examples
