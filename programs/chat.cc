// SPDX-License-Identifier: Apache-2.0
// //:chat: a conversation in a terminal with a checkpoint of transformers.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "dtensor/placement/error.h"
#include "dtensor/program/program.h"
#include "programs/checkpoint_flags.h"
#include "programs/predict_generation.h"
#include "programs/serving/engine_loop.h"
#include "programs/serving/follow.h"
#include "programs/serving/served_model.h"
#include "programs/text_flags.h"

namespace dtensor::examples {
namespace {

using Json = nlohmann::ordered_json;

struct Args {
  CheckpointFlags model;
  std::string system;
  nn::EngineOptions engine{.texts = 1};
  GenerationFlags dry;
  TextFlags text = TextFlags(0);
};

constexpr const char* kCommands =
    "/reset begins anew, /quit or the end of input ends the conversation, and "
    "Ctrl-C ends an answer.";

volatile std::sig_atomic_t stop_answer = 0;

// While an object exists, SIGINT sets stop_answer instead of ending the
// program; a SIGINT that the process ignores stays ignored.
class AnswerStops {
 public:
  AnswerStops() {
    stop_answer = 0;
    sigaction(SIGINT, nullptr, &before_);
    if (before_.sa_handler == SIG_IGN) return;
    struct sigaction mine = {};
    mine.sa_handler = [](int) { stop_answer = 1; };
    mine.sa_flags = SA_RESTART;
    sigaction(SIGINT, &mine, nullptr);
  }
  ~AnswerStops() { sigaction(SIGINT, &before_, nullptr); }
  AnswerStops(const AnswerStops&) = delete;
  AnswerStops& operator=(const AnswerStops&) = delete;

 private:
  struct sigaction before_ = {};
};

// Reads lines from standard input.
class Lines {
 public:
  // The next line; nullopt at the end of input, or if the run fails while this
  // waits for the line.
  std::optional<std::string> next(const RequestQueue& queue) {
    while (true) {
      if (const size_t end = held_.find('\n'); end != held_.npos || ended_) {
        if (held_.empty()) return {};
        std::string line = held_.substr(0, end);
        held_.erase(0, end == held_.npos ? end : end + 1);
        return line;
      }
      // Wait 100 ms at a time, to notice a run that fails while nothing is
      // typed.
      pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      if (poll(&input, 1, 100) > 0) {
        char bytes[4096];
        const ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
        if (n > 0) held_.append(bytes, static_cast<size_t>(n));
        ended_ = n == 0 || (n < 0 && errno != EINTR);
      }
      if (!queue.failure().empty()) return {};
    }
  }

 private:
  std::string held_;
  bool ended_ = false;
};

// A conversation between standard input and the model, in the main process.
class Conversation {
 public:
  Conversation(const Args& args, RequestQueue& queue)
      : args_(args), queue_(queue), model_(ServedModel::read(args.model.dir)) {
    reset();
    // Throw before the model is loaded if it has no usable chat template.
    if (!model_.chat) throw Error(model_.why_no_chat);
  }

  // Answers lines until /quit, the end of input, or the failure of the run.
  void talk() {
    fmt::print(stderr, "A conversation with {}. {}\n", model_.name, kCommands);
    const bool is_terminal = isatty(STDIN_FILENO);
    while (true) {
      if (is_terminal) fmt::print("> ");
      std::fflush(stdout);
      const std::optional<std::string> line = lines_.next(queue_);
      if (!line || *line == "/quit") return;
      if (*line == "/reset")
        reset();
      else if (line->starts_with('/'))
        fmt::print(stderr, "There is no {}. {}\n", *line, kCommands);
      else if (!line->empty())
        answer(*line);
    }
  }

  const Json& messages() const { return messages_; }

 private:
  void reset() {
    messages_ = Json::array();
    if (!args_.system.empty()) say("system", args_.system);
  }
  void say(const char* role, const std::string& text) {
    messages_.push_back({{"role", role}, {"content", text}});
  }

  // Answers a line. If the answer is empty or fails, removes the line from the
  // conversation.
  void answer(const std::string& line) {
    say("user", line);
    std::string text;
    const AnswerStops stops;
    try {
      text = stream();
    } catch (const std::exception& e) {
      if (queue_.failure().empty()) fmt::print(stderr, "{}\n", e.what());
    }
    if (text.empty())
      messages_.erase(messages_.size() - 1);
    else
      say("assistant", text);
  }

  // Asks for the answer to the messages so far. Prints it and returns it.
  std::string stream() {
    nn::TextRequest request = args_.text.request(model_.defaults);
    request.prompt = model_.prompt(model_.rendered(messages_));
    const auto size = std::ssize(request.prompt);
    const int64_t room = queue_.longest() - size;
    DT_CHECK(room > 0, "chat",
             "the conversation has {} tokens, but it and an answer together "
             "may have {}; write a shorter message, or /reset to begin anew",
             size, queue_.longest());
    if (request.tokens == 0 || request.tokens > room) request.tokens = room;
    const auto ticket = queue_.submit({std::move(request)});
    std::vector<nn::TextPieces> pieces;
    pieces.emplace_back(model_.tokenizer, args_.text.stop);
    std::string text;
    AnswerTokens tokens;
    follow(
        *ticket, pieces, tokens, [] { return stop_answer == 0; },
        [&](size_t, const nn::TextPiece& piece, const char*) {
          fmt::print("{}", piece.text);
          std::fflush(stdout);
          text += piece.text;
          return true;
        });
    fmt::print("\n");
    return text;
  }

  const Args& args_;
  RequestQueue& queue_;
  const ServedModel model_;
  Lines lines_;
  Json messages_;
};

void chat(const Args& a, Program& program) {
  const ServedCheckpoint from{a.model.dir, a.model.load(), a.engine};
  if (program.dry_run())
    return predict_generation(program, from.dir, from.load, a.engine, a.dry);
  // Room for two texts: one whose answer was stopped early may still run for a
  // step when the next one begins.
  RequestQueue queue(2);
  std::optional<Conversation> conversation;
  if (program.is_main_process()) conversation.emplace(a, queue);
  std::exception_ptr failure;
  {
    std::jthread person;
    serve_requests(program.run_options(), from, queue, [&] {
      person = std::jthread([&] {
        try {
          conversation->talk();
        } catch (...) {
          failure = std::current_exception();
        }
        queue.end();
      });
    });
  }
  if (failure) std::rethrow_exception(failure);
  if (conversation)
    program.write_json({{"messages", conversation->messages()}});
  else
    program.write_json(Json::object());
}

}  // namespace
}  // namespace dtensor::examples

int main(int argc, char** argv) {
  using namespace dtensor;
  examples::Args a;
  Program program(
      {.about = fmt::format(
           "A conversation with a checkpoint of transformers: answers each "
           "line of standard input. {} Flags that are not given are as "
           "generation_config.json says.",
           examples::kCommands),
       .mesh = "tp=1"});
  a.model.add_to(program,
                 "model.safetensors, tokenizer.json and a chat template");
  program.add("--system", &a.system, "what the model is told first",
              TextKind::kText);
  a.text.add_to(program,
                "the most tokens of an answer; 0: as many as there is room for",
                0);
  program.add("--chunk", &a.engine.chunk,
              "the most tokens of a prompt in a step", 1);
  a.dry.add_to(program);
  return program.main(
      argc, argv,
      [&] {
        a.model.check();
        a.text.check();
        a.model.check_length("--tokens", a.text.tokens);
        a.dry.check(program);
      },
      [&] { examples::chat(a, program); });
}
