// SPDX-License-Identifier: Apache-2.0
// //:serve: answers OpenAI's HTTP interface with a checkpoint of transformers.
#include <fmt/format.h>
#include <malloc.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/program/explore/http_server.h"
#include "dtensor/program/program.h"
#include "programs/checkpoint_flags.h"
#include "programs/predict_generation.h"
#include "programs/serving/engine_loop.h"
#include "programs/serving/server.h"

namespace dtensor::examples {
namespace {

constexpr size_t kMostBody = 8 << 20;
// The default of --timeout once the model is loaded: clients should not wait
// long for a rank that does not answer. Ranks load at different speeds, so the
// default of other programs (RunOptions::timeout) holds while they load.
constexpr std::chrono::seconds kTimeout{10};
constexpr double kLongestDrain = 1e6;  // seconds

struct Args {
  CheckpointFlags model;
  std::string name, host = "127.0.0.1", api_key;
  std::vector<std::string> hosts;
  int64_t port = 8000, most = 64;
  double drain = 0;
  nn::EngineOptions engine;
  GenerationFlags dry;
};

void serve(const Args& a, Program& program) {
  if (program.dry_run())
    return predict_generation(program, a.model.dir, a.model.load(), a.engine,
                              a.dry);
  // Bodies and prompts of megabytes are freed to the system, rather than kept
  // in the arenas of the threads. (Tensors have an allocator of their own.)
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
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
        [&](explore::HttpRequest r) { return server->answer(std::move(r)); },
        // 64 connections more than texts: for requests that will be refused,
        // /health and /metrics.
        explore::HttpOptions{.connections = static_cast<size_t>(a.most) + 64,
                             .body = kMostBody,
                             .hosts = a.hosts,
                             .host_flag = "--allow-host"});
  }
  const ServedCheckpoint from{a.model.dir, a.model.load(), a.engine};
  ServingTimes times{.drain = a.drain};
  if (!program.given("--timeout")) times.timeout = kTimeout;
  serve_requests(
      program.run_options(), from, queue,
      [&] {
        const bool is_v6 = a.host.find(':') != a.host.npos;
        fmt::print("http://{}:{}/\n", is_v6 ? "[" + a.host + "]" : a.host,
                   http->port());
        std::fflush(stdout);
      },
      times);
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
                "at /. Once the model is loaded, ranks wait 10 s for each "
                "other, unless --timeout says how long.",
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
  program.add("--allow-host", &a.hosts,
              "another name by which clients reach it, such as a proxy's");
  program.add("--api-key", &a.api_key,
              "requests without this key are refused, other than those of / "
              "and /health");
  program.add("--drain", &a.drain,
              "after SIGTERM, how long texts may go on, in seconds, while new "
              "ones are refused");
  program.add("--batch", &a.engine.texts,
              "the most texts that are continued at once", 1,
              nn::EngineOptions::kMostTexts);
  program.add("--length", &a.engine.length,
              "the most tokens of a text, prompt included; 0: the model's "
              "longest sequence");
  program.add("--cache-tokens", &a.engine.cache_tokens,
              "the tokens of all texts that the cache is for; 0: --batch times "
              "--length",
              0, nn::EngineOptions::kMostTokens);
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
        for (const char* flag : {"--json", "--record", "--html"})
          DT_CHECK(program.dry_run() || !program.given(flag), flag,
                   "a server ends by a signal, so it has no result to write; "
                   "leave out {}, or add --dry-run",
                   flag);
        a.model.check_length("--length", a.engine.length);
        DT_CHECK(a.drain <= examples::kLongestDrain, "--drain",
                 "{} s is more than {} s; write at most that", a.drain,
                 examples::kLongestDrain);
      },
      [&] { examples::serve(a, program); });
}
