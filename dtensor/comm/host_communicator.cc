// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/host_communicator.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "dtensor/comm/agreement.h"
#include "dtensor/comm/scratch.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

const Place kHere{cpu(), {}};
constexpr int64_t kUnit[] = {1};
// The most bytes that each member shows with its call if all members are in one
// process. Larger buffers take less time if they are reduced in chunks, or if
// they are not copied into the slot.
constexpr int64_t kThreads = 1024;

int index_in(std::span<const int64_t> ranks, int64_t me) {
  const auto at = std::find(ranks.begin(), ranks.end(), me);
  DT_CHECK(at != ranks.end(), "communicator",
           "rank {} asks for the group of ranks {}, to which it does not "
           "belong; call communicator() only on these ranks, or add the rank",
           me, ranks_to_string(ranks));
  return static_cast<int>(at - ranks.begin());
}

}  // namespace

HostCommunicator::HostCommunicator(Membership& run,
                                   std::span<const int64_t> ranks, int64_t me,
                                   int lane)
    : Communicator(index_in(ranks, me), static_cast<int>(ranks.size())),
      run_(run),
      group_(run.members({ranks.begin(), ranks.end()}, lane)),
      place_(group_.place_of[index(rank())]),
      limit_(group_.peers.empty()
                 ? kThreads
                 : Message::kPayload /
                       static_cast<int64_t>(group_.most_members) / 16 * 16),
      messages_(group_.peers.empty() ? nullptr : run.pending_messages()),
      connected_(!group_.peers.empty()) {}

void HostCommunicator::prepare(std::span<const Transfer> transfers) {
  staging_.reset();
  const size_t count = transfers.size();
  if (kept_.size() < count) kept_.resize(count);
  packed_ = std::span(kept_).first(count);
  for (size_t i = 0; i < count; ++i)
    packed_[i].reset(transfers[i], group_.peer_of,
                     static_cast<int>(group_.peers.size()));
}

