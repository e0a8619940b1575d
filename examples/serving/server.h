// SPDX-License-Identifier: Apache-2.0
// The paths of the server: OpenAI's, /health, /metrics, a page, and /status and
// /cancel for it.
#pragma once
#include <atomic>
#include <string>

#include "dtensor/explore/http_server.h"
#include "examples/serving/openai_request.h"
#include "examples/serving/request_queue.h"

namespace dtensor::examples {

class Server {
 public:
  // api_key: what requests of /v1/ and /cancel have to know; "": nothing.
  // `most` is the most texts at once, for a sentence.
  Server(ServedModel model, RequestQueue& queue, std::string api_key,
         int64_t most)
      : model_(std::move(model)),
        queue_(queue),
        api_key_(std::move(api_key)),
        most_(most) {}

  // Any number of threads may call it.
  explore::HttpAnswer answer(const explore::HttpRequest&) noexcept;

 private:
  explore::HttpAnswer route(const explore::HttpRequest&);
  void check_allowed(const explore::HttpRequest&) const;
  // Returns RequestQueue::longest(). Throws ApiError if there is no engine.
  int64_t check_ready() const;
  explore::HttpAnswer complete(const explore::HttpRequest&, bool chat);
  explore::HttpAnswer health() const;
  explore::HttpAnswer models() const;
  explore::HttpAnswer metrics() const;
  explore::HttpAnswer status() const;
  explore::HttpAnswer cancel(const explore::HttpRequest&);

  const ServedModel model_;
  RequestQueue& queue_;
  const std::string api_key_;
  const int64_t most_;
  std::atomic<int64_t> next_{0};
};

}  // namespace dtensor::examples
