// SPDX-License-Identifier: Apache-2.0
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
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor {

class ProcessJob;
class Tracer;
struct RankContext;

// The trace of one run, or of several runs one after another. If the ranks are
// in several processes, each process has a Trace of its own ranks, until
// gather().
class Trace {
 public:
  // An event takes about 100 bytes of memory, and 300 bytes in the file. Events
  // beyond `most_events` are dropped.
  static constexpr int64_t kMostEvents = 1'000'000;
  explicit Trace(int64_t most_events = kMostEvents);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Makes the tracer of the thread with this context. Called by run() for each
  // rank's main thread, and by the tracer of that thread for the second one.
  Tracer& open(RankContext&);

  // The public functions below must not be called during a run.
  //
  // Moves all events to the Trace of the first process; the other Traces are
  // empty afterwards. Called by all processes. Times are converted to the clock
  // of the first process. Processes on one machine share a clock. The clock of
  // another machine is compared with that of the first during this call, by
  // messages; its times are off by at most half the time of the fastest message
  // and reply, plus the drift of the clocks since the run. The file's arrows
  // and Waiting::last leave out waits that are shorter than this error.
  void gather(ProcessJob&);
  // For tests: as if this process had a clock of this name, `ahead` ns ahead of
  // the machine's own. Processes that pass the same name share a clock.
  void gather(ProcessJob&, const std::string& clock, int64_t ahead);

  // Writes the file, with the events that were kept: about the first
  // `most_events`. Throws Error if the file cannot be written.
  void write(const std::string& path) const;
  // The numbers of events that were kept and dropped, and the time when the
  // first dropped event began, in seconds since the Trace was made; 0 if none.
  int64_t kept() const;
  int64_t dropped() const;
  double dropped_from() const;

  // How long ranks waited for the last member in an operator's collectives.
  // There is one row for each operator, phase and thread, the one with the most
  // `seconds` first. Counts dropped events, too, except in `last`.
  struct Waiting {
    std::string op, phase;
    bool other_thread;        // waits of the thread of redistribute_async()
    int64_t collectives = 0;  // summed over all ranks
    double seconds = 0;       // summed over all ranks
    double longest = 0;       // seconds, a single wait
    double share = 0;         // a share of the ranks' time: 0 to 1
    int64_t last = -1;        // the rank that caused most waiting; -1: unknown
  };
  std::vector<Waiting> waiting() const;
  // waiting_table() is an aligned table of the first 12 rows, the sum of the
  // other rows, and a total.
  // waiting_json() has all rows, as [{"op", "phase", "thread", "collectives",
  // "seconds", "longest_seconds", "share", "waited_for"}, ...].
  std::string waiting_table() const;
  nlohmann::ordered_json waiting_json() const;

 private:
  friend class Tracer;
  static int64_t now();  // steady_clock, in ns
  // One member's wait for the last member of a collective. All members reached
  // that collective.
  struct Arrow;
  std::vector<Arrow> arrows() const;
  // Returns how many of the next `events` events the caller may keep.
  int64_t take(int64_t events);

  const int64_t most_;
  int64_t start_;  // the time of now() at construction
  std::atomic<int64_t> taken_{0};
  mutable std::mutex mutex_;  // guards open()
  uint64_t run_ = 0;          // the id of the latest run
  int64_t runs_ = 0;
  std::vector<std::unique_ptr<Tracer>> tracers_;
};

// Tells the rank's observers of a scope, as a named span: it is in the trace,
// if the run has one. `number` is shown with the span unless it is -1.
class TraceSpan {
 public:
  explicit TraceSpan(std::string_view name, int64_t number = -1);
  TraceSpan(RankContext&, std::string_view name, int64_t number = -1);
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  RankContext& context_;
  const std::string_view name_;  // has to outlive the span
  const int64_t number_;
  const int64_t begin_;  // -1: there is no observer
};

}  // namespace dtensor
