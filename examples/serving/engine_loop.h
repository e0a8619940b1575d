// Runs the engine on every rank, with the requests of the main rank's queue.
#pragma once
#include <functional>

#include "dtensor/runtime.h"
#include "examples/serving/request_queue.h"

namespace dtensor::examples {

// Every rank calls it, and only a signal or a failure ends it, with an Error,
// which the clients get. The ranks look for new requests every `idle` seconds
// or sooner; it has to be shorter than the run's timeout. Only rank 0 uses the
// queue, and calls ready() when it takes requests. In a dry run, continues one
// text and returns.
void serve_requests(Runtime&, const nn::LanguageModel&,
                    const nn::EngineOptions&, RequestQueue&, double idle,
                    const std::function<void()>& ready);

}  // namespace dtensor::examples
