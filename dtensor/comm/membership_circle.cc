// SPDX-License-Identifier: Apache-2.0
// Finds ranks that wait for each other in a circle, in one process or in
// several.
//
// As long as one member of a group has not come to a collective, the members
// that have come stay in it. A search therefore begins at a thread that has
// made no call for a while. From each thread it goes on to the members that
// have not come to that thread's last collective, also in other processes. When
// it reaches a thread, the process of that thread checks that the thread has
// not come yet. If so, all threads before it on the path are still where they
// were. If the search returns to its first thread, all threads of the circle
// wait for each other, no matter how long the messages took. The search ends at
// a thread that computes, because every member has come to that thread's last
// collective.
//
// A search passes each awaited thread only once, and only threads that are
// ordered after its first one. So of the threads in a circle, only the first
// one in that order reports it.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/comm/membership.h"
#include "dtensor/comm/pack.h"
#include "dtensor/placement/error.h"

namespace dtensor {

// Begins a search at every thread of this process that has made no call since
// the previous look, unless a lane has failed.
void Membership::seek_circles() {
  std::lock_guard one(listening_);
  for (const Lane& l : lanes_)
    if (l.failed) return;
  ++searches_;
  for (int64_t rank = first_; rank < last_; ++rank)
    for (int lane = 0; lane < kLanes; ++lane)
      if (thread(rank, lane).stays)
        follow({rank, lane}, nullptr, {{rank, lane}, searches_});
}

// Continues a search at the thread `to` of this process. `awaited` is the
// collective in which others wait for that thread; null if the search begins at
// it.
void Membership::follow(Id to, const Awaited* awaited, Search s) {
  const auto [rank, lane] = to;
  const Id other = {rank, 1 - lane};
  // Read the last calls before the other checks: if others turn out not to have
  // come to such a call, its thread is still in it.
  auto last = last_call(rank, lane);
  const auto others = last_call(rank, other.second);
  if (awaited) {
    if (has_come(*awaited, rank)) return;
    if (to == s.first) return found(s);
    uint64_t& passed = thread(rank, lane).searches[s.first];
    if (to < s.first || passed == s.number) return;
    passed = s.number;
  }
  Id at = to;
  const auto add = [&](const std::string& where) {
    s.ranks.push_back(rank);
    s.where +=
        fmt::format("{}rank {}{}", s.where.empty() ? "" : "; ", rank, where);
  };
  // An idle thread of a rank waits for the rank's other thread, or for work
  // from it.
  if (thread(rank, lane).idle) {
    if (lane == 0) add(" for its redistribute_async");
    if (other == s.first) return found(s);
    if (other < s.first) return;
    at = other;
    last = others;
  }
  const auto& [call, group] = last;
  if (call.number == 0) return;
  add(fmt::format("{} in {} of ranks {}",
                  at.second > 0 ? "'s redistribute_async" : "",
                  call_to_string(call.kind, call.sequence, call.op),
                  ranks_to_string(group)));
  const Awaited its{group, at.second, call.sequence};
  std::set<int> elsewhere;
  for (int64_t r : its.group) {
    if (!is_here(r))
      elsewhere.insert(process_of(r));
    else if (r != rank)
      follow({r, its.lane}, &its, s);
  }
  if (elsewhere.empty()) return;
  const std::string text = pack("circle", its.group, its.lane, its.sequence,
                                s.first, s.number, s.ranks, s.where);
  for (int process : elsewhere) tell(process, text);
}

void Membership::hear_search(const std::string& text) {
  std::string what;
  Awaited awaited;
  Search s;
  unpack(text, what, awaited.group, awaited.lane, awaited.sequence, s.first,
         s.number, s.ranks, s.where);
  for (int64_t r : awaited.group)
    if (is_here(r)) follow({r, awaited.lane}, &awaited, s);
}

void Membership::found(const Search& s) {
  const std::set<int64_t> in(s.ranks.begin(), s.ranks.end());
  const std::string who =
      std::ssize(in) < world_
          ? fmt::format("ranks {} wait for each other",
                        ranks_to_string(std::vector(in.begin(), in.end())))
          : "every rank waits for another one";
  // The last call of the search's first thread, or, if that has made no call,
  // of the rank's other thread.
  const auto [rank, lane] = s.first;
  FlightEntry first = thread(rank, lane).flight.newest();
  if (first.number == 0) first = thread(rank, 1 - lane).flight.newest();
  fail_all(rank,
           fmt::format("[{}] {}: {}; let all ranks run the same operators "
                       "in the same order",
                       name(first.kind), who, s.where));
}

}  // namespace dtensor
