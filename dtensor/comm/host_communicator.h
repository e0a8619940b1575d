// SPDX-License-Identifier: Apache-2.0
// One member of a group of ranks that are threads, of one process or of
// several.
//
// The members of one process read each other's memory in place, without packing
// or padding; an all-reduce also writes to it. They meet before and after every
// such access. Their devices must reach each other's memory: the CPU, one GPU
// shared by all ranks, or GPUs with peer access. On GPUs, streams wait for the
// peers' events; the host never waits for work.
//
// Members of different processes send each other messages, from CPU memory
// only. The first member in each process agrees with the other processes on
// behalf of all members there. It sends its fingerprint (a hash of the call) to
// all others before it waits, and gives up only if an awaited rank is gone, the
// run fails or a signal ends it. Otherwise all members pass or none does.
//
// Members may show short buffers and bytes together with the call; the
// collective then needs no other message and no meeting at its end. If no two
// members share a process, short transfers travel with the fingerprint, and
// need no other message.
#pragma once
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/comm/membership.h"
#include "dtensor/comm/packed_messages.h"
#include "dtensor/comm/staging.h"

namespace dtensor {

class HostCommunicator : public Communicator {
 public:
  // Throws Error if `me` is not one of the ranks, or a rank is not in the run.
  HostCommunicator(Membership&, std::span<const int64_t> ranks, int64_t me,
                   int lane);
  bool needs_serves() const override { return !group_.peers.empty(); }
  bool reads_sources() const override { return true; }

 protected:
  void agree(const Collective&) override;
  void do_move(const Collective&) override;
  void do_all_reduce(const Collective&) override;
  void do_all_gather_bytes(const Collective&) override;

  // ---- For a communicator that moves the data itself ----

  // The most bytes that a member may show by agree_and_show().
  static constexpr int64_t kMost = 224;
  // Agrees as agree() does. Each member shows the others `bytes` bytes from
  // `mine`; all members pass the same number. For all_gather_bytes(), pass 0:
  // members then show the bytes to gather, if they are short. Throws Error if a
  // process has so many members that their bytes do not fit into one message.
  void agree_and_show(const Collective&, const void* mine, int64_t bytes);
  // The bytes that member m has shown, valid until the next collective; 8-byte
  // aligned if their number is a multiple of 8.
  const char* shown(int m) const;
  const std::vector<int64_t>& ranks() const { return group_.ranks; }
  int64_t world(int m) const { return ranks()[index(m)]; }

 private:
  static size_t index(int m) { return static_cast<size_t>(m); }
  bool is_local(int m) const { return group_.peer_of[index(m)] < 0; }
  const Group::Peer& peer(int m) const {
    return group_.peers[index(group_.peer_of[index(m)])];
  }
  bool alone() const { return group_.members.size() == 1; }
  // The slot of member m, which is a thread of this process, for the current
  // collective.
  Slot& of(int m) const {
    return group_.slot(group_.place_of[index(m)], sequence_);
  }
  const HostCommunicator& member(int m) const { return *of(m).member; }
  // Returns which of `takers`, members of one process, receives member m's
  // message for all of them.
  static int receiver(const std::vector<int>& takers, int m) {
    return takers[index(m) % takers.size()];
  }
  int receiver_here(int m) const { return receiver(group_.members, m); }
  // Calls fn(m) for each member m of another process: first for those after
  // this member, in rising order, then for those from 0 on.
  template <class Fn>
  void each_remote(Fn&& fn) const {
    for (int k = 1; k < size(); ++k)
      if (const int m = (rank() + k) % size(); !is_local(m)) fn(m);
  }
  // Rounds up the size of a part of short data, so that the next part is
  // aligned.
  static int64_t padded(int64_t bytes) { return (bytes + 15) / 16 * 16; }
  static int64_t bytes_of(const Buffer& b) { return b.n * size_of(b.dtype); }
  static char* element(const Buffer& b, int64_t i) {
    return static_cast<char*>(b.data) + i * size_of(b.dtype);
  }
  // The address of element i of the input, before it is reduced.
  static const char* source(const Buffer& b, int64_t i) {
    return static_cast<const char*>(b.from ? b.from : b.data) +
           i * size_of(b.dtype);
  }
  // Returns the end of the copy.
  static char* copy_bytes(char* to, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return to + bytes;
  }
  Interval chunk(const Buffer& b, int m) const {
    return Communicator::chunk(b.n, m, size());
  }
  int64_t chunk_bytes(const Buffer& b, int m) const {
    return chunk(b, m).size() * size_of(b.dtype);
  }
  void send(int m, const void* data, int64_t bytes) {
    if (bytes > 0)
      messages_->send({world(rank()), world(m), group_.lane}, data, bytes);
  }
  void receive(int m, void* data, int64_t bytes) {
    if (bytes > 0)
      messages_->receive({world(m), world(rank()), group_.lane}, data, bytes);
  }
  void wait() { run_.wait(*messages_, group_, place_); }

  // host_agreement.cc
  void begin(const Collective&);
  bool offer(int64_t bytes);
  void meet(const Collective&);
  std::exception_ptr settle(const Collective&) noexcept;
  bool exchange_headers(const Collective&, bool agreed);
  static bool says_the_same(const Group::Peer& p, uint64_t print) {
    return p.message.header.agreed && p.message.header.print == print;
  }
  int64_t put_packed(int peer, char* to);
  [[noreturn]] void differ(const Collective&);
  void connect();

  void prepare(std::span<const Transfer>);
  // Runs send(), in which each member exchanges messages with other processes,
  // and then read(), in which the members here access each other's memory. If
  // all members are in this process, send() is not called. If a member's send()
  // throws, no member here runs read(). The members meet after send() and after
  // read(), even if one of these throws. A group of one only runs read().
  template <class Send, class Read>
  void in_two(Stream, const Send& send, const Read& read);
  void travel(const Collective&);
  void take_pieces(const Collective&);
  size_t at(size_t item, int m) const {
    return item * group_.ranks.size() + index(m);
  }
  void reduce_shown(const Collective&);
  void reduce_here(const Collective&);
  void reduce(Stream, Buffer&, void* to);
  void send_chunks(const Collective&);
  void push_chunk(Stream, size_t i, Buffer&);
  void collect_chunks(size_t i, Buffer&);
  void show_event(Stream);
  void wait_for_events(Stream);

  Membership& run_;
  Group& group_;
  const size_t place_;
  const int64_t limit_;  // data of at most this many bytes is short
  const std::unique_ptr<PendingMessages> messages_;  // null if no peers
  Staging staging_;
  std::vector<PackedMessages> kept_;
  std::vector<const char*> from_;
  std::vector<char*> to_;
  std::vector<Operand> operands_;
  std::unique_ptr<Slot> spare_;
  bool connected_;  // connect() has passed, or is not needed
  // The state of the current collective:
  uint64_t sequence_ = 0;
  Slot* mine_ = nullptr;
  bool small_ = false;  // its data is at most limit_ bytes
  int64_t shown_bytes_ = 0;
  std::span<PackedMessages> packed_;  // one per transfer, in kept_
  // The messages that this member has received, for itself and for other
  // members of this process, by transfer or buffer and by sender: see at().
  std::vector<void*> received_;
  bool failed_ = false;  // this member did not receive everything
  bool later_ = false;   // its stream work runs asynchronously
  int events_shown_ = 0, events_waited_ = 0;
};

}  // namespace dtensor
