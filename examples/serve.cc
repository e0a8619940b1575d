// //:serve: answers OpenAI's HTTP interface with a checkpoint of transformers.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "dtensor/explore/http_server.h"
#include "dtensor/nn/models.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/program.h"
#include "examples/serving/engine_loop.h"
#include "examples/serving/server.h"

namespace dtensor::examples {
namespace {

constexpr size_t kMostBody = 8 << 20;
// Clients read their last event in this time after a failure.
constexpr double kFarewell = 1;

struct Args {
  std::string model, name, host = "127.0.0.1", api_key, dtype = "auto";
  int64_t port = 8000, most = 64;
  nn::EngineOptions engine;
};

std::string name_of(const Args& a) {
  if (!a.name.empty()) return a.name;
  const auto path = std::filesystem::absolute(a.model).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

ServedModel read_model(const Args& a) {
  ServedModel m{.name = name_of(a),
                .tokenizer = nn::Tokenizer::from_pretrained(a.model),
                .defaults = nn::read_generation_config(a.model)};
  try {
    m.chat = nn::ChatTemplate::from_pretrained(a.model);
  } catch (const Error& e) {
    fmt::print(stderr, "serve: no chat: {}\n", e.what());
  }
  return m;
}

void serve(const Args& a, const Program& program) {
  RequestQueue queue(a.most);
  std::optional<Server> server;
  std::optional<explore::HttpServer> http;
  if (program.is_main_process() && !program.dry_run()) {
    server.emplace(read_model(a), queue, a.api_key, a.most);
    http.emplace(
        a.host, static_cast<int>(a.port),
        [&](const explore::HttpRequest& r) { return server->answer(r); },
        // Beyond the requests: those that are refused, /health, /metrics.
        explore::HttpLimits{.connections = static_cast<size_t>(a.most) + 64,
                            .body = kMostBody});
  }
  RunOptions options = program.run_options();
  options.report = {};  // ranks that wait for requests are not slow
  const double timeout = std::chrono::duration<double>(options.timeout).count();
  const double idle = timeout > 0 ? std::min(0.5, timeout / 4) : 0.5;
  try {
    run(options, [&](Runtime& rt) {
      nn::LoadOptions load;
      if (a.dtype != "auto") load.dtype = parse_dtype(a.dtype);
      const auto model = nn::from_pretrained(a.model, rt.mesh(), load);
      serve_requests(rt, *model, a.engine, queue, idle, [&] {
        const bool is_v6 = a.host.find(':') != a.host.npos;
        fmt::print("http://{}:{}/\n", is_v6 ? "[" + a.host + "]" : a.host,
                   http->port());
        std::fflush(stdout);
      });
    });
  } catch (const std::exception& e) {
    queue.fail(e.what());
    queue.wait_for_clients(kFarewell);
    throw;
  }
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
  program.add("--model", &a.model,
              "a folder with config.json, model.safetensors and tokenizer.json",
              TextKind::kFolder);
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
  program.add("--cache-tokens", &a.engine.cache_tokens,
              "the tokens of all texts that the cache is for; 0: --batch times "
              "the longest sequence");
  program.add("--chunk", &a.engine.chunk,
              "the most tokens of prompts in a step", 1);
  program.add("--max-requests", &a.most,
              "the most texts that run and wait at once", 1, 4096);
  program.add("--dtype", &a.dtype,
              "the type of parameters and activations; auto: the checkpoint's",
              {"auto", "f32", "f64", "bf16", "f16"});
  return program.main(
      argc, argv,
      [&] {
        DT_CHECK(!a.model.empty(), "--model",
                 "it is missing; write --model DIR");
      },
      [&] { examples::serve(a, program); });
}
