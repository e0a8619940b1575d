// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/explore/playground.h"

#include <malloc.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "dtensor/interrupt.h"
#include "dtensor/placement/error.h"
#include "dtensor/program/explore/http_server.h"
#include "dtensor/program/explore/question.h"
#include "dtensor/program/page/page.h"

namespace dtensor::explore {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kMostWaiting = 16;  // beyond the number of children

HttpAnswer refusal(int status, const std::string& sentence) {
  const nlohmann::json json = {{"error", sentence}};
  return {.status = status,
          .body = json.dump(-1, ' ', false,
                            nlohmann::json::error_handler_t::replace)};
}

// The last line that a program printed to standard error, which is its error.
std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t at = text.rfind('\n');
  return at == text.npos ? text : text.substr(at + 1);
}

// The questions that run or wait for their turn.
class Questions {
 public:
  explicit Questions(int64_t most) : most_(most) {}

  // Adds a question, and ends an older question of the same client.
  std::shared_ptr<Stop> begin(const std::string& client) {
    auto stop = std::make_shared<Stop>();
    const std::lock_guard lock(mutex_);
    if (closed_) stop->request();
    if (!client.empty()) {
      std::shared_ptr<Stop>& latest = latest_[client];
      if (latest) latest->request();
      latest = stop;
    }
    all_.push_back(stop);
    changed_.notify_all();
    return stop;
  }
  void end(const std::string& client, const std::shared_ptr<Stop>& stop) {
    const std::lock_guard lock(mutex_);
    std::erase(all_, stop);
    const auto latest = latest_.find(client);
    if (latest != latest_.end() && latest->second == stop)
      latest_.erase(latest);
  }
  void stop_all() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (const auto& stop : all_) stop->request();
    changed_.notify_all();
  }

  enum class Turn : uint8_t { kRuns, kStopped, kFull };
  // Waits until fewer than most_ questions run. After kRuns, call leave().
  Turn enter(const Stop& stop, int client) {
    std::unique_lock lock(mutex_);
    if (running_ >= most_ && waiting_ >= most_ + kMostWaiting)
      return Turn::kFull;
    ++waiting_;
    bool stopped = false;
    while (running_ >= most_ && !stopped) {
      changed_.wait_for(lock, milliseconds(50));
      stopped = stop.requested() || has_left(client);
    }
    --waiting_;
    if (stopped) return Turn::kStopped;
    ++running_;
    return Turn::kRuns;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_all();
  }

 private:
  const int64_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Stop>> all_;
  std::map<std::string, std::shared_ptr<Stop>> latest_;  // by client
  int64_t running_ = 0, waiting_ = 0;
  bool closed_ = false;
};

class Server {
 public:
  explicit Server(const Playground& p)
      : p_(p), page_(playground_page(p.form)), questions_(p.children) {}

  HttpAnswer answer(const HttpRequest& request) {
    if (request.path == "/")
      return {.type = "text/html; charset=utf-8", .body = page_};
    for (const PlaygroundCommand& c : p_.commands) {
      if (c.path != request.path) continue;
      if (!request.is_own)
        return refusal(403, "another site's page sent this question");
      try {
        return ask(c, request);
      } catch (const Error& e) {
        return refusal(400, fmt::format("{}: {}", p_.name, e.what()));
      } catch (const std::exception& e) {
        return refusal(500, fmt::format("{}: {}", p_.name, e.what()));
      }
    }
    return refusal(404, "there is no such page; open /");
  }
  void stop() { questions_.stop_all(); }

 private:
  HttpAnswer ask(const PlaygroundCommand& c, const HttpRequest& request) {
    const Question q = read_question(request.query);
    const std::shared_ptr<Stop> stop = questions_.begin(q.client);
    HttpAnswer a;
    try {
      a = ask_when_possible(c, q, *stop, request.socket);
    } catch (...) {
      questions_.end(q.client, stop);
      throw;
    }
    questions_.end(q.client, stop);
    return a;
  }

  HttpAnswer ask_when_possible(const PlaygroundCommand& c, const Question& q,
                               const Stop& stop, int client) {
    using Turn = Questions::Turn;
    const Turn turn = questions_.enter(stop, client);
    if (turn == Turn::kFull)
      return refusal(503, fmt::format("questions that run: {}, that wait: {}; "
                                      "ask again in a few seconds",
                                      p_.children, p_.children + kMostWaiting));
    if (turn == Turn::kStopped) return replaced();
    // Keep the place until the answer is sent, so that few answers are held.
    const std::shared_ptr<void> held(nullptr,
                                     [this](void*) { questions_.leave(); });
    std::vector<std::string> arguments = c.before;
    arguments.insert(arguments.end(), q.flags.begin(), q.flags.end());
    arguments.insert(arguments.end(), c.after.begin(), c.after.end());
    HttpAnswer a = answer_of(
        run_child(arguments,
                  {fmt::format("{}=1", kNoFiles),
                   fmt::format("{}={}", kMostRanks, p_.ranks),
                   fmt::format("{}={}", kMostOperators, p_.operators)},
                  p_.limits, stop, client));
    a.held = held;
    return a;
  }

  static HttpAnswer replaced() {
    return refusal(409,
                   "a newer question replaced this one, or the server ends");
  }

  HttpAnswer answer_of(ChildEnd end) const {
    using How = ChildEnd::How;
    const auto beyond = [](const std::string& bound, const char* more) {
      return refusal(422, fmt::format("the question takes more than {}; ask "
                                      "about fewer layers or ranks{}",
                                      bound, more));
    };
    switch (end.how) {
      case How::kStopped:
        return replaced();
      case How::kSeconds:
        return beyond(fmt::format("{:g} s", p_.limits.seconds),
                      ", or, if the page is that of //:explore, start it with "
                      "a larger --seconds");
      case How::kOutput:
        return beyond(fmt::format("{} bytes of answer", p_.limits.output), "");
      case How::kSignal:
        return refusal(500, fmt::format("signal {} ended the run; ask for less",
                                        end.code));
      case How::kExited:
        break;
    }
    if (end.code == 0) return {.body = std::move(end.out)};
    const std::string sentence = last_line(std::move(end.err));
    const bool memory = sentence.find("(ulimit -v)") != sentence.npos;
    return refusal(end.code == 2 && !memory ? 400 : 422, sentence);
  }

  const Playground& p_;
  const std::string page_;
  Questions questions_;
};

void open_browser(std::string url) {
  std::string program = "xdg-open";
  char* const arguments[] = {program.data(), url.data(), nullptr};
  pid_t pid;
  if (posix_spawnp(&pid, program.c_str(), nullptr, nullptr, arguments,
                   environ) != 0)
    fmt::print(stderr, "cannot start xdg-open; open {} in a browser\n", url);
}

}  // namespace

void serve(const Playground& p) {
  // With this threshold, malloc() maps blocks of 1 MiB or more, and free()
  // returns them to the system. Otherwise the threads' arenas would keep the
  // memory of large answers.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  const StopOnSignals stop_on_signals;
  Server server(p);
  const HttpServer http(p.host, static_cast<int>(p.port),
                        [&](const HttpRequest& r) { return server.answer(r); });
  const bool is_v6 = p.host.find(':') != p.host.npos;
  const std::string url = fmt::format(
      "http://{}:{}/", is_v6 ? "[" + p.host + "]" : p.host, http.port());
  fmt::print("{}\n", url);
  std::fflush(stdout);
  if (p.open) open_browser(url);
  while (!interrupted()) std::this_thread::sleep_for(milliseconds(50));
  server.stop();
}

}  // namespace dtensor::explore
