// SPDX-License-Identifier: Apache-2.0
// Answers HTTP requests: the paths of OpenAI's interface, /health, /metrics, a
// page at /, and /status and /cancel, which the page uses.
#pragma once
#include <atomic>
#include <nlohmann/json_fwd.hpp>
#include <semaphore>
#include <string>
#include <thread>

#include "dtensor/program/explore/http_server.h"
#include "programs/serving/openai_request.h"
#include "programs/serving/request_queue.h"

namespace dtensor::examples {

class Server {
 public:
  // `api_key`: requests must have this key, except those of / and /health; "":
  // they need no key. `most`: the most texts of one request, and the number in
  // the error for too many texts at once.
  Server(ServedModel model, RequestQueue& queue, std::string api_key,
         int64_t most)
      : model_(std::move(model)),
        queue_(queue),
        api_key_(std::move(api_key)),
        most_(most),
        turns_(std::thread::hardware_concurrency() > 1 ? 2 : 1) {}

  // Answers one request. Any number of threads may call it.
  explore::HttpAnswer answer(explore::HttpRequest) noexcept;

 private:
  struct Path;
  explore::HttpAnswer route(explore::HttpRequest&);
  void check_key(const explore::HttpRequest&) const;
  static void check_own(const explore::HttpRequest&);
  // Returns RequestQueue::longest(). Throws ApiError if there is no engine, if
  // the run has failed, or if the queue drains.
  int64_t check_ready() const;
  explore::HttpAnswer complete(explore::HttpRequest&);
  explore::HttpAnswer page(explore::HttpRequest&);
  explore::HttpAnswer health(explore::HttpRequest&);
  explore::HttpAnswer models(explore::HttpRequest&);
  explore::HttpAnswer model(explore::HttpRequest&);
  explore::HttpAnswer metrics(explore::HttpRequest&);
  explore::HttpAnswer status(explore::HttpRequest&);
  explore::HttpAnswer cancel(explore::HttpRequest&);
  nlohmann::ordered_json about_model() const;
  OpenAiRequest read(std::string body, bool chat, int64_t longest);

  const ServedModel model_;
  RequestQueue& queue_;
  const std::string api_key_;
  const int64_t most_;
  std::atomic<int64_t> next_{0};
  // Limits how many large bodies are read at once, since reading one takes many
  // times its bytes.
  std::counting_semaphore<> turns_;
};

}  // namespace dtensor::examples
