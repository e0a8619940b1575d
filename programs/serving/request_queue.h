// SPDX-License-Identifier: Apache-2.0
// Between the threads that talk to clients and the one that runs the engine.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "programs/serving/work.h"

namespace dtensor::examples {

// A new token of one of a client's texts, or its end.
struct TextEvent {
  size_t text = 0;  // which one
  std::optional<nn::DrawnToken> token = {};
  bool of_prompt = false;  // the token: see TextRequest::on_prompt
  int64_t cached = 0;  // with another one: Engine::cached_tokens() of the text
  std::optional<nn::Finish> finish = {};  // the last event of a text
};

// Numbers for /metrics and the page, since the start.
struct ServingCounts {
  int64_t requests = 0, refused = 0, cancelled = 0;  // of texts
  int64_t stopped = 0, full_length = 0;              // texts that ended by
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, steps = 0;
  // Now:
  int64_t running = 0, waiting = 0, free_pages = 0, pages = 0;
};

// A text that has not ended, now.
struct TextStatus {
  int64_t number = 0;
  int64_t prompt = 0, generated = 0, most = 0;  // tokens
  double seconds = 0;                           // since it was submitted
  bool runs = false;                            // else it waits for room
};

// Bytes of a rank: its memory in use, the most that was in use, its keys and
// values, and what it has received from other ranks in steps.
struct RankNumbers {
  int64_t memory = 0, peak = 0, cache = 0, received = 0;
  int64_t ends = 0;  // 1: its process has been asked to end
};
struct RankStatus {
  RankNumbers numbers = {};
  double heard = 0;  // seconds ago
};

class RequestQueue;

// Texts that one client waits for. Destroying it cancels those that run.
class Ticket {
 public:
  Ticket(RequestQueue& queue, size_t texts) : queue_(queue), ended_(texts) {}
  ~Ticket();
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  // Waits for the next event; none after 50 ms. Throws Error with the sentence
  // of the run if it has failed.
  std::optional<TextEvent> next();
  // A text ends here, at one of its stop strings.
  void cancel(size_t text);

 private:
  friend class RequestQueue;
  RequestQueue& queue_;
  std::condition_variable changed_;
  std::deque<TextEvent> events_;
  std::vector<bool> ended_;  // no events follow, or are wanted
  int64_t first_ = 0;        // the number of the first text
};

// Any thread may call these functions.
class RequestQueue {
 public:
  // At most so many texts run or wait at once.
  explicit RequestQueue(int64_t most) : most_(most) {}

  // For the clients' threads. submit() returns null if there are too many
  // texts; it throws Error if the engine's check() does, or if the run has
  // failed.
  std::shared_ptr<Ticket> submit(std::vector<nn::TextRequest>);
  std::string failure() const;  // the sentence of fail(), or ""
  int64_t longest() const;      // see Engine::longest(); 0 unless open()
  ServingCounts counts() const;
  std::vector<TextStatus> texts() const;
  std::vector<RankStatus> ranks() const;
  // Ends a text that runs or waits, also for its client. Returns false if there
  // is none of that number.
  bool cancel(int64_t number);
  // No requests follow: the engine ends.
  void end();
  // From now on drains() is true, and clients should not submit more.
  void drain();
  bool drains() const;
  // Whether no text runs or waits, and no client is still being answered.
  bool is_empty() const;
  // Waits until no tickets are left, or for so many seconds.
  void wait_for_clients(double seconds);

  // For the thread of the main rank's engine. Between open() and close() the
  // engine exists.
  void open(const nn::Engine&);
  void close();
  // Waits for work until there is some or the time is over.
  Work take(double seconds);
  // cached: of its text, as Engine::cached_tokens() says.
  void token(int64_t number, const nn::DrawnToken&, int64_t cached);
  void prompt_token(int64_t number, const nn::DrawnToken&);
  void finished(int64_t number, nn::Finish);
  void stepped(const nn::Engine&, bool did_something);
  void heard(size_t rank, const RankNumbers&);
  // All clients get this sentence from now on.
  void fail(const std::string& sentence);

 private:
  friend class Ticket;
  void drop(Ticket&);
  void cancel_locked(Ticket&, size_t text, int64_t& count);
  void push_locked(int64_t number, TextEvent);

  using Clock = std::chrono::steady_clock;
  struct Owned {
    Ticket* owner = nullptr;
    TextStatus status = {};
    Clock::time_point begin = Clock::now();
  };

  const int64_t most_;
  mutable std::mutex mutex_;
  std::condition_variable work_, no_tickets_;
  Work work_to_do_;
  const nn::Engine* engine_ = nullptr;
  std::map<int64_t, Owned> owners_;  // of the texts that have not ended
  std::vector<std::pair<RankNumbers, Clock::time_point>> ranks_;
  int64_t next_ = 0, tickets_ = 0, active_ = 0;
  std::string failure_;
  bool drains_ = false;
  ServingCounts counts_;
};

}  // namespace dtensor::examples
