// What train and explain can be asked to train.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/nn/config.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/nn/pipeline_model.h"
#include "dtensor/program.h"

namespace dtensor::examples {

struct TrainConfig {
  nn::ModelConfig model;
  std::string dtype = "f32";
  std::vector<std::string> layouts;  // "PATTERN=PLACEMENTS"
  int64_t batch = 8;
  int64_t steps = 500;
  double lr = 3e-3;
  // Over so many steps the learning rate falls; 0: over `steps`.
  int64_t lr_steps = 0;
  int64_t warmup = -1;  // -1: min(10, lr_steps / 10)
  double weight_decay = 0.01;
  double clip = 1;
  int64_t seed = 0;
  int64_t zero = 0;            // the stage, over fsdp or dp
  int64_t gather_budget = -1;  // bytes; -1: those of a block
  int64_t accumulate = 1;      // micro-batches of a step
  // Of a mesh with an axis pp. Micro-batches: 0 is twice the places along it,
  // at most the batch. Chunks: 0 is one, or what a file says. The schedule: a
  // name, or a file.
  int64_t micro_batches = 0, chunks = 0;
  std::string schedule;            // "": 1f1b
  std::string recompute = "none";  // see nn::Recompute
  bool cuda_graph = false;         // steps are replayed, on a GPU
  bool sequence_parallel = false;  // over tp
  std::string context = "auto";    // over cp; see ContextParallel
  int64_t context_memory = 0;      // bytes that "auto" may hold; 0: any
  double router_loss = -1;         // of mixtral; -1: 0.001
  std::string wire;  // the type that gradients are sent in; "": theirs
  // The first factor of the loss (nn::GradScaler). 0: the loss is not scaled;
  // -1: 65536 in f16, else 0.
  double loss_scale = -1;

  // Throws Error unless the model can be made and trained on the mesh; fills
  // model.dtype and loss_scale. With an axis pp it reads the schedule, once and
  // for all: the file may be gone when the training ends.
  void validate(const Mesh&);
  // The layouts asked for, then tensor parallelism over tp; ZeRO, and how
  // sequences are split, on top.
  nn::ParallelPlan plan(const Mesh&) const;
  // What the stages do when, as validate() has read it. REQUIRES: that was
  // called, with a mesh with an axis pp.
  const PipelineSchedule& pipeline() const { return *pipeline_; }
  // "dp=2,tp=2, zero 3, accumulate 4".
  std::string strategy(const Mesh&) const;

 private:
  void validate_pipeline(const Mesh&);
  std::optional<PipelineSchedule> pipeline_;
};

// --model, --layers, ... --seed.
void add_train_flags(Program&, TrainConfig&);

}  // namespace dtensor::examples
