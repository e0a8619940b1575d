// What train and explain can be asked to train.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/nn/config.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/runtime/program.h"

namespace dtensor::examples {

struct TrainConfig {
  nn::ModelConfig model;
  std::string dtype = "f32";
  std::vector<std::string> layouts;  // "PATTERN=PLACEMENTS"
  int64_t batch = 8;
  int64_t steps = 500;
  double lr = 3e-3;
  int64_t warmup = -1;  // -1: min(10, steps / 10)
  double weight_decay = 0.01;
  double clip = 1;
  int64_t seed = 0;

  // Throws Error unless the model can be made and trained on the mesh; fills
  // model.dtype.
  void validate(const Mesh&);
  // The layouts asked for, then tensor parallelism over tp.
  nn::ParallelPlan plan(const Mesh&) const;
};

// --model, --layers, ... --seed.
void add_train_flags(Program&, TrainConfig&);

}  // namespace dtensor::examples