template <class Send, class Read>
void HostCommunicator::in_two(Stream stream, const Send& send,
                              const Read& read) {
  if (size() == 1) return read();
  std::exception_ptr error;
  const auto attempt = [&](auto&& part) {
    try {
      part();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  };
  if (!group_.peers.empty()) {
    attempt(send);
    failed_ = error != nullptr;
    run_.meet_again(group_, place_);
    for (int m : group_.members)
      if (member(m).failed_ && !error)
        attempt([&] { run_.released(group_, place_); });
  }
  if (!error)
    attempt([&] {
      wait_for_events(stream);
      read();
    });
  attempt([&] { show_event(stream); });
  run_.meet_again(group_, place_);
  attempt([&] { wait_for_events(stream); });
  if (error) std::rethrow_exception(error);
}

// On devices with asynchronous work, streams wait for each other: each member
// shows an event of its stream, and makes its stream wait for the events of the
// others. Work that reads the others' memory then runs after the work that
// wrote it. Work after the collective, which may overwrite or free that memory,
// runs after all reads. The threads meet only to exchange events. All this
// holds even if something throws.
void HostCommunicator::show_event(Stream stream) {
  if (!later_) return;
  Event& event = mine_->events[events_shown_++];
  event = {};
  event = device().record(stream);
}
// Makes the stream wait for all events that the other members have shown so
// far.
void HostCommunicator::wait_for_events(Stream stream) {
  for (; events_waited_ < events_shown_; ++events_waited_)
    for (int m = 0; m < size(); ++m)
      if (m != rank()) device().wait(stream, of(m).events[events_waited_]);
}

// ---- Transfers ----

// Sends and receives the packed messages of all transfers, except for those
// that have come with the fingerprint.
void HostCommunicator::travel(const Collective& c) {
  received_.assign(packed_.size() * group_.ranks.size(), nullptr);
  std::vector<const PackedMessages*> takers(group_.members.size());
  for (size_t i = 0; i < packed_.size(); ++i) {
    PackedMessages& mine = packed_[i];
    for (size_t k = 0; k < takers.size(); ++k)
      takers[k] = &member(group_.members[k]).packed_[i];
    each_remote([&](int m) {
      if (peer(m).message.header.has_packed) return;
      const int64_t bytes =
          alone() ? mine.bytes_from(m) : mine.share(m, takers);
      if (bytes == 0 || receiver_here(m) != rank()) return;
      void* in =
          alone() && !reduces(c.call->kind) ? mine.whole_from(m) : nullptr;
      if (in)
        c.transfers[i].counted += bytes;
      else
        received_[at(i, m)] = in = staging_.take(bytes);
      receive(m, in, bytes);
    });
    for (size_t k = 0; k < group_.peers.size(); ++k) {
      const Group::Peer& peer = group_.peers[k];
      const int64_t bytes = mine.bytes_to(static_cast<int>(k));
      if (bytes == 0 || peer.sent_packed) continue;
      send(receiver(peer.members, rank()),
           mine.message_to(kHere, static_cast<int>(k),
                           [&](int64_t n) { return staging_.take(n); }),
           bytes);
    }
  }
  wait();
  for (Group::Peer& peer : group_.peers) {
    if (!peer.message.header.has_packed) continue;
    char* next = peer.message.payload;
    for (size_t i = 0; i < packed_.size(); ++i) {
      received_[at(i, peer.members[0])] = next;
      next += padded(packed_[i].bytes_from(peer.members[0]));
    }
  }
}

// Copies or reduces the pieces of all transfers.
void HostCommunicator::take_pieces(const Collective& c) {
  const Place here{device(), c.stream};
  std::vector<const void*> in(group_.peers.empty() ? 0 : group_.ranks.size());
  for (size_t i = 0; i < packed_.size(); ++i) {
    each_remote([&](int m) {
      in[index(m)] = member(receiver_here(m)).received_[at(i, m)];
    });
    const auto readable = [this, i](int m) -> const Transfer* {
      return is_local(m) ? &of(m).transfers[i] : nullptr;
    };
    c.transfers[i].counted += reduces(c.call->kind)
                                  ? packed_[i].reduce(here, in, readable)
                                  : packed_[i].exchange(here, in, readable);
  }
}

void HostCommunicator::do_move(const Collective& c) {
  if (size() == 1) prepare(c.transfers);
  in_two(
      c.stream, [&] { travel(c); }, [&] { take_pieces(c); });
}

// ---- Buffers ----

void HostCommunicator::do_all_reduce(const Collective& c) {
  if (small_)
    reduce_shown(c);
  else if (group_.peers.empty())
    reduce_here(c);
  else
    in_two(
        c.stream, [&] { send_chunks(c); },
        [&] {
          for (size_t i = 0; i < c.buffers.size(); ++i)
            collect_chunks(i, c.buffers[i]);
        });
  // With several processes, counts the bytes that the comment of all_reduce()
  // gives, not those of the messages.
  if (!group_.peers.empty())
    for (Buffer& b : c.buffers) b.counted = all_reduce_bytes(b);
}

// For short buffers: every member reduces the data that all members have shown.
void HostCommunicator::reduce_shown(const Collective& c) {
  int64_t offset = 0;
  for (Buffer& b : c.buffers) {
    from_.clear();
    for (int m = 0; m < size(); ++m) from_.push_back(shown(m) + offset);
    reduce(c.stream, b, b.data);
    offset += padded(bytes_of(b));
  }
}

// For members that are all in this process: each reduces its chunk of a buffer,
// and writes it to the results of all members. It reduces a one-shot buffer
// entirely, and only into its own result.
void HostCommunicator::reduce_here(const Collective& c) {
  // The results of one-shot buffers that have their input in `data`. Other
  // members read that input, so it is overwritten only after in_two().
  std::vector<Scratch> results;
  std::vector<Buffer*> to_copy;
  const Stream stream = c.stream;
  in_two(
      stream, [] {},
      [&] {
        for (size_t i = 0; i < c.buffers.size(); ++i) {
          Buffer& b = c.buffers[i];
          if (!b.one_shot) {
            push_chunk(stream, i, b);
            continue;
          }
          from_.clear();
          for (int m = 0; m < size(); ++m)
            from_.push_back(source(of(m).buffers[i], 0));
          if (b.from) {
            reduce(stream, b, b.data);
            continue;
          }
          results.emplace_back(device(), stream, bytes_of(b), "all-reduce");
          to_copy.push_back(&b);
          reduce(stream, b, results.back().data());
        }
      });
  for (size_t i = 0; i < results.size(); ++i) {
    const Buffer& b = *to_copy[i];
    const int64_t shape[] = {b.n};
    if (b.n > 0)
      device().copy(stream, size_of(b.dtype), shape, b.data, kUnit,
                    results[i].data(), kUnit);
  }
}

// Reduces a whole buffer into `to`. from_ has the address of each member's
// elements.
void HostCommunicator::reduce(Stream stream, Buffer& b, void* to) {
  const int64_t shape[] = {b.n};
  operands_.clear();
  for (const char* at : from_) operands_.push_back({at, kUnit});
  b.counted += (size() - 1) * device().reduce(stream, b.op, b.dtype, shape, to,
                                              kUnit, operands_, size());
}

// Reduces this member's chunk of buffer i. Writes it at once to the result of
// every member in this process, because reading data that a peer has just
// written takes far longer than overwriting the peer's cache line. The chunks
// of different members do not overlap, so no member waits for another in
// between. Each member adds to its own `counted` the bytes that it reads, and
// to the `counted` of each other member the bytes that it writes there.
void HostCommunicator::push_chunk(Stream stream, size_t i, Buffer& b) {
  const Interval mine = chunk(b, rank());
  from_.clear();
  to_.clear();
  for (int m = 0; m < size(); ++m)
    from_.push_back(is_local(m)
                        ? source(of(m).buffers[i], mine.lo)
                        : static_cast<const char*>(received_[at(i, m)]));
  // to_ has this member's result first, and the others in an order that differs
  // between members, so that members do not all write to one result.
  const size_t here = group_.members.size();
  const auto buffer = [&](size_t k) -> Buffer& {
    return group_.slot((place_ + k) % here, sequence_).buffers[i];
  };
  for (size_t k = 0; k < here; ++k) to_.push_back(element(buffer(k), mine.lo));
  const int64_t read = device().reduce_into_all(
      stream, b.op, b.dtype, mine.size(), to_, from_, size());
  for (size_t k = 0; k < here; ++k)
    std::atomic_ref(buffer(k).counted)
        .fetch_add(k == 0 ? (size() - 1) * read : read,
                   std::memory_order_relaxed);
}

// For members in several processes: sends every remote member (one in another
// process) its chunk of this member's input; reduces this member's chunk; and
// sends the result to every other process once. The results of remote members
// arrive in the same way.
void HostCommunicator::send_chunks(const Collective& c) {
  received_.assign(c.buffers.size() * group_.ranks.size(), nullptr);
  for (size_t i = 0; i < c.buffers.size(); ++i) {
    Buffer& b = c.buffers[i];
    each_remote([&](int m) {
      const int64_t own = chunk_bytes(b, rank());
      received_[at(i, m)] = staging_.take(own);
      receive(m, received_[at(i, m)], own);
      send(m, source(b, chunk(b, m).lo), chunk_bytes(b, m));
    });
  }
  wait();
  for (size_t i = 0; i < c.buffers.size(); ++i)
    push_chunk(c.stream, i, c.buffers[i]);
  for (Buffer& b : c.buffers) {
    each_remote([&](int m) {
      if (receiver_here(m) == rank())
        receive(m, element(b, chunk(b, m).lo), chunk_bytes(b, m));
    });
    for (const Group::Peer& p : group_.peers)
      send(receiver(p.members, rank()), element(b, chunk(b, rank()).lo),
           chunk_bytes(b, rank()));
  }
  wait();
}

// Copies the reduced chunks of remote members from the members of this process
// that have received them.
void HostCommunicator::collect_chunks(size_t i, Buffer& b) {
  each_remote([&](int m) {
    const int there = receiver_here(m);
    if (there == rank()) return;
    copy_bytes(element(b, chunk(b, m).lo),
               element(of(there).buffers[i], chunk(b, m).lo),
               chunk_bytes(b, m));
  });
}

void HostCommunicator::do_all_gather_bytes(const Collective& c) {
  const int64_t bytes = c.num_bytes;
  const auto part = [bytes](const Collective& of, int m) {
    return static_cast<char*>(of.out) + m * bytes;
  };
  if (small_) {
    for (int m = 0; m < size(); ++m) copy_bytes(part(c, m), shown(m), bytes);
    return;
  }
  const auto travel_all = [&] {
    each_remote([&](int m) {
      if (receiver_here(m) == rank()) receive(m, part(c, m), bytes);
    });
    for (const Group::Peer& p : group_.peers)
      send(receiver(p.members, rank()), c.bytes, bytes);
    wait();
  };
  in_two({}, travel_all, [&] {
    for (int m = 0; m < size(); ++m) {
      if (is_local(m))
        copy_bytes(part(c, m), of(m).collective->bytes, bytes);
      else if (const int there = receiver_here(m); there != rank())
        copy_bytes(part(c, m), part(*of(there).collective, m), bytes);
    }
  });
}

}  // namespace dtensor
