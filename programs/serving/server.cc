// SPDX-License-Identifier: Apache-2.0
#include "programs/serving/server.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "dtensor/placement/error.h"
#include "dtensor/program/explore/child.h"
#include "programs/serving/follow.h"
#include "programs/serving/openai_answer.h"

namespace dtensor::examples {
namespace {

using explore::HttpAnswer;
using explore::HttpRequest;
using Json = nlohmann::ordered_json;

constexpr const char* kPage =
#include "programs/serving/page.inc"
    ;

HttpAnswer refusal(const ApiError& e) {
  HttpAnswer a{.status = e.status, .body = text_of(error_json(e))};
  if (e.status == 429 || e.status == 503)
    a.headers.emplace_back("Retry-After", "1");
  return a;
}

// A request for texts that is being answered.
struct Open {
  Open(OpenAiRequest r, const ServedModel& model, int64_t number)
      : request(std::move(r)), answer(request, model, number) {
    for (size_t i = 0; i < request.texts.size(); ++i)
      pieces.emplace_back(model.tokenizer, request.stop);
  }

  OpenAiRequest request;
  OpenAiAnswer answer;
  std::vector<nn::TextPieces> pieces;
  // By text: the prompt to show first. Empty without echo, and with logprobs,
  // since the engine then sends the prompt's tokens.
  std::vector<std::vector<int64_t>> echoes;
  AnswerTokens tokens;
  std::shared_ptr<Ticket> ticket;
};

// Shows the echoed prompts, if any, and then the texts with follow(), until
// they end or the client leaves.
bool show(Open& open, int socket, const ShowPiece& shown) {
  for (size_t i = 0; i < open.echoes.size(); ++i) {
    nn::TextPiece prompt;
    for (const int64_t id : open.echoes[i])
      prompt.text += open.pieces[i].push_prompt({.id = id}).text;
    if (!shown(i, prompt, nullptr)) return false;
  }
  return follow(
      *open.ticket, open.pieces, open.tokens,
      [&] { return !explore::has_left(socket); }, shown);
}

HttpAnswer whole(Open& open, int socket) {
  const bool all =
      show(open, socket,
           [&](size_t i, const nn::TextPiece& piece, const char* finish) {
             open.answer.add(i, piece, finish);
             return true;
           });
  if (!all) return {.status = 499};  // the client has left
  return {.body = text_of(open.answer.whole(open.tokens))};
}

// Sends the answer as server-sent events.
void stream(Open& open, int socket, const HttpAnswer::Send& send) {
  const auto event = [&](const Json& json) {
    return send("data: " + text_of(json) + "\n\n");
  };
  try {
    if (open.request.chat)
      for (size_t i = 0; i < open.pieces.size(); ++i)
        if (!event(open.answer.begin(i))) return;
    const bool all = show(
        open, socket,
        [&](size_t i, const nn::TextPiece& piece, const char* finish) {
          const bool empty = piece.text.empty() && !finish &&
                             (piece.tokens.empty() || !open.request.logprobs);
          return empty || event(open.answer.chunk(i, piece, finish));
        });
    if (!all) return;
    if (open.request.include_usage &&
        !event(open.answer.usage_chunk(open.tokens)))
      return;
    send("data: [DONE]\n\n");
  } catch (const std::exception& e) {
    event(error_json(ApiError(500, e.what())));
  }
}

// Compares two texts in a time that does not depend on where they differ, so
// that nobody can guess the key byte by byte.
bool equal(std::string_view a, std::string_view b) {
  unsigned char differs = a.size() != b.size();
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    differs |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differs == 0;
}

}  // namespace

HttpAnswer Server::answer(HttpRequest r) noexcept {
  try {
    return route(r);
  } catch (const ApiError& e) {
    return refusal(e);
  } catch (const std::exception& e) {
    return refusal(ApiError(500, e.what()));
  }
}

struct Server::Path {
  std::string_view path;
  std::string_view method;  // GET stands for HEAD, too
  HttpAnswer (Server::*answer)(HttpRequest&);
  bool is_open = false;  // whether no key is needed
};

HttpAnswer Server::route(HttpRequest& r) {
  constexpr std::string_view kOneModel = "/v1/models/";
  static constexpr Path kPaths[] = {
      {"/v1/chat/completions", "POST", &Server::complete},
      {"/v1/completions", "POST", &Server::complete},
      {"/v1/models", "GET", &Server::models},
      {kOneModel, "GET", &Server::model},
      {"/cancel", "POST", &Server::cancel},
      {"/status", "GET", &Server::status},
      {"/metrics", "GET", &Server::metrics},
      {"/health", "GET", &Server::health, true},
      {"/", "GET", &Server::page, true}};
  for (const Path& p : kPaths) {
    if (p.path != r.path &&
        (p.path != kOneModel || !r.path.starts_with(kOneModel)))
      continue;
    if (r.method != p.method && (p.method != "GET" || r.method != "HEAD")) {
      HttpAnswer a = refusal(
          ApiError(405, fmt::format("use {} for {}", p.method, r.path)));
      a.headers.emplace_back("Allow", p.method == "GET" ? "GET, HEAD" : "POST");
      return a;
    }
    if (!p.is_open) check_key(r);
    return (this->*p.answer)(r);
  }
  throw ApiError(404, fmt::format("there is nothing at {}; open /", r.path));
}

void Server::check_key(const HttpRequest& r) const {
  if (!api_key_.empty() && !equal(r.authorization, "Bearer " + api_key_))
    throw ApiError(401,
                   "the API key is missing or wrong; send the header "
                   "\"Authorization: Bearer KEY\"",
                   "", "invalid_api_key");
}

void Server::check_own(const HttpRequest& r) {
  if (!r.is_own) throw ApiError(403, "another site's page sent this request");
}

HttpAnswer Server::page(HttpRequest&) {
  return {.type = "text/html; charset=utf-8", .body = kPage};
}

OpenAiRequest Server::read(std::string body, bool chat, int64_t longest) {
  constexpr size_t kSmall = 64 << 10;  // bytes
  if (body.size() <= kSmall)
    return read_request(body, chat, model_, longest, most_);
  struct Turn {
    explicit Turn(std::counting_semaphore<>& t) : turns(t) { turns.acquire(); }
    ~Turn() { turns.release(); }
    std::counting_semaphore<>& turns;
  } const turn(turns_);
  const std::string large = std::move(body);  // freed before the turn ends
  return read_request(large, chat, model_, longest, most_);
}

HttpAnswer Server::complete(HttpRequest& r) {
  check_own(r);
  const bool chat = r.path == "/v1/chat/completions";
  const int64_t longest = check_ready();
  // An Error is the request's fault, unless the run has ended meanwhile.
  const auto wrong = [&](const std::exception& e) {
    check_ready();
    return ApiError(400, e.what());
  };
  std::shared_ptr<Open> open;
  try {
    open = std::make_shared<Open>(read(std::move(r.body), chat, longest),
                                  model_, ++next_);
    if (open->request.echo && !open->request.logprobs)
      for (const nn::TextRequest& t : open->request.texts)
        open->echoes.push_back(t.prompt);
    open->ticket = queue_.submit(std::exchange(open->request.texts, {}));
  } catch (const Error& e) {
    throw wrong(e);
  } catch (const Json::exception& e) {
    throw wrong(e);
  }
  if (!open->ticket)
    throw ApiError(429, fmt::format("this server takes no more texts at once "
                                    "than {}, and others run or wait; ask "
                                    "again later",
                                    most_));
  if (!open->request.stream) {
    HttpAnswer a = whole(*open, r.socket);
    a.held = std::move(open);  // keeps the ticket until the answer is sent, so
                               // that a queue that drains waits for it
    return a;
  }
  return {.type = "text/event-stream",
          .stream = [open, socket = r.socket](const HttpAnswer::Send& send) {
            stream(*open, socket, send);
          }};
}

int64_t Server::check_ready() const {
  if (const std::string f = queue_.failure(); !f.empty())
    throw ApiError(500, f);
  const int64_t longest = queue_.longest();
  if (longest == 0)
    throw ApiError(503, "the model is not loaded yet; ask again later");
  if (queue_.drains())
    throw ApiError(503, "the server is about to end; ask another one");
  return longest;
}

HttpAnswer Server::health(HttpRequest&) {
  const std::string failure = queue_.failure();
  const std::string status = !failure.empty()        ? failure
                             : queue_.longest() == 0 ? "loading"
                             : queue_.drains()       ? "ending"
                                                     : "ok";
  return {.status = status == "ok" ? 200 : 503,
          .body = text_of({{"status", status}})};
}

HttpAnswer Server::models(HttpRequest& r) {
  check_own(r);
  const Json all = {{"object", "list"}, {"data", {about_model()}}};
  return {.body = text_of(all)};
}

HttpAnswer Server::model(HttpRequest& r) {
  check_own(r);
  const std::string name =
      r.path.substr(std::string_view("/v1/models/").size());
  if (name != model_.name) throw no_model(name, model_);
  return {.body = text_of(about_model())};
}

Json Server::about_model() const {
  return {{"id", model_.name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "dtensor"},
          {"max_model_len", queue_.longest()}};
}

HttpAnswer Server::status(HttpRequest&) {
  const ServingCounts c = queue_.counts();
  Json json = {{"model", model_.name},
               {"failure", queue_.failure()},
               {"running", c.running},
               {"waiting", c.waiting},
               {"generated_tokens", c.generated_tokens},
               {"pages", c.pages},
               {"free_pages", c.free_pages},
               {"requests", Json::array()},
               {"ranks", Json::array()}};
  for (const TextStatus& t : queue_.texts())
    json["requests"].push_back({{"id", t.number},
                                {"state", t.runs ? "running" : "waiting"},
                                {"prompt_tokens", t.prompt},
                                {"generated_tokens", t.generated},
                                {"most_tokens", t.most},
                                {"seconds", t.seconds}});
  for (const RankStatus& r : queue_.ranks())
    json["ranks"].push_back({{"memory_bytes", r.numbers.memory},
                             {"peak_bytes", r.numbers.peak},
                             {"cache_bytes", r.numbers.cache},
                             {"received_bytes", r.numbers.received},
                             {"heard_seconds_ago", r.heard}});
  return {.body = text_of(json)};
}

HttpAnswer Server::cancel(HttpRequest& r) {
  check_own(r);
  constexpr size_t kMost = 1024;  // bytes
  if (r.body.size() > kMost)
    throw ApiError(413,
                   "the body has more than 1,024 bytes; send {\"id\": ID}");
  // nlohmann::json, since the ordered Json finds a member by a linear search.
  const auto json = nlohmann::json::parse(r.body, nullptr, false);
  const auto id = json.is_object() ? json.find("id") : json.end();
  if (id == json.end() || !id->is_number_integer())
    throw ApiError(400, "the body is not an object with an integer 'id'", "id");
  if (!queue_.cancel(id->get<int64_t>()))
    throw ApiError(
        404, fmt::format("no text with the id {} runs or waits", id->dump()),
        "id");
  return {.body = "{}"};
}

// The format: https://prometheus.io/docs/instrumenting/exposition_formats
HttpAnswer Server::metrics(HttpRequest&) {
  const ServingCounts c = queue_.counts();
  std::string text;
  const auto add = [&](const char* kind, const char* name, const char* help,
                       int64_t value) {
    text += fmt::format(
        "# HELP dtensor_{0} {1}\n# TYPE dtensor_{0} {2}\ndtensor_{0} {3}\n",
        name, help, kind, value);
  };
  add("counter", "requests_total", "Texts that were accepted.", c.requests);
  add("counter", "refused_total", "Texts beyond the limit.", c.refused);
  add("counter", "cancelled_total", "Texts whose client left.", c.cancelled);
  add("counter", "stopped_total", "Texts ended by a stop string or token.",
      c.stopped);
  add("counter", "full_length_total", "Texts ended by their length.",
      c.full_length);
  add("counter", "prompt_tokens_total", "Tokens of accepted prompts.",
      c.prompt_tokens);
  add("counter", "cached_tokens_total",
      "Tokens of prompts whose keys and values other texts had computed.",
      c.cached_tokens);
  add("counter", "generated_tokens_total", "Tokens generated.",
      c.generated_tokens);
  add("counter", "steps_total", "Runs of the model.", c.steps);
  add("gauge", "running", "Texts that the model is continuing.", c.running);
  add("gauge", "waiting", "Texts that wait for room.", c.waiting);
  add("gauge", "free_pages", "Pages of the cache that no text holds.",
      c.free_pages);
  return {.type = "text/plain; version=0.0.4; charset=utf-8",
          .body = std::move(text)};
}

}  // namespace dtensor::examples
