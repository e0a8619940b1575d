#include "dtensor/comm/process_communicator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "dtensor/device/combine.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor {
namespace {

const Place kHere{cpu(), {}};

char* element(const Buffer& b, int64_t i) {
  return static_cast<char*>(b.data) + i * size_of(b.dtype);
}
uint64_t hash_of(const std::vector<int64_t>& ranks) {
  uint64_t h = ranks.size();
  for (int64_t r : ranks) h = hash_mix(h, static_cast<uint64_t>(r));
  return h;
}

}  // namespace

ProcessCommunicator::ProcessCommunicator(Membership& run, Group& group,
                                         int index)
    : HostCommunicator(index, static_cast<int>(group.ranks.size())),
      run_(run),
      group_(group),
      place_(group.place(index)),
      group_hash_(hash_of(group.ranks)),
      messages_(run.transport().pending_messages()) {
  std::map<int, int> peers;  // by process
  for (int m = 0; m < size(); ++m) {
    const int process = run.process_of(world(m));
    if (process == run.process()) {
      peer_of_.push_back(-1);
      continue;
    }
    const auto [it, fresh] = peers.emplace(process, std::ssize(peers_));
    if (fresh) peers_.push_back({.process = process, .members = {}});
    peers_[static_cast<size_t>(it->second)].members.push_back(m);
    peer_of_.push_back(it->second);
  }
  one_each_ = alone();
  for (const Peer& p : peers_) one_each_ = one_each_ && p.members.size() == 1;
}

// Throws the reason if the lane has failed.
void ProcessCommunicator::come(const Collective& c) {
  group_.come(place_, c.sequence);
  run_.check_failed(group_, place_);
}

void ProcessCommunicator::agree(const Collective& c) {
  come(c);
  DT_CHECK(device().kind() == Device::Kind::kCpu ||
               (c.transfers.empty() && c.buffers.empty()),
           name(c.call->kind),
           "processes send only data in CPU memory; write --device cpu, or use "
           "the backend nccl for GPUs");
  prepare(c);
  meet(c);
}

void ProcessCommunicator::meet(const Collective& c) {
  if (alone()) {
    if (const auto error = settle(c)) std::rethrow_exception(error);
    return;
  }
  mine().collective = &c;
  mine().packed = packed_;
  mine().received = &received_;
  mine().failed = false;
  run_.meet(group_, place_);
  if (place_ == 0) group_.verdict = settle(c);
  run_.meet_again(group_, place_);
  if (const auto error = group_.verdict) std::rethrow_exception(error);
}

void ProcessCommunicator::prepare(const Collective& c) {
  staging_.reset();
  const size_t count = c.transfers.size();
  if (kept_.size() < count) kept_.resize(count);
  packed_ = std::span(kept_).first(count);
  for (size_t i = 0; i < count; ++i)
    packed_[i].reset(c.transfers[i], peer_of_, static_cast<int>(peers_.size()));
  received_.assign(packed_.size() * group_.ranks.size(), nullptr);
}

// ---- Transfers ----

// Throws if another member here failed to receive data for this one.
void ProcessCommunicator::check_received() const {
  for (size_t k = 0; k < group_.members.size(); ++k)
    if (slot(k).failed) run_.released(group_, place_);
}

const void* ProcessCommunicator::received(size_t transfer, int m) {
  const size_t at = transfer * group_.ranks.size() + static_cast<size_t>(m);
  return alone() ? received_[at]
                 : (*of(receiver(group_.members, m)).received)[at];
}

