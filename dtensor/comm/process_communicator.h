// One member of a group of threads in several processes.
//
// The members of one process meet in its Group, and the first of them agrees
// with the other processes on behalf of all: it sends its fingerprint to every
// other process before it waits for any, and gives up only if an awaited
// process is gone, so that either all members pass or none. If no two members
// share a process, short data travels with the fingerprint, and no other
// message is needed.
#pragma once
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "dtensor/comm/agreement_channel.h"
#include "dtensor/comm/communicator.h"
#include "dtensor/comm/membership.h"
#include "dtensor/comm/packed_messages.h"
#include "dtensor/comm/staging.h"

namespace dtensor {

class ProcessCommunicator final : public HostCommunicator {
 public:
  ProcessCommunicator(Membership&, Group&, int index);
  bool needs_serves() const override { return true; }
  bool reads_sources() const override { return true; }

  void open(const Collective&, const void* mine, int64_t bytes) override;
  const void* shown(int m) const override;
  // The most ranks per process that can all show AgreementChannel::kMost bytes.
  static constexpr int64_t kMostShow() {
    return kPayload / AgreementChannel::kMost;
  }

 protected:
  void agree(const Collective&) override;
  void do_exchange(const Call&, Stream, std::span<Transfer>) override;
  void do_reduce(const Call&, Stream, std::span<Transfer>) override;
  void do_all_reduce(const Call&, Stream, std::span<Buffer>) override;
  void do_all_gather_bytes(const Call&, const void* in, int64_t bytes,
                           void* out) override;

 private:
  // The message by which processes agree; a payload may follow it.
  struct Header {
    uint64_t print;   // hash of the call and the group
    uint64_t agreed;  // 1: all members of the process make this call
    int64_t payload;  // bytes
    int64_t has_payload;
  };
  static constexpr int64_t kPayload = 4096 - sizeof(Header);
  // Another process with members.
  struct Peer {
    int process;
    std::vector<int> members;
    // The collective that is open:
    char* message = nullptr;  // header and payload
    bool sent_payload = false;
    const Header& header() const {
      return *reinterpret_cast<const Header*>(message);
    }
    const char* payload() const { return message + sizeof(Header); }
  };

  int64_t world(int m) const { return group_.ranks[static_cast<size_t>(m)]; }
  Channel to(int m) const { return {world(rank()), world(m), group_.lane}; }
  Channel from(int m) const { return {world(m), world(rank()), group_.lane}; }
  bool alone() const { return group_.members.size() == 1; }
  bool is_local(int m) const { return peer_of_[static_cast<size_t>(m)] < 0; }
  // Which of the members `takers`, all of one process, receives the message of
  // member m for all of them.
  static int receiver(const std::vector<int>& takers, int m) {
    return takers[static_cast<size_t>(m) % takers.size()];
  }
  // The data that a member of this process shows, given its place among them:
  // always in one slot, because the members meet again after they have read it.
  Slot& slot(size_t place) const { return group_.slot(place, 0); }
  Slot& of(int m) const { return slot(group_.place(m)); }
  Slot& mine() const { return slot(place_); }
  void wait() { run_.wait(*messages_, group_, place_); }

  // Each part of a payload begins aligned.
  static int64_t padded(int64_t bytes) { return (bytes + 15) / 16 * 16; }
  static int64_t bytes_of(const Buffer& b) { return b.n * size_of(b.dtype); }
  // The input, before it is reduced.
  static const char* source(const Buffer& b, int64_t i) {
    return static_cast<const char*>(b.from ? b.from : b.data) +
           i * size_of(b.dtype);
  }
  static void copy_bytes(void* to, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  void come(const Collective&);
  void prepare(const Collective&);
  void meet(const Collective&);
  std::exception_ptr settle(const Collective&) noexcept;
  void exchange_headers(const Collective&);
  [[noreturn]] void differ(const Collective&);
  int64_t payload_for(const Collective&, size_t peer) const;
  void put_payload(const Collective&, size_t peer, char* to);
  void keep_shown();

  // Sends and receives packed messages. received() finds the received ones,
  // until the members here have met again.
  void travel(std::span<Transfer>, bool reduces);
  const void* received(size_t transfer, int m);
  std::vector<const void*> all_received(size_t transfer);
  PackedMessages::Readable readable(size_t transfer);
  // Runs first(), which each member does by itself, and then second(), in which
  // the members here read each other's memory. The members meet after each of
  // them, even if it throws.
  template <class First, class Second>
  void in_two(const First& first, const Second& second) {
    std::exception_ptr error;
    try {
      first();
    } catch (...) {
      error = std::current_exception();
      mine().failed = true;
    }
    if (!alone()) run_.meet_again(group_, place_);
    if (!error) try {
        check_received();
        second();
      } catch (...) {
        error = std::current_exception();
      }
    if (!alone()) run_.meet_again(group_, place_);
    if (error) std::rethrow_exception(error);
  }
  void check_received() const;
  void reduce_payloads(std::span<Buffer>);
  void reduce_chunk(size_t i, Buffer&);
  void spread_chunk(Buffer&);
  void collect_chunks(size_t i, Buffer&);

  Membership& run_;
  Group& group_;
  const size_t place_;
  const uint64_t group_hash_;
  std::vector<Peer> peers_;   // ordered by first member
  std::vector<int> peer_of_;  // by member: index in peers_; -1: here
  bool one_each_ = true;      // no process has two members
  bool only_agrees_ = false;
  const std::unique_ptr<PendingMessages> messages_;
  Staging staging_;
  // The collective that is open:
  std::span<PackedMessages> packed_;  // one per transfer, in kept_
  std::vector<PackedMessages> kept_;
  std::vector<const void*> received_;  // by transfer and member
};

}  // namespace dtensor
