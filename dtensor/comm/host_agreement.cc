// SPDX-License-Identifier: Apache-2.0
// How the members of a group agree on a collective.
#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "dtensor/comm/host_communicator.h"
#include "dtensor/comm/pack.h"
#include "dtensor/comm/process_backend.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Statement, whole, fingerprint, kind, text)

// Begins a collective: chooses this member's slot and fills it in.
void HostCommunicator::begin(const Collective& c) {
  sequence_ = c.sequence;
  // A broken group stays broken, and its members no longer wait for each other.
  // Others may still read this member's slot, so this member uses a spare one.
  if (group_.barrier.broken() && !spare_) spare_ = std::make_unique<Slot>();
  mine_ = spare_ ? spare_.get() : &group_.slot(place_, sequence_);
  mine_->fingerprint = c.fingerprint;
  mine_->device = &device();
  mine_->collective = &c;
  mine_->member = this;
  mine_->transfers = c.transfers.data();
  mine_->buffers = c.buffers.data();
  failed_ = later_ = false;
  packed_ = {};
}

// Returns whether the collective's data, of `bytes` bytes, is short enough to
// be shown with the call. Remembers the answer for this collective.
bool HostCommunicator::offer(int64_t bytes) {
  small_ = bytes <= limit_;
  shown_bytes_ = small_ ? bytes : 0;
  return small_;
}

const char* HostCommunicator::shown(int m) const {
  if (is_local(m)) return of(m).shown;
  return peer(m).message.payload +
         static_cast<int64_t>(group_.place_of[index(m)]) * shown_bytes_;
}

void HostCommunicator::agree_and_show(const Collective& c, const void* mine,
                                      int64_t bytes) {
  constexpr int64_t kMostRanks = Message::kPayload / kMost;
  DT_CHECK(
      bytes <= limit_, "communicator",
      "a process has {} ranks of this group, but in this backend at most {} "
      "ranks of a process can agree on what they send; write "
      "--ranks-per-process {} or less",
      group_.most_members, kMostRanks, kMostRanks);
  begin(c);
  const bool gathers = c.num_bytes >= 0;
  if (offer(gathers ? c.num_bytes : bytes))
    copy_bytes(mine_->shown, gathers ? c.bytes : mine, shown_bytes_);
  meet(c);
}

void HostCommunicator::agree(const Collective& c) {
  const bool on_host = device().kind() == Device::Kind::kCpu;
  const bool on_stream = !(c.transfers.empty() && c.buffers.empty());
  DT_CHECK(on_host || !on_stream || group_.peers.empty(), name(c.call->kind),
           "this backend sends only data in CPU memory between processes, but "
           "this rank computes on a GPU; leave RunOptions::device empty, or "
           "write the backend {}",
           gpu_backend().name);
  begin(c);
  later_ = !on_host && on_stream;
  if (later_) {
    events_shown_ = events_waited_ = 0;
    show_event(c.stream);
  }
  // If all members are in this process, buffers that are not one-shot are
  // reduced in chunks, so they count as limit_ + 1 bytes, too many to show. But
  // two members show short buffers, since that moves no more bytes.
  int64_t bytes = std::max<int64_t>(c.num_bytes, 0);
  for (const Buffer& b : c.buffers)
    bytes += b.one_shot || size() == 2 || !group_.peers.empty()
                 ? padded(bytes_of(b))
                 : limit_ + 1;
  if (!c.transfers.empty() || later_) bytes = limit_ + 1;
  if (offer(bytes)) {
    char* to = mine_->shown;
    copy_bytes(to, c.bytes, c.num_bytes);
    for (const Buffer& b : c.buffers) {
      copy_bytes(to, source(b, 0), bytes_of(b));
      to += padded(bytes_of(b));
    }
  }
  prepare(c.transfers);
  meet(c);
  if (!connected_) connect();
}

// Waits for all members and compares their calls. Throws the Error of
// disagree(), or one that says why some members will not come.
void HostCommunicator::meet(const Collective& c) {
  group_.come(place_, sequence_);
  run_.check_failed(group_, place_);
  run_.meet(group_, place_);
  if (group_.peers.empty()) {
    const std::exception_ptr error = settle(c);
    if (!error) return;
    run_.meet_again(group_, place_);  // until then, others may read this call
    std::rethrow_exception(error);
  }
  if (place_ == 0) group_.verdict = settle(c);
  run_.meet_again(group_, place_);
  if (const auto error = group_.verdict) std::rethrow_exception(error);
}

