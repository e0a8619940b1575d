// SPDX-License-Identifier: Apache-2.0
#include "programs/serving/engine_loop.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "dtensor/all_gather_bytes.h"
#include "dtensor/comm_event.h"
#include "dtensor/interrupt.h"
#include "dtensor/placement/hash.h"
#include "dtensor/rank_context.h"

namespace dtensor::examples {
namespace {

// The seconds that clients get to read their last event after a failure.
constexpr double kFarewell = 1;

using Clock = std::chrono::steady_clock;

// While an object exists, the first SIGTERM after begin() is only noted, with
// any that follow within 0.25 s. Earlier and later ones do what SIGTERM did
// before the object existed, and so does let_go(). Only one object may exist at
// a time.
class NotedTerm {
 public:
  NotedTerm() {
    noted_ = begun_ = false;
    first_ = 0;
    sigaction(SIGTERM, nullptr, &before_);
    // A signal that the process ignores stays ignored.
    if (before_.sa_handler == SIG_IGN) return;
    struct sigaction mine = {};
    mine.sa_handler = handle;
    mine.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &mine, nullptr);
  }
  ~NotedTerm() { sigaction(SIGTERM, &before_, nullptr); }
  NotedTerm(const NotedTerm&) = delete;
  NotedTerm& operator=(const NotedTerm&) = delete;

  static void begin() { begun_ = true; }
  static bool noted() { return noted_; }
  static void let_go() {
    if (before_.sa_handler != SIG_IGN) before_.sa_handler(SIGTERM);
  }

 private:
  static void handle(int) {
    if (!begun_ || interrupt_internal::is_another(first_)) return let_go();
    noted_ = true;
  }

