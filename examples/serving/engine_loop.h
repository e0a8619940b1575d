// SPDX-License-Identifier: Apache-2.0
// Runs the engine on every rank, with the requests of the main rank's queue.
#pragma once
#include <functional>
#include <string>

#include "dtensor/nn/models.h"
#include "dtensor/runtime.h"
#include "examples/serving/request_queue.h"

namespace dtensor::examples {

struct ServedCheckpoint {
  std::string dir;
  nn::LoadOptions load = {};
  nn::EngineOptions engine = {};
};

// Loads the checkpoint on every rank of a run, calls ready() on rank 0, and
// continues the texts of the queue, which only rank 0 uses, until its end().
// Throws Error if a signal arrives or a rank fails; clients get its sentence,
// and a second to read it. Not for a dry run.
void serve_requests(RunOptions, const ServedCheckpoint&, RequestQueue&,
                    const std::function<void()>& ready);

}  // namespace dtensor::examples
