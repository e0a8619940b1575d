// When every rank did what: operators, collectives, and stretches with a name,
// for the viewers of Chrome and Perfetto, and how long ranks waited for each
// other, by operator.
//
//   RunOptions options;
//   options.trace = std::make_shared<Trace>();
//   run(options, fn);
//   options.trace->write("trace.json");
//   fmt::print("{}", options.trace->waiting_table());
//
// Times are those of the host: of what a GPU does later, when it was handed
// over. The run is slowed by a fraction of a microsecond an event.
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

// Of one run, or several in turn. Of a run whose ranks are in several processes
// each has a Trace of those that it has, until gather().
class Trace {
 public:
  // Of an event about 100 bytes are kept, and 300 are written.
  static constexpr int64_t kMostEvents = 1'000'000;
  explicit Trace(int64_t most_events = kMostEvents);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // By run(), on each rank's thread: notes what that one does until the run is
  // over, and tells `next`, if any, of the collectives.
  Tracer& open(RankContext&, Watch* next);

  // What follows only while no run is going on.
  //
  // Called by all processes: the first one's has what all have noted, and the
  // others are empty. Times are those of the first process. Processes on one
  // machine have one clock; another machine's is compared with the first one's
  // now, by messages, and what it shows is off by at most half of what the
  // fastest of these took (and by what the clocks have drifted apart since).
  // What is shorter than that between two machines is left out.
  void gather(ProcessJob&);
  // The same with a clock of that name (those of one name are one clock), which
  // is ahead of this machine's by so much, in ns: for tests.
  void gather(ProcessJob&, const std::string& clock, int64_t ahead);

  // Writes the file. What came after the first `most_events` is not in it.
  // Throws Error when it cannot be written.
  void write(const std::string& path) const;
  // How many events were kept, and how many not, and when the first of these
  // began, in seconds.
  int64_t kept() const;
  int64_t dropped() const;
  double dropped_from() const;

  // By operator (and phase), the longest first: how long ranks had come to a
  // collective for it when the last of its members came; of all events, kept or
  // not.
  struct Waiting {
    std::string op, phase;
    bool other_thread;        // it is that of redistribute_async which waited
    int64_t collectives = 0;  // as many of each rank as it was in
    double seconds = 0;       // of all ranks, together
    double longest = 0;
    double share = 0;   // of the ranks' time
    int64_t last = -1;  // who was waited for the longest; -1: nobody is known
  };
  std::vector<Waiting> waiting() const;
  // An aligned table of the first rows, with a line for the total; and all of
  // it as [{"op", "phase", "thread", "collectives", "seconds",
  // "longest_seconds", "share", "waited_for"}, ...].
  std::string waiting_table() const;
  nlohmann::ordered_json waiting_json() const;

 private:
  friend class Tracer;
  static int64_t now();  // steady_clock, in ns
  // A collective that all members came to, as one of those who waited saw it.
  struct Arrow;
  std::vector<Arrow> arrows() const;
  int64_t take(int64_t events);  // at most so many that may be kept

  const int64_t most_;
  int64_t start_;  // as now()
  std::atomic<int64_t> taken_{0};
  mutable std::mutex mutex_;  // of tracers_ being opened
  uint64_t run_ = 0;          // the last run's id
  int64_t runs_ = 0;
  std::vector<std::unique_ptr<Tracer>> tracers_;
};

// Notes what one thread of a rank does; used by that one alone.
class Tracer final : public Watch {
 public:
  Tracer(Trace&, RankContext&, Watch* next, int64_t run);
  // Of another process; see pack(). Its times may be off by so much.
  class Packed;
  Tracer(Trace&, Packed&, int64_t within);
  // That of the rank's other thread.
  Tracer& other_thread(RankContext&);

  int64_t now() const;  // ns since the trace was begun
  // What began then is over: an operator, or whatever has a name (and a number,
  // unless it is -1).
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
  // Texts are indices of texts_.
  struct Event {
    Sort sort;
    bool threw = false;
    uint32_t name, phase, path, layouts = 0, group = 0, op = 0;
    int64_t begin, end;
    int64_t agreed = -1;  // -1: a collective whose members never all came
    int64_t bytes = 0;    // of an operator predicted, else received
    int64_t number = -1;  // ordinal, sequence number, or the span's
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
  void shift(int64_t later);  // all times

  Trace& trace_;
  RankContext* const context_;  // null: it notes nothing any more
  Watch* const next_;
  // Whose, in which of the runs, and from when to when.
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
  std::vector<std::vector<int64_t>> groups_;  // those of the flight ring
  int64_t begin_ = 0, agreed_ = -1;           // of the open collective
};

// A stretch of the rank's time under a name, in a run that has a trace.
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
  const std::string_view name_;  // has to live as long
  const int64_t number_;
  int64_t begin_ = 0;
};

}  // namespace dtensor
