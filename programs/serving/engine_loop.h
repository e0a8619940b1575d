// SPDX-License-Identifier: Apache-2.0
// Runs an engine on every rank, which continues the texts of rank 0's queue.
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
  // How long ranks wait for each other after all have loaded the checkpoint.
  // Before that, and always if this has no value, RunOptions::timeout holds.
  std::optional<std::chrono::milliseconds> timeout = {};
  // The seconds after a SIGTERM in which texts may go on. New texts are refused
  // during them (RequestQueue::drain()). The signal takes effect when the queue
  // is empty or the time is over; a second SIGTERM takes effect at once. It is
  // enough that one process of the run gets the signal.
  double drain = 0;
};

// Loads the checkpoint on every rank of a run, and calls ready() on rank 0.
// Then continues the texts of the queue, which only rank 0 uses, until the
// queue's end() is called. Throws Error if a signal arrives or a rank fails.
// The clients get the Error's message, and have one second to read it.
// REQUIRES: not a dry run.
void serve_requests(RunOptions, const ServedCheckpoint&, RequestQueue&,
                    const std::function<void()>& ready,
                    const ServingTimes& = {});

}  // namespace dtensor::examples
