// A timeline of every rank: operators, collectives and named spans, for the
// viewers of Chrome and Perfetto; and how long ranks waited for each other, by
// operator.
//
//   RunOptions options;
//   options.trace = std::make_shared<Trace>();
//   run(options, fn);
//   options.trace->write("trace.json");
//   fmt::print("{}", options.trace->waiting_table());
//
// Times are those of the host: for work of a GPU, the time when it was
// enqueued. Tracing slows a run by a fraction of a microsecond per event.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/placement/spec.h"
#include "dtensor/rank_context.h"

namespace dtensor {

class ProcessJob;
class Tracer;

// The trace of one run, or of several runs one after another. If the ranks are
// in several processes, each process has a Trace of its own ranks, until
// gather().
class Trace {
 public:
  // An event takes about 100 bytes of memory, and 300 bytes in the file.
  static constexpr int64_t kMostEvents = 1'000'000;
  explicit Trace(int64_t most_events = kMostEvents);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Called by run() on each rank's thread: makes the tracer of that thread.
  // `next`, unless null, also observes its collectives.
  Tracer& open(RankContext&, Watch* next);

  // The members below must not be called during a run.
  //
  // Moves all events to the Trace of the first process; the others are empty
  // afterwards. Called by all processes. Times are converted to the clock of
  // the first process. Processes on one machine share a clock. The clock of
  // another machine is compared with the first one's now, by messages; its
  // times are off by at most half the time of the fastest exchange, plus the
  // drift of the clocks since the run. Waits between two machines that are
  // shorter than that are left out.
  void gather(ProcessJob&);
  // For tests: with a named clock (one name, one clock) that is `ahead` ns
  // ahead of this machine's.
  void gather(ProcessJob&, const std::string& clock, int64_t ahead);

  // Writes the file, with the first `most_events` events. Throws Error if it
  // cannot be written.
  void write(const std::string& path) const;
  // The number of events kept and dropped, and the time when the first dropped
  // one began, in seconds.
  int64_t kept() const;
  int64_t dropped() const;
  double dropped_from() const;

  // By operator and phase, the longest first: how long ranks waited in its
  // collectives for the last member. Counts dropped events, too.
  struct Waiting {
    std::string op, phase;
    bool other_thread;        // waits of the thread of redistribute_async()
    int64_t collectives = 0;  // the sum over ranks
    double seconds = 0;       // the sum over ranks
    double longest = 0;       // seconds, a single wait
    double share = 0;         // of the ranks' total time, 0 to 1
    int64_t last = -1;        // the rank waited for the longest; -1: unknown
  };
  std::vector<Waiting> waiting() const;
  // An aligned table of the first 12 rows and a total; and all rows as [{"op",
  // "phase", "thread", "collectives", "seconds", "longest_seconds", "share",
  // "waited_for"}, ...].
  std::string waiting_table() const;
  nlohmann::ordered_json waiting_json() const;

 private:
  friend class Tracer;
  static int64_t now();  // steady_clock, in ns
  // One member's wait for the last member of a collective that all reached.
  struct Arrow;
  std::vector<Arrow> arrows() const;
  int64_t take(int64_t events);  // reserves up to this many events to keep

  const int64_t most_;
  int64_t start_;  // like now()
  std::atomic<int64_t> taken_{0};
  mutable std::mutex mutex_;  // guards open()
  uint64_t run_ = 0;          // the id of the latest run
  int64_t runs_ = 0;
  std::vector<std::unique_ptr<Tracer>> tracers_;
};

// Records one thread of a rank; only that thread uses it.
class Tracer final : public Watch {
 public:
  Tracer(Trace&, RankContext&, Watch* next, int64_t run);
  // The tracer of another process, from pack(). Its times may be off by
  // `within` ns.
  class Packed;
  Tracer(Trace&, Packed&, int64_t within);
  // Makes the tracer of the rank's second thread.
  Tracer& other_thread(RankContext&);

  int64_t now() const;  // ns since the trace was made
  // Record an operator, or a named span, that began at `begin` and ends now.
  // `number` is shown with the span unless it is -1.
  void op(int64_t begin, std::string_view name, std::span<const Spec* const> in,
          std::span<const Spec* const> out, int64_t predicted_bytes,
          int64_t ordinal);
  void span(int64_t begin, std::string_view name, int64_t number);

  void begins(const Collective&) override;
  void agreed(const Collective&) noexcept override;
  void ends(const Collective&) noexcept override;

 private:
  friend class Trace;
  enum class Sort : uint8_t { kOp, kCollective, kSpan };
  // The uint32_t members but `group` are indices of texts_.
  struct Event {
    Sort sort;
    bool threw = false;
    uint32_t name, phase, path, layouts = 0, group = 0, op = 0;
    int64_t begin, end;
    int64_t agreed = -1;  // when the last member came; -1: never
    int64_t bytes = 0;    // predicted (operators) or received (collectives)
    int64_t number = -1;  // ordinal, sequence number, or the span's number
  };
  struct Wait {
    int64_t collectives = 0, ns = 0, longest = 0;
  };
  uint32_t text(std::string_view);
  template <class Make>
  uint32_t text_of(uint64_t key, Make&&);
  void add(Event);
  std::string to_json(const Event&) const;
  void pack(Packed&) const;
  void shift(int64_t later);  // adds to all times

  Trace& trace_;
  RankContext* const context_;  // null for a tracer of another process
  Watch* const next_;
  // The thread that it records, in which run, and its first and last time.
  struct Whose {
    int64_t rank, lane, run, opened, closed;
  };
  Whose whose_;
  const int64_t within_ = 0;

  std::deque<Event> events_;
  int64_t may_keep_ = 0;
  int64_t dropped_ = 0, dropped_from_ = -1;
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, uint32_t> text_numbers_;
  std::unordered_map<uint64_t, uint32_t> layout_texts_;
  std::unordered_map<uint64_t, Wait> waits_;  // by op and phase
  std::vector<std::vector<int64_t>> groups_;  // copied from the flight ring
  int64_t begin_ = 0, agreed_ = -1;           // of the current collective
};

// Records a scope as a named span if the run has a trace.
class TraceSpan {
 public:
  explicit TraceSpan(std::string_view name, int64_t number = -1)
      : TraceSpan(RankContext::current(), name, number) {}
  TraceSpan(RankContext& context, std::string_view name, int64_t number = -1)
      : tracer_(context.tracer), name_(name), number_(number) {
    if (tracer_) begin_ = tracer_->now();
  }
  ~TraceSpan() {
    if (tracer_) tracer_->span(begin_, name_, number_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Tracer* const tracer_;
  const std::string_view name_;  // has to outlive the span
  const int64_t number_;
  int64_t begin_ = 0;
};

}  // namespace dtensor
