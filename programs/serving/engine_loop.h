// SPDX-License-Identifier: Apache-2.0
// Runs the engine on every rank, with the requests of the main rank's queue.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "dtensor/nn/models.h"
#include "dtensor/runtime.h"
#include "programs/serving/request_queue.h"

namespace dtensor::examples {

struct ServedCheckpoint {
  std::string dir;
  nn::LoadOptions load = {};
  nn::EngineOptions engine = {};
};

struct ServingTimes {
  // How long a rank waits for others once all have loaded the checkpoint,
  // instead of RunOptions::timeout.
  std::optional<std::chrono::milliseconds> timeout = {};
  // The seconds after SIGTERM in which texts may go on. The queue drains()
  // then, and the signal takes effect when it is empty or they are over. A
  // second SIGTERM takes effect at once. It is enough if one process gets it.
  double drain = 0;
};

// Loads the checkpoint on every rank of a run, calls ready() on rank 0, and
// continues the texts of the queue, which only rank 0 uses, until its end().
// Throws Error if a signal arrives or a rank fails; clients get its sentence,
// and a second to read it. Not for a dry run.
void serve_requests(RunOptions, const ServedCheckpoint&, RequestQueue&,
                    const std::function<void()>& ready,
                    const ServingTimes& = {});

}  // namespace dtensor::examples
