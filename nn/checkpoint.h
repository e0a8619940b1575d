// Saving a training run, and going on with it: parameters, optimizer, where it
// is, and its random numbers. (Files: dtensor/io/checkpoint.h.)
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
  int64_t data_position = 0;     // in units of the program's own
  CheckpointValues values = {};  // what else it wants to know again
};

// Saves as DIR/step-STEP the parameters as "model/NAME", Optimizer::state() as
// "optimizer/NAME", the state, and what random_state() is on every rank, so
// that a run which loads it goes on, bit for bit, on the same mesh. Collective
// over the run, of which the model's mesh may be a part. Does nothing in a dry
// run. Throws Error as save_checkpoint() of dtensor/io does, and when two ranks
// have drawn another number of times from one generator.
void save_checkpoint(const std::string& dir, const Module&, const Optimizer&,
                     const TrainingState&, const CheckpointOptions& = {});

// That of a checkpoint. By any thread.
TrainingState training_state(const CheckpointReader&);

struct CheckpointLoadOptions {
  // Takes values of another float type. The f32 master of a parameter that was
  // saved as bf16 or f16 is then what a parameter of another type becomes, and
  // a master that was not saved begins as the parameter that was.
  bool cast = false;
};

// The same, from the folder of one checkpoint ("run/step-00000100"), into a
// model and an optimizer made as those were, on any mesh and in any layouts.
// Reads into new memory, and then, when all ranks have all of it, changes the
// parameters, the optimizer and the random state. Throws Error on every rank,
// and nothing has changed then, when a file is damaged, or the checkpoint is of
// another model: it lists the names that are missing, unknown, of another shape
// or of another type. Collective over the run. In a dry run it reads nothing
// and returns the beginning.
TrainingState load_checkpoint(const std::string& path, Module&, Optimizer&,
                              const CheckpointLoadOptions& = {});

}  // namespace dtensor::nn
