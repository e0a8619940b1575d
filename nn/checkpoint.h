// SPDX-License-Identifier: Apache-2.0
// Saves a training run and resumes it: the parameters, the optimizer, the
// position in the run, and the random state. (The file format:
// dtensor/io/checkpoint.h.)
//
//   if (const auto path = latest_checkpoint("run"))
//     at = nn::load_checkpoint(*path, *model, optimizer);
//   for (; at.step < steps;) {
//     ...
//     ++at.step;
//     nn::save_checkpoint("run", *model, optimizer, at, {.background = true});
//   }
#pragma once
#include <cstdint>
#include <string>

#include "dtensor/io/checkpoint.h"
#include "dtensor/nn/module.h"
#include "dtensor/nn/optimizer.h"

namespace dtensor::nn {

struct TrainingState {
  int64_t step = 0;
  int64_t data_position = 0;     // in a unit that the program chooses
  CheckpointValues values = {};  // further values of the program
};

// Saves to DIR/step-STEP: the parameters as "model/NAME", Optimizer::state() as
// "optimizer/NAME", the training state, and random_state() of every rank. For
// the state of one of the model's parameters, NAME has the model's name of that
// parameter, even if the optimizer uses another name. A run that loads the
// checkpoint on the same mesh continues bit for bit. Collective over all ranks
// of the run, including those outside the model's mesh. Does nothing in a dry
// run. Throws Error as dtensor::save_checkpoint() does, and if ranks have
// different seeds or have not drawn equally often from a generator that they
// share.
void save_checkpoint(const std::string& dir, const Module&, const Optimizer&,
                     const TrainingState&, const CheckpointOptions& = {});

// The training state in a checkpoint. Any thread may call it.
TrainingState training_state(const CheckpointReader&);

struct CheckpointLoadOptions {
  // Whether to convert saved values to the float types of the model. The
  // optimizer has an f32 copy of each bf16 or f16 parameter, its master. A
  // parameter of another type than the saved one is loaded from the saved
  // master, if there is one. A master that was not saved starts from the saved
  // parameter.
  bool cast = false;
};

// Loads one checkpoint ("run/step-00000100") into a model and an optimizer that
// were constructed like the saved ones, on any mesh and in any layouts. Reads
// everything into new memory first; only when every rank has read all of its
// data does it change the parameters, the optimizer and the random state.
//
// Throws Error on every rank, with nothing changed, if a file is damaged or the
// checkpoint does not fit: the error lists the names that are missing, unknown,
// or of another shape or type (at most 8 of each). Collective over the run. In
// a dry run it reads nothing and returns TrainingState{}.
TrainingState load_checkpoint(const std::string& path, Module&, Optimizer&,
                              const CheckpointLoadOptions& = {});

}  // namespace dtensor::nn