  static inline std::atomic<bool> begun_{false}, noted_{false};
  static inline std::atomic<int64_t> first_{0};
  static inline struct sigaction before_ = {};
};

// The engine of one rank.
class Loop {
 public:
  // `queue` is null on all ranks but rank 0.
  Loop(const nn::LanguageModel& model, const nn::EngineOptions& options,
       RequestQueue* queue, const ServingTimes& times)
      : engine_(model, options), queue_(queue), times_(times) {
    if (queue_) queue_->open(engine_);
    NotedTerm::begin();
  }
  ~Loop() {
    if (queue_) queue_->close();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Runs one step on this rank, together with all other ranks; rank 0 waits up
  // to `idle` seconds for work. Returns false after the end of the queue.
  bool step(double idle) {
    check_interrupted();
    std::string mine;
    const bool tells = is_time_to_tell();
    if (queue_)
      mine = to_bytes(queue_->take(busy_ ? 0 : idle));
    else if (tells)
      mine = {reinterpret_cast<const char*>(&numbers_), sizeof numbers_};
    const auto all = all_gather_bytes("serve", hash_text("serve"), mine);
    // The all-gather has ended, so all ranks have loaded the model.
    if (times_.timeout && !met_) context_.backend->set_timeout(*times_.timeout);
    met_ = true;
    if (queue_) hear(all, tells);
    if (queue_) drain();
    Work work = work_from(all.at(0));
    if (work.end) return false;
    add(std::move(work));
    const CommRecord record;
    busy_ = engine_.step();
    for (const CommEvent& e : record.events()) numbers_.received += e.counted;
    // Update the counts before a client learns that its text has ended, since
    // it may ask for the counts then.
    if (queue_) queue_->stepped(engine_, busy_);
    for (auto r = requests_.begin(); r != requests_.end();) {
      const nn::Finish why = engine_.finish(r->second);
      if (why == nn::Finish::kRunning) {
        ++r;
        continue;
      }
      if (queue_) queue_->finished(r->first, why);
      engine_.forget(r->second);
      r = requests_.erase(r);
    }
    return true;
  }

 private:
  // Drains the queue once a process has been asked to end. Ends the run when no
  // text is left or the time to drain is over.
  void drain() {
    if (!drains_until_ && (ends_ || is_to_end())) {
      queue_->drain();
      drains_until_ =
          Clock::now() + std::chrono::duration_cast<Clock::duration>(
                             std::chrono::duration<double>(times_.drain));
    }
    if (drains_until_ &&
        (queue_->is_empty() || Clock::now() >= *drains_until_)) {
      NotedTerm::let_go();
      check_interrupted();
    }
  }
  bool is_to_end() const { return times_.drain > 0 && NotedTerm::noted(); }

  // Returns true once a second, and at once when this process is asked to end.
  // Then numbers_ has been brought up to date.
  bool is_time_to_tell() {
    const auto now = Clock::now();
    if (is_to_end() && !numbers_.ends)
      numbers_.ends = 1;
    else if (now - told_ < std::chrono::seconds(1))
      return false;
    told_ = now;
    const Allocator::Stats stats = context_.allocator->stats();
    numbers_.memory = stats.current_bytes;
    numbers_.peak = stats.peak_bytes;
    numbers_.cache = engine_.cache().bytes();
    return true;
  }
  // Passes the ranks' numbers to the queue: rank 0's if it `tells`, and those
  // that other ranks sent.
  void hear(const std::vector<std::string>& all, bool tells) {
    if (tells) queue_->heard(0, numbers_);
    for (size_t r = 1; r < all.size(); ++r) {
      RankNumbers numbers;
      if (all[r].size() != sizeof numbers) continue;
      std::memcpy(&numbers, all[r].data(), sizeof numbers);
      queue_->heard(r, numbers);
      ends_ = ends_ || numbers.ends;
    }
  }
  void add(Work work) {
    for (auto& [number, request] : work.added) {
      if (queue_)
        request.on_token = [this, n = number](const nn::DrawnToken& t) {
          queue_->token(n, t, engine_.cached_tokens(requests_.at(n)));
          return true;
        };
      if (queue_)
        request.on_prompt = [this, n = number](const nn::DrawnToken& t) {
          queue_->prompt_token(n, t);
        };
      requests_[number] = engine_.add(std::move(request));
    }
    for (const int64_t number : work.cancelled)
      if (const auto r = requests_.find(number); r != requests_.end())
        engine_.cancel(r->second);
  }

  nn::Engine engine_;
  RequestQueue* const queue_;
  std::map<int64_t, int64_t> requests_;  // engine's number, by queue's number
  bool busy_ = false;
  const RankContext& context_ = RankContext::current();
  RankNumbers numbers_;
  Clock::time_point told_ = {};
  const ServingTimes& times_;
  bool met_ = false;   // whether all ranks have met in a collective
  bool ends_ = false;  // whether another process has been asked to end
  std::optional<Clock::time_point> drains_until_;
};

void serve_on(Runtime& rt, const ServedCheckpoint& from, RequestQueue& queue,
              double idle, const std::function<void()>& ready,
              const ServingTimes& times) {
  const auto model = nn::from_pretrained(from.dir, rt.mesh(), from.load);
  const bool is_main = rt.rank() == 0;
  Loop loop(*model, from.engine, is_main ? &queue : nullptr, times);
  // Clients must get the error before ~Loop() closes the queue.
  try {
    if (is_main) ready();
    while (loop.step(idle)) {
    }
  } catch (const std::exception& e) {
    if (is_main) queue.fail(e.what());
    throw;
  }
}

}  // namespace

void serve_requests(RunOptions options, const ServedCheckpoint& from,
                    RequestQueue& queue, const std::function<void()>& ready,
                    const ServingTimes& times) {
  options.report = {};  // ranks that wait for requests are not reported as slow
  // Idle ranks meet several times within the time that a collective may last.
  const double timeout =
      std::chrono::duration<double>(times.timeout.value_or(options.timeout))
          .count();
  const double idle = timeout > 0 ? std::min(0.5, timeout / 4) : 0.5;
  // With stop_on_signals, the run would handle SIGTERM itself, and end at once.
  std::optional<StopOnSignals> signals;
  std::optional<NotedTerm> noted;
  if (times.drain > 0) {
    options.stop_on_signals = false;
    signals.emplace();
    noted.emplace();
  }
  try {
    run(options,
        [&](Runtime& rt) { serve_on(rt, from, queue, idle, ready, times); });
  } catch (const std::exception& e) {
    queue.fail(e.what());
    queue.wait_for_clients(kFarewell);
    throw;
  }
}

}  // namespace dtensor::examples
