// SPDX-License-Identifier: Apache-2.0
// Passes requests from the threads that talk to clients to the thread that runs
// the engine, and tokens back.
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

// A token of one of a client's texts, or the end of the text.
struct TextEvent {
  size_t text = 0;  // the text's index in its Ticket
  std::optional<nn::DrawnToken> token = {};
  bool of_prompt = false;  // whether `token` is of the prompt (on_prompt())
  int64_t cached = 0;      // if `token` is generated: Engine::cached_tokens()
  std::optional<nn::Finish> finish = {};  // set in the last event of a text
};

// Numbers for /metrics and the page. All but those in the last line count since
// the server started.
struct ServingCounts {
  int64_t requests = 0, refused = 0, cancelled = 0;  // numbers of texts
  int64_t stopped = 0, full_length = 0;              // texts, by how they ended
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0, steps = 0;
  // At this moment: texts that run or wait, and the pages of the cache.
  int64_t running = 0, waiting = 0, free_pages = 0, pages = 0;
};

// The state of a text that has not ended.
struct TextStatus {
  int64_t number = 0;
  int64_t prompt = 0, generated = 0, most = 0;  // tokens
  double seconds = 0;                           // since it was submitted
  bool runs = false;                            // false: it waits for room
};

// Numbers of a rank, in bytes: its memory in use, the most that has been in
// use, its cache of keys and values, and the bytes it has received in steps.
struct RankNumbers {
  int64_t memory = 0, peak = 0, cache = 0, received = 0;
  int64_t ends = 0;  // not bytes: 1 if its process has been asked to end
};
struct RankStatus {
  RankNumbers numbers = {};
  double heard = 0;  // how many seconds ago the numbers arrived
};

class RequestQueue;

// The texts of one client's request. The destructor cancels those that have not
// ended.
class Ticket {
 public:
  Ticket(RequestQueue& queue, size_t texts) : queue_(queue), ended_(texts) {}
  ~Ticket();
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  // Waits up to 50 ms for the next event; nullopt if there is none. If the run
  // has failed and no events are left, throws Error with the message of
  // RequestQueue::fail().
  std::optional<TextEvent> next();
  // Ends a text, because one of its stop strings has come.
  void cancel(size_t text);

 private:
  friend class RequestQueue;
  RequestQueue& queue_;
  std::condition_variable changed_;
  std::deque<TextEvent> events_;
  std::vector<bool> ended_;  // by text: whether it has ended or was cancelled
  int64_t first_ = 0;        // the number of the first text
};

// The texts of all clients. Any thread may call these functions.
class RequestQueue {
 public:
  // At most `most` texts run or wait at once.
  explicit RequestQueue(int64_t most) : most_(most) {}

  // For the clients' threads. submit() returns null if there would be too many
  // texts. It throws Error if the engine's check() does, if the run has failed,
  // after drain(), and while there is no engine (see open()).
  std::shared_ptr<Ticket> submit(std::vector<nn::TextRequest>);
  std::string failure() const;  // the message of fail(), or ""
  int64_t longest() const;      // Engine::longest(); 0 if there is no engine
  ServingCounts counts() const;
  std::vector<TextStatus> texts() const;
  std::vector<RankStatus> ranks() const;
  // Ends a text that runs or waits; its client gets its end as an event.
  // Returns false if no such text has this number.
  bool cancel(int64_t number);
  // Makes the engine's loop end without finishing the texts.
  void end();
  // From now on drains() is true, and submit() throws.
  void drain();
  bool drains() const;
  // Whether no text runs or waits, and no client is still being answered.
  bool is_empty() const;
  // Waits until all tickets are destroyed, for at most so many seconds.
  void wait_for_clients(double seconds);

  // For the thread of the main rank's engine. The engine exists from open() to
  // close().
  void open(const nn::Engine&);
  void close();
  // Waits up to so many seconds for work. Returns it, or else empty Work.
  Work take(double seconds);
  // Gives a text's new token to its client. `cached`: Engine::cached_tokens().
  void token(int64_t number, const nn::DrawnToken&, int64_t cached);
  void prompt_token(int64_t number, const nn::DrawnToken&);
  void finished(int64_t number, nn::Finish);
  void stepped(const nn::Engine&, bool did_something);
  void heard(size_t rank, const RankNumbers&);
  // From now on, submit() throws Error with this message, and so does next() of
  // all tickets after their last event.
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
  std::map<int64_t, Owned> owners_;  // by number, of texts that have not ended
  std::vector<std::pair<RankNumbers, Clock::time_point>> ranks_;
  int64_t next_ = 0, tickets_ = 0, active_ = 0;
  std::string failure_;
  bool drains_ = false;
  ServingCounts counts_;
};

}  // namespace dtensor::examples