void ProcessCommunicator::travel(std::span<Transfer> transfers, bool reduces) {
  const size_t members = group_.ranks.size();
  std::vector<const PackedMessages*> takers(group_.members.size());
  for (size_t i = 0; i < transfers.size(); ++i) {
    PackedMessages& mine_of = packed_[i];
    for (size_t k = 0; k < takers.size(); ++k)
      takers[k] = alone() ? &mine_of : &slot(k).packed[i];
    for (int m = 0; m < size(); ++m) {
      if (is_local(m)) continue;
      const Peer& peer =
          peers_[static_cast<size_t>(peer_of_[static_cast<size_t>(m)])];
      if (one_each_ && peer.header().has_payload) continue;
      const int64_t bytes =
          alone() ? mine_of.bytes_from(m) : mine_of.share(m, takers);
      if (bytes == 0 || receiver(group_.members, m) != rank()) continue;
      void* in = alone() && !reduces ? mine_of.whole_from(m) : nullptr;
      if (in)
        transfers[i].counted += bytes;
      else
        received_[i * members + static_cast<size_t>(m)] = in =
            staging_.take(bytes);
      messages_->receive(from(m), in, bytes);
    }
    for (size_t k = 0; k < peers_.size(); ++k) {
      const int64_t bytes = mine_of.bytes_to(static_cast<int>(k));
      if (bytes == 0 || (one_each_ && peers_[k].sent_payload)) continue;
      const void* out =
          mine_of.message_to(kHere, static_cast<int>(k),
                             [&](int64_t n) { return staging_.take(n); });
      messages_->send(to(receiver(peers_[k].members, rank())), out, bytes);
    }
  }
  wait();
  if (!one_each_) return;
  for (int m = 0; m < size(); ++m) {
    if (is_local(m)) continue;
    const Peer& peer =
        peers_[static_cast<size_t>(peer_of_[static_cast<size_t>(m)])];
    if (!peer.header().has_payload) continue;
    const char* next = peer.payload();
    for (size_t i = 0; i < transfers.size(); ++i) {
      if (packed_[i].bytes_from(m) == 0) continue;
      received_[i * members + static_cast<size_t>(m)] = next;
      next += padded(packed_[i].bytes_from(m));
    }
  }
}

// After travel(): the received messages of a transfer, by member, and the
// members whose memory is read instead.
std::vector<const void*> ProcessCommunicator::all_received(size_t transfer) {
  std::vector<const void*> in(group_.ranks.size());
  for (int m = 0; m < size(); ++m)
    if (!is_local(m)) in[static_cast<size_t>(m)] = received(transfer, m);
  return in;
}
PackedMessages::Readable ProcessCommunicator::readable(size_t transfer) {
  return [this, transfer](int m) -> const Transfer* {
    return is_local(m) ? &of(m).collective->transfers[transfer] : nullptr;
  };
}

void ProcessCommunicator::do_exchange(const Call& call, Stream,
                                      std::span<Transfer> transfers) {
  if (size() == 1) prepare({.call = &call, .transfers = transfers});
  in_two([&] { travel(transfers, false); },
         [&] {
           for (size_t i = 0; i < transfers.size(); ++i)
             transfers[i].counted +=
                 packed_[i].exchange(kHere, all_received(i), readable(i));
         });
}

void ProcessCommunicator::do_reduce(const Call& call, Stream,
                                    std::span<Transfer> transfers) {
  if (size() == 1) prepare({.call = &call, .transfers = transfers});
  in_two([&] { travel(transfers, true); },
         [&] {
           for (size_t i = 0; i < transfers.size(); ++i)
             transfers[i].counted +=
                 packed_[i].reduce(kHere, all_received(i), readable(i));
         });
}

// ---- Buffers ----

void ProcessCommunicator::do_all_reduce(const Call&, Stream,
                                        std::span<Buffer> buffers) {
  for (Buffer& b : buffers) b.counted = all_reduce_bytes(b);
  // All buffers are one payload: if one peer was sent a payload, every peer
  // was.
  if (one_each_ && !peers_.empty() && peers_[0].sent_payload)
    return reduce_payloads(buffers);
  received_.assign(buffers.size() * group_.ranks.size(), nullptr);
  const auto reduce = [&] {
    for (size_t i = 0; i < buffers.size(); ++i) reduce_chunk(i, buffers[i]);
    wait();
    for (size_t i = 0; i < buffers.size(); ++i) {
      Buffer& b = buffers[i];
      const Interval own = chunk(b.n, rank(), size());
      if (own.size() == 0) continue;
      const int64_t shape[] = {own.size()}, unit[] = {1};
      std::vector<Operand> operands;
      for (int m = 0; m < size(); ++m) {
        const void* at =
            received_[i * group_.ranks.size() + static_cast<size_t>(m)];
        if (m == rank())
          at = source(b, own.lo);
        else if (is_local(m))
          at = source(of(m).collective->buffers[i], own.lo);
        operands.push_back({at, unit});
      }
      reduce_strided(b.op, b.dtype, shape, element(b, own.lo), unit, operands,
                     size());
    }
    for (Buffer& b : buffers) spread_chunk(b);
    wait();
  };
  in_two(reduce, [&] {
    for (size_t i = 0; i < buffers.size(); ++i) collect_chunks(i, buffers[i]);
  });
}

