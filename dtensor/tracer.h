// SPDX-License-Identifier: Apache-2.0
// The events that one thread of a rank adds to a Trace.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/rank_context.h"
#include "dtensor/trace.h"

namespace dtensor {

// Records one thread of a rank. Only that thread may use it.
class Tracer final : public Observer {
 public:
  Tracer(Trace&, RankContext&, int64_t run);
  // Unpacks a tracer that pack() packed in another process. Its times may be
  // off by `within` ns.
  class Packed;
  Tracer(Trace&, Packed&, int64_t within);

  using Observer::ran;
  void ran(RankContext&, const OpRan&) override;
  void span(RankContext&, int64_t begin, std::string_view name,
            int64_t number) override;
  Observer* for_second_thread(RankContext&) override;
  void begins(const Collective&) override;
  void agreed(const Collective&) noexcept override;
  void ends(const Collective&) noexcept override;

 private:
  friend class Trace;
  enum class Sort : uint8_t { kOp, kCollective, kSpan };
  // The uint32_t members other than `group` are indices into texts_.
  struct Event {
    Sort sort;
    bool threw = false;
    uint32_t name, phase, path, layouts = 0, group = 0, op = 0;
    int64_t begin, end;
    int64_t agreed = -1;  // when the last member arrived; -1: never
    int64_t bytes = 0;    // predicted (operators) or received (collectives)
    int64_t number = -1;  // ordinal, sequence number, or the span's number
  };
  struct Wait {
    int64_t collectives = 0, ns = 0, longest = 0;
  };
  int64_t now() const;  // ns since the trace was made
  uint32_t text(std::string_view);
  template <class Make>
  uint32_t text_of(uint64_t key, Make&&);
  void add(Event);
  std::string to_json(const Event&) const;
  void pack(Packed&) const;
  void shift(int64_t later);  // adds `later` ns to all times

  Trace& trace_;
  RankContext* const context_;  // null for a tracer of another process
  // The recorded thread, the number of its run in the Trace, and when recording
  // began and ended, in ns (opened, closed).
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
  std::vector<std::vector<int64_t>> groups_;  // ranks, by Event::group
  int64_t begin_ = 0, agreed_ = -1;           // of the current collective
};

}  // namespace dtensor
