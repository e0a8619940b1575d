// SPDX-License-Identifier: Apache-2.0
// //:serve: answers OpenAI's HTTP interface with a checkpoint of transformers.
#include <fmt/format.h>

#include <optional>

#include "dtensor/explore/http_server.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/program.h"
#include "examples/checkpoint_flags.h"
#include "examples/predict_generation.h"
#include "examples/serving/engine_loop.h"
#include "examples/serving/server.h"

namespace dtensor::examples {
namespace {

constexpr size_t kMostBody = 8 << 20;

struct Args {
  CheckpointFlags model;
  std::string name, host = "127.0.0.1", api_key;
  int64_t port = 8000, most = 64;
  nn::EngineOptions engine;
  GenerationFlags dry;
};

void serve(const Args& a, Program& program) {
  if (program.dry_run())
    return predict_generation(program, a.model.dir, a.model.load(), a.engine,
                              a.dry);
  RequestQueue queue(a.most);
  std::optional<Server> server;
  std::optional<explore::HttpServer> http;
  if (program.is_main_process()) {
    ServedModel model = ServedModel::read(a.model.dir, a.name);
    if (!model.chat)
      fmt::print(stderr, "serve: no chat: {}\n", model.why_no_chat);
    server.emplace(std::move(model), queue, a.api_key, a.most);
    http.emplace(
        a.host, static_cast<int>(a.port),
        [&](const explore::HttpRequest& r) { return server->answer(r); },
        // Beyond the requests: those that are refused, /health, /metrics.
        explore::HttpOptions{.connections = static_cast<size_t>(a.most) + 64,
                            .body = kMostBody});
  }
  const ServedCheckpoint from{a.model.dir, a.model.load(), a.engine};
  serve_requests(program.run_options(), from, queue, [&] {
    const bool is_v6 = a.host.find(':') != a.host.npos;
    fmt::print("http://{}:{}/\n", is_v6 ? "[" + a.host + "]" : a.host,
               http->port());
    std::fflush(stdout);
  });
}

}  // namespace
}  // namespace dtensor::examples

int main(int argc, char** argv) {
  using namespace dtensor;
  examples::Args a;
  Program program(
      {.about = "Answers OpenAI's HTTP interface with a checkpoint of "
                "transformers: /v1/chat/completions, /v1/completions and "
                "/v1/models, also /health and /metrics, and a page to chat "
                "at /.",
       .mesh = "tp=1"});
  a.model.add_to(program, "model.safetensors and tokenizer.json");
  program.add("--name", &a.name,
              "the model's name for clients; the folder's if it is not given");
  program.add("--port", &a.port, "where it listens; 0: one that is free", 0,
              65535);
  program.add("--host", &a.host,
              "the address at which it listens; the default is not reachable "
              "from other machines",
              TextKind::kText);
  program.add("--api-key", &a.api_key, "requests without this key are refused");
  program.add("--batch", &a.engine.texts,
              "the most texts that are continued at once", 1);
  program.add("--length", &a.engine.length,
              "the most tokens of a text, prompt included; 0: the model's "
              "longest sequence");
  program.add("--cache-tokens", &a.engine.cache_tokens,
              "the tokens of all texts that the cache is for; 0: --batch times "
              "--length");
  program.add("--chunk", &a.engine.chunk,
              "the most tokens of prompts in a step", 1);
  program.add("--max-requests", &a.most,
              "the most texts that run and wait at once", 1, 4096);
  a.dry.add_to(program);
  return program.main(
      argc, argv,
      [&] {
        a.model.check();
        a.dry.check(program);
      },
      [&] { examples::serve(a, program); });
}