void ProcessCommunicator::reduce_payloads(std::span<Buffer> buffers) {
  int64_t offset = 0;
  const int64_t unit[] = {1};
  std::vector<Operand> operands(group_.ranks.size());
  for (Buffer& b : buffers) {
    for (int m = 0; m < size(); ++m) {
      const int peer = peer_of_[static_cast<size_t>(m)];
      operands[static_cast<size_t>(m)] = {
          peer < 0 ? source(b, 0)
                   : peers_[static_cast<size_t>(peer)].payload() + offset,
          unit};
    }
    const int64_t shape[] = {b.n};
    if (b.n > 0)
      reduce_strided(b.op, b.dtype, shape, b.data, unit, operands, size());
    offset += padded(bytes_of(b));
  }
}

// Sends every other member its chunk, and receives this member's chunk from
// them.
void ProcessCommunicator::reduce_chunk(size_t i, Buffer& b) {
  const int64_t own = chunk(b.n, rank(), size()).size() * size_of(b.dtype);
  for (int k = 1; k < size(); ++k) {
    const int m = (rank() + k) % size();
    if (is_local(m)) continue;
    const Interval theirs = chunk(b.n, m, size());
    if (own > 0) {
      void* in = staging_.take(own);
      received_[i * group_.ranks.size() + static_cast<size_t>(m)] = in;
      messages_->receive(from(m), in, own);
    }
    if (theirs.size() > 0)
      messages_->send(to(m), source(b, theirs.lo),
                      theirs.size() * size_of(b.dtype));
  }
}

// The reduced chunk goes to every process once; the chunks of other members
// arrive likewise.
void ProcessCommunicator::spread_chunk(Buffer& b) {
  const Interval own = chunk(b.n, rank(), size());
  for (int k = 1; k < size(); ++k) {
    const int m = (rank() + k) % size();
    const Interval theirs = chunk(b.n, m, size());
    if (is_local(m) || theirs.size() == 0 ||
        receiver(group_.members, m) != rank())
      continue;
    messages_->receive(from(m), element(b, theirs.lo),
                       theirs.size() * size_of(b.dtype));
  }
  if (own.size() == 0) return;
  for (const Peer& p : peers_)
    messages_->send(to(receiver(p.members, rank())), element(b, own.lo),
                    own.size() * size_of(b.dtype));
}

// Copies from the members here the chunks that they have reduced or received.
void ProcessCommunicator::collect_chunks(size_t i, Buffer& b) {
  for (int k = 1; k < size(); ++k) {
    const int m = (rank() + k) % size();
    const int there = is_local(m) ? m : receiver(group_.members, m);
    const Interval theirs = chunk(b.n, m, size());
    if (there == rank() || theirs.size() == 0) continue;
    copy_bytes(element(b, theirs.lo),
               element(of(there).collective->buffers[i], theirs.lo),
               theirs.size() * size_of(b.dtype));
  }
}

void ProcessCommunicator::do_all_gather_bytes(const Call&, const void* in,
                                              int64_t bytes, void* out) {
  if (bytes == 0) return;
  char* to_out = static_cast<char*>(out);
  copy_bytes(to_out + rank() * bytes, in, bytes);
  if (one_each_ && peers_[0].sent_payload) {
    for (const Peer& p : peers_)
      copy_bytes(to_out + p.members[0] * bytes, p.payload(), bytes);
    return;
  }
  mine().out = out;
  const auto receive = [&] {
    for (int m = 0; m < size(); ++m)
      if (!is_local(m) && receiver(group_.members, m) == rank())
        messages_->receive(from(m), to_out + m * bytes, bytes);
    for (const Peer& p : peers_)
      messages_->send(to(receiver(p.members, rank())), in, bytes);
    wait();
  };
  in_two(receive, [&] {
    for (int m = 0; m < size(); ++m) {
      const int there = is_local(m) ? m : receiver(group_.members, m);
      if (there != rank())
        copy_bytes(to_out + m * bytes,
                   static_cast<const char*>(of(there).out) + m * bytes, bytes);
    }
  });
}

}  // namespace dtensor