// Compares the members' calls. If all members are in this process, each calls
// this; else the first member here does, on behalf of all here. Returns the
// error, instead of throwing it, because other members still wait for this one.
std::exception_ptr HostCommunicator::settle(const Collective& c) noexcept {
  try {
    bool agreed = true;
    for (size_t k = 0; k < group_.members.size(); ++k)
      agreed = agreed && group_.slot(k, sequence_).fingerprint == c.fingerprint;
    if (!group_.peers.empty()) agreed = exchange_headers(c, agreed);
    if (!agreed) differ(c);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

// Returns whether the members of all processes make this call. `agreed` says
// whether those of this process do.
bool HostCommunicator::exchange_headers(const Collective& c, bool agreed) {
  const uint64_t print = hash_mix(c.fingerprint, group_.hash);
  for (size_t i = 0; i < group_.peers.size(); ++i) {
    Group::Peer& p = group_.peers[i];
    Message& out = *new (staging_.take(sizeof(Message))) Message;
    int64_t payload = put_packed(static_cast<int>(i), out.payload);
    p.sent_packed = payload >= 0;
    if (!p.sent_packed) {
      char* to = out.payload;
      for (int m : group_.members)
        to = copy_bytes(to, of(m).shown, shown_bytes_);
      payload = to - out.payload;
    }
    out.header = {print, agreed, p.sent_packed, 0};
    receive(p.members[0], &p.message, sizeof(Message));
    send(p.members[0], &out,
         static_cast<int64_t>(sizeof(Message::Header)) + payload);
  }
  wait();
  for (const Group::Peer& p : group_.peers)
    agreed = agreed && says_the_same(p, print);
  return agreed;
}

// Packs the transfers to a peer into `to`, if they may travel with the header.
// Returns their size in bytes, or -1 if they may not.
int64_t HostCommunicator::put_packed(int peer, char* to) {
  int64_t bytes = 0;
  for (const PackedMessages& p : packed_) bytes += padded(p.bytes_to(peer));
  if (group_.most_members > 1 || packed_.empty() || bytes > Message::kPayload)
    return -1;
  for (PackedMessages& p : packed_) {
    const void* at =
        p.message_to(Place{cpu(), {}}, peer, [&](int64_t) { return to; });
    if (at != to) copy_bytes(to, at, p.bytes_to(peer));
    to += padded(p.bytes_to(peer));
  }
  return bytes;
}

// Throws the Error of disagree(). Before that, each process exchanges
// descriptions of the members' calls with every process that disagrees with it.
void HostCommunicator::differ(const Collective& c) {
  const std::string of_group =
      fmt::format(" of ranks {}", ranks_to_string(group_.ranks));
  std::vector<Statement> all(group_.ranks.size(), statement_of(c)), here;
  bool agreed = true;
  for (int m : group_.members) {
    all[index(m)] = statement_of(*of(m).collective);
    agreed = agreed && all[index(m)].whole == c.fingerprint;
    here.push_back(all[index(m)]);
    here.back().text += of_group;
  }
  std::vector<const Group::Peer*> odd;
  for (const Group::Peer& p : group_.peers)
    if (!agreed || !says_the_same(p, hash_mix(c.fingerprint, group_.hash)))
      odd.push_back(&p);
  const std::string out = pack(here);
  const int64_t size = std::ssize(out);
  std::vector<int64_t> sizes(odd.size());
  std::vector<std::string> texts(odd.size());
  for (size_t i = 0; i < odd.size(); ++i) {
    receive(odd[i]->members[0], &sizes[i], sizeof(size));
    send(odd[i]->members[0], &size, sizeof(size));
  }
  if (!odd.empty()) wait();
  for (size_t i = 0; i < odd.size(); ++i) {
    texts[i].resize(static_cast<size_t>(sizes[i]));
    receive(odd[i]->members[0], texts[i].data(), sizes[i]);
    send(odd[i]->members[0], out.data(), size);
  }
  if (!odd.empty()) wait();
  for (size_t i = 0; i < odd.size(); ++i) {
    std::vector<Statement> theirs;
    unpack(texts[i], theirs);
    DT_CHECK(theirs.size() == odd[i]->members.size(), "communicator",
             "a process describes {} calls for its {} members, which is an "
             "error in dtensor; report it",
             theirs.size(), odd[i]->members.size());
    for (size_t k = 0; k < odd[i]->members.size(); ++k) {
      Statement& s = all[index(odd[i]->members[k])] = theirs[k];
      if (s.text.ends_with(of_group))
        s.text.resize(s.text.size() - of_group.size());
      else
        s.whole = ~c.fingerprint;  // that call belongs to another group
    }
  }
  disagree(group_.ranks, c.sequence, std::move(all));
}

// Called in the first collective, if all members are in this process. Checks
// that their devices reach each other's memory. Every member checks all pairs,
// so all throw the same Error.
void HostCommunicator::connect() {
  const auto [first, last] = run_.local_ranks(size());
  for (int a = 0; a < size(); ++a)
    for (int b = 0; b < size(); ++b) {
      const Device &one = *of(a).device, &other = *of(b).device;
      DT_CHECK(one.kind() == other.kind(), "threads",
               "ranks {} and {} read each other's memory, but one computes "
               "on the CPU and the other on a GPU; run all ranks on one kind "
               "of device",
               world(a), world(b));
      DT_CHECK(one.can_access_peer(other), "threads",
               "ranks of one process read each other's memory, but the GPU of "
               "rank {} cannot reach that of rank {}; run with --backend {} "
               "and --ranks-per-gpu 1, or put all ranks on one GPU with "
               "--ranks-per-gpu {}",
               world(a), world(b), gpu_backend().name, last - first);
    }
  connected_ = true;
}

}  // namespace dtensor
