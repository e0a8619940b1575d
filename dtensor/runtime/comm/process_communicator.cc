#include "dtensor/runtime/comm/process_communicator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"
#include "dtensor/runtime/comm/pull.h"
#include "dtensor/runtime/device/copy.h"

namespace dtensor {
namespace {

const Parcels::Place kHere{cpu(), {}};

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}
// Parcels in a payload begin aligned.
int64_t padded(int64_t bytes) { return (bytes + 15) / 16 * 16; }
int64_t bytes_of(const Buffer& b) { return b.n * size_of(b.dtype); }
char* element(const Buffer& b, int64_t i) {
  return static_cast<char*>(b.data) + i * size_of(b.dtype);
}
// Before it is reduced.
const char* source(const Buffer& b, int64_t i) {
  return static_cast<const char*>(b.from ? b.from : b.data) +
         i * size_of(b.dtype);
}

uint64_t hash_of(const std::vector<int64_t>& ranks) {
  uint64_t h = ranks.size();
  for (int64_t r : ranks) h = hash_mix(h, static_cast<uint64_t>(r));
  return h;
}

// What a process says of its members' calls when they differ.
struct Said {
  uint64_t print;
  Statement statement;
};
std::string pack(const std::vector<Said>& all) {
  std::string text;
  const auto put = [&](const auto& x) {
    text.append(reinterpret_cast<const char*>(&x), sizeof(x));
  };
  for (const Said& s : all) {
    put(s.print);
    put(s.statement.kind);
    put(s.statement.fingerprint);
    put(s.statement.text.size());
    text += s.statement.text;
  }
  return text;
}
std::vector<Said> unpack(std::string_view text, size_t members) {
  std::vector<Said> all(members);
  const auto get = [&](auto& x) {
    DT_CHECK(text.size() >= sizeof(x), "communicator",
             "what another process says of its call is cut short");
    std::memcpy(&x, text.data(), sizeof(x));
    text.remove_prefix(sizeof(x));
  };
  for (Said& s : all) {
    size_t size = 0;
    get(s.print);
    get(s.statement.kind);
    get(s.statement.fingerprint);
    get(size);
    s.statement.text = text.substr(0, size);
    text.remove_prefix(std::min(size, text.size()));
  }
  return all;
}

}  // namespace

ProcessCommunicator::ProcessCommunicator(ProcessRun& run,
                                         std::vector<int64_t> ranks, int index,
                                         int lane)
    : Communicator(index, static_cast<int>(ranks.size())),
      run_(run),
      ranks_(std::move(ranks)),
      lane_(lane),
      local_(run.local(ranks_, lane)),
      group_hash_(hash_of(ranks_)),
      transit_(run.wire().transit()) {
  std::map<int, int> peers;  // by process
  for (int m = 0; m < size(); ++m) {
    const int process = run.process_of(world(m));
    if (process == run.wire().process()) {
      peer_of_.push_back(-1);
      continue;
    }
    const auto [it, fresh] = peers.emplace(process, std::ssize(peers_));
    if (fresh) peers_.push_back({.process = process, .members = {}});
    peers_[static_cast<size_t>(it->second)].members.push_back(m);
    peer_of_.push_back(it->second);
  }
  seat_ = static_cast<size_t>(
      std::find(local_.members.begin(), local_.members.end(), index) -
      local_.members.begin());
  one_each_ = alone();
  for (const Peer& p : peers_) one_each_ = one_each_ && p.members.size() == 1;
}

LocalGroup::Seat& ProcessCommunicator::seat(int m) {
  const auto it =
      std::lower_bound(local_.members.begin(), local_.members.end(), m);
  return local_.seats[static_cast<size_t>(it - local_.members.begin())];
}

void ProcessCommunicator::agree(const Collective& c) {
  run_.enter(world(rank()), lane_, local_, c);
  DT_CHECK(device().kind() == Device::Kind::kCpu ||
               (c.transfers.empty() && c.buffers.empty()),
           name(c.call->kind),
           "processes send each other what is in the memory of the CPU; write "
           "--device cpu, or --backend nccl for GPUs");
  prepare(c);
  if (alone()) {
    if (const auto error = settle(c)) std::rethrow_exception(error);
    return;
  }
  mine().collective = &c;
  mine().parcels = &parcels_;
  mine().received = &received_;
  mine().failed = false;
  if (!run_.meet(local_, world(rank()), lane_))
    run_.released(world(rank()), lane_);
  if (seat_ == 0) local_.verdict = settle(c);
  run_.meet_again(local_, world(rank()), lane_);
  if (const auto error = local_.verdict) std::rethrow_exception(error);
}

void ProcessCommunicator::prepare(const Collective& c) {
  staging_.reset();
  parcels_.clear();
  for (const Transfer& t : c.transfers)
    parcels_.emplace_back(t, peer_of_, static_cast<int>(peers_.size()));
  received_.assign(parcels_.size() * ranks_.size(), nullptr);
  in_place_.assign(received_.size(), false);
}

// ---- The agreement ----

// Few bytes, or -1: they are sent by themselves.
int64_t ProcessCommunicator::payload_for(const Collective& c,
                                         size_t peer) const {
  if (!one_each_) return -1;
  int64_t bytes = 0;
  if (c.num_bytes > 0) bytes += padded(c.num_bytes);
  for (const Buffer& b : c.buffers) bytes += padded(bytes_of(b));
  for (const Parcels& p : parcels_)
    bytes += padded(p.bytes_to(static_cast<int>(peer)));
  return bytes <= kPayload ? bytes : -1;
}

void ProcessCommunicator::put_payload(const Collective& c, size_t peer,
                                      char* to) const {
  if (c.num_bytes > 0) copy_bytes(to, c.bytes, c.num_bytes);
  for (const Buffer& b : c.buffers) {
    copy_bytes(to, source(b, 0), bytes_of(b));
    to += padded(bytes_of(b));
  }
  for (const Parcels& p : parcels_) {
    p.pack(kHere, static_cast<int>(peer), to);
    to += padded(p.bytes_to(static_cast<int>(peer)));
  }
}

// As the first member of this process, for all of them. Nobody waits for what
// it throws.
std::exception_ptr ProcessCommunicator::settle(const Collective& c) noexcept {
  try {
    exchange_headers(c);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

void ProcessCommunicator::exchange_headers(const Collective& c) {
  bool agreed = true;
  for (const LocalGroup::Seat& s : local_.seats)
    agreed = agreed && (alone() || s.collective->fingerprint == c.fingerprint);
  const uint64_t print = hash_mix(c.fingerprint, group_hash_);
  constexpr int64_t kMost = sizeof(Header) + kPayload;
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& p = peers_[i];
    const int first = p.members[0];
    const int64_t payload = payload_for(c, i);
    p.sent_payload = payload >= 0;
    const int64_t bytes =
        static_cast<int64_t>(sizeof(Header)) + std::max<int64_t>(payload, 0);
    char* out = static_cast<char*>(staging_.take(bytes));
    new (out)
        Header{print, agreed, std::max<int64_t>(payload, 0), p.sent_payload};
    if (payload > 0) put_payload(c, i, out + sizeof(Header));
    p.message = static_cast<char*>(staging_.take(kMost));
    transit_->receive(from(first), p.message, kMost);
    transit_->send(to(first), out, bytes);
  }
  wait();
  for (const Peer& p : peers_)
    agreed = agreed && p.header().agreed && p.header().print == print;
  if (!agreed) differ(c);
}

// Members whose processes do not agree tell each other what they call.
void ProcessCommunicator::differ(const Collective& c) {
  const uint64_t print = hash_mix(c.fingerprint, group_hash_);
  std::vector<Said> said(ranks_.size(), {c.fingerprint, statement_of(c)});
  std::vector<Said> here;
  bool agreed = true;
  for (int m : local_.members) {
    const Collective& theirs = alone() ? c : *seat(m).collective;
    here.push_back({theirs.fingerprint, statement_of(theirs)});
    said[static_cast<size_t>(m)] = here.back();
    agreed = agreed && theirs.fingerprint == c.fingerprint;
  }
  for (Said& s : here)
    s.statement.text += fmt::format(" of ranks {}", ranks_to_string(ranks_));
  const std::string out = pack(here);
  std::vector<size_t> odd;
  for (size_t i = 0; i < peers_.size(); ++i)
    if (!agreed || !peers_[i].header().agreed ||
        peers_[i].header().print != print)
      odd.push_back(i);
  const int64_t size = std::ssize(out);
  std::vector<int64_t> sizes(odd.size());
  for (size_t i = 0; i < odd.size(); ++i) {
    transit_->receive(from(peers_[odd[i]].members[0]), &sizes[i], sizeof(size));
    transit_->send(to(peers_[odd[i]].members[0]), &size, sizeof(size));
  }
  wait();
  std::vector<std::string> texts(odd.size());
  for (size_t i = 0; i < odd.size(); ++i) {
    texts[i].resize(static_cast<size_t>(sizes[i]));
    transit_->receive(from(peers_[odd[i]].members[0]), texts[i].data(),
                      sizes[i]);
    transit_->send(to(peers_[odd[i]].members[0]), out.data(), size);
  }
  wait();
  const std::string same_group =
      fmt::format(" of ranks {}", ranks_to_string(ranks_));
  for (size_t i = 0; i < odd.size(); ++i) {
    const std::vector<int>& members = peers_[odd[i]].members;
    const std::vector<Said> theirs = unpack(texts[i], members.size());
    for (size_t k = 0; k < members.size(); ++k) {
      Said& s = said[static_cast<size_t>(members[k])];
      s = theirs[k];
      std::string& text = s.statement.text;
      if (text.ends_with(same_group))
        text.resize(text.size() - same_group.size());
      else
        s.print = ~c.fingerprint;  // of another group
    }
  }
  for (size_t m = 1; m < said.size(); ++m)
    if (said[m].print != said[0].print)
      disagree(ranks_, c.sequence, m, std::move(said[0].statement),
               std::move(said[m].statement));
  fail(name(c.call->kind),
       "the ranks {} disagree about a collective of other ranks",
       ranks_to_string(ranks_));
}

// ---- Transfers ----

void ProcessCommunicator::in_two(const std::function<void()>& first,
                                 const std::function<void()>& second) {
  std::exception_ptr error;
  try {
    first();
  } catch (...) {
    error = std::current_exception();
    mine().failed = true;
  }
  if (!alone()) run_.meet_again(local_, world(rank()), lane_);
  if (!error) try {
      check_received();
      second();
    } catch (...) {
      error = std::current_exception();
    }
  if (!alone()) run_.meet_again(local_, world(rank()), lane_);
  if (error) std::rethrow_exception(error);
}

// What another one here was to receive for this one.
void ProcessCommunicator::check_received() const {
  for (const LocalGroup::Seat& s : local_.seats)
    if (s.failed) run_.released(world(rank()), lane_);
}

const void* ProcessCommunicator::received(size_t transfer, int m) {
  const size_t at = transfer * ranks_.size() + static_cast<size_t>(m);
  return alone() ? received_[at]
                 : (*seat(receiver(local_.members, m)).received)[at];
}

void ProcessCommunicator::travel(std::span<Transfer> transfers, bool reduces) {
  const size_t members = ranks_.size();
  std::vector<const Parcels*> takers(local_.members.size());
  for (size_t i = 0; i < transfers.size(); ++i) {
    Parcels& mine_of = parcels_[i];
    for (size_t k = 0; k < takers.size(); ++k)
      takers[k] = alone() ? &mine_of : &(*local_.seats[k].parcels)[i];
    for (int m = 0; m < size(); ++m) {
      if (m == rank()) continue;
      transfers[i].counted += mine_of.bytes_from(m);
      if (is_local(m)) continue;
      const Peer& peer =
          peers_[static_cast<size_t>(peer_of_[static_cast<size_t>(m)])];
      const size_t at = i * members + static_cast<size_t>(m);
      if (one_each_ && peer.header().has_payload) continue;
      const int64_t bytes =
          alone() ? mine_of.bytes_from(m) : mine_of.share(m, takers);
      if (bytes == 0 || receiver(local_.members, m) != rank()) continue;
      void* in = alone() && !reduces ? mine_of.whole_from(m) : nullptr;
      in_place_[at] = in != nullptr;
      if (!in) in = staging_.take(bytes);
      received_[at] = in;
      transit_->receive(from(m), in, bytes);
    }
    int last = -1;  // the last that was packed, and where
    const void* packed = nullptr;
    for (size_t k = 0; k < peers_.size(); ++k) {
      const int to_peer = static_cast<int>(k);
      const int64_t bytes = mine_of.bytes_to(to_peer);
      if (bytes == 0 || (one_each_ && peers_[k].sent_payload)) continue;
      const void* out = mine_of.whole_to(to_peer);
      if (!out && last >= 0 && mine_of.same(to_peer, last)) out = packed;
      if (!out) {
        void* memory = staging_.take(bytes);
        mine_of.pack(kHere, to_peer, memory);
        out = packed = memory;
        last = to_peer;
      }
      transit_->send(to(receiver(peers_[k].members, rank())), out, bytes);
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
      if (parcels_[i].bytes_from(m) == 0) continue;
      received_[i * members + static_cast<size_t>(m)] = next;
      next += padded(parcels_[i].bytes_from(m));
    }
  }
}

void ProcessCommunicator::do_exchange(const Call& call, Stream,
                                      std::span<Transfer> transfers) {
  if (size() == 1) prepare({.call = &call, .transfers = transfers});
  in_two([&] { travel(transfers, false); },
         [&] {
           for (size_t i = 0; i < transfers.size(); ++i) {
             const Parcels& p = parcels_[i];
             p.copy_own(kHere);
             for (int m = 0; m < size(); ++m) {
               if (m == rank() || p.bytes_from(m) == 0) continue;
               if (is_local(m))
                 p.copy_from(kHere, m, seat(m).collective->transfers[i]);
               else if (!in_place_[i * ranks_.size() + static_cast<size_t>(m)])
                 p.unpack(kHere, m, received(i, m));
             }
           }
         });
}

void ProcessCommunicator::do_reduce(const Call& call, Stream,
                                    std::span<Transfer> transfers) {
  if (size() == 1) prepare({.call = &call, .transfers = transfers});
  in_two([&] { travel(transfers, true); },
         [&] {
           std::vector<const void*> in(ranks_.size());
           for (size_t i = 0; i < transfers.size(); ++i) {
             for (int m = 0; m < size(); ++m)
               in[static_cast<size_t>(m)] =
                   is_local(m) ? nullptr : received(i, m);
             parcels_[i].reduce(kHere, in, [&](int m) -> const Transfer* {
               return is_local(m) ? &seat(m).collective->transfers[i] : nullptr;
             });
           }
         });
}

// ---- Buffers ----

void ProcessCommunicator::do_all_reduce(const Call&, Stream,
                                        std::span<Buffer> buffers) {
  const int64_t others = size() - 1;
  for (Buffer& b : buffers) {
    const int64_t own =
        b.one_shot ? b.n : Pull::chunk(b.n, rank(), size()).size();
    b.counted = (others * own + b.n - own) * size_of(b.dtype);
  }
  // (All buffers are one payload: if one peer has sent its, all have.)
  if (one_each_ && !peers_.empty() && peers_[0].sent_payload)
    return reduce_payloads(buffers);
  received_.assign(buffers.size() * ranks_.size(), nullptr);
  const auto reduce = [&] {
    for (size_t i = 0; i < buffers.size(); ++i) reduce_chunk(i, buffers[i]);
    wait();
    for (size_t i = 0; i < buffers.size(); ++i) {
      Buffer& b = buffers[i];
      const Interval own = Pull::chunk(b.n, rank(), size());
      if (own.size() == 0) continue;
      const int64_t shape[] = {own.size()}, unit[] = {1};
      std::vector<Operand> operands;
      for (int m = 0; m < size(); ++m) {
        const void* at = received_[i * ranks_.size() + static_cast<size_t>(m)];
        if (m == rank())
          at = source(b, own.lo);
        else if (is_local(m))
          at = source(seat(m).collective->buffers[i], own.lo);
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
  std::vector<Operand> operands(ranks_.size());
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

// Each member gets its part of the others', who send it.
void ProcessCommunicator::reduce_chunk(size_t i, Buffer& b) {
  const int64_t own =
      Pull::chunk(b.n, rank(), size()).size() * size_of(b.dtype);
  for (int k = 1; k < size(); ++k) {
    const int m = (rank() + k) % size();
    if (is_local(m)) continue;
    const Interval theirs = Pull::chunk(b.n, m, size());
    if (own > 0) {
      void* in = staging_.take(own);
      received_[i * ranks_.size() + static_cast<size_t>(m)] = in;
      transit_->receive(from(m), in, own);
    }
    if (theirs.size() > 0)
      transit_->send(to(m), source(b, theirs.lo),
                     theirs.size() * size_of(b.dtype));
  }
}

// What is reduced goes to every process once, and comes from every other
// member.
void ProcessCommunicator::spread_chunk(Buffer& b) {
  const Interval own = Pull::chunk(b.n, rank(), size());
  for (int k = 1; k < size(); ++k) {
    const int m = (rank() + k) % size();
    const Interval theirs = Pull::chunk(b.n, m, size());
    if (is_local(m) || theirs.size() == 0 ||
        receiver(local_.members, m) != rank())
      continue;
    transit_->receive(from(m), element(b, theirs.lo),
                      theirs.size() * size_of(b.dtype));
  }
  if (own.size() == 0) return;
  for (const Peer& p : peers_)
    transit_->send(to(receiver(p.members, rank())), element(b, own.lo),
                   own.size() * size_of(b.dtype));
}

// From the members here: what they have reduced, and received.
void ProcessCommunicator::collect_chunks(size_t i, Buffer& b) {
  for (int k = 1; k < size(); ++k) {
    const int m = (rank() + k) % size();
    const int there = is_local(m) ? m : receiver(local_.members, m);
    const Interval theirs = Pull::chunk(b.n, m, size());
    if (there == rank() || theirs.size() == 0) continue;
    copy_bytes(element(b, theirs.lo),
               element(seat(there).collective->buffers[i], theirs.lo),
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
      if (!is_local(m) && receiver(local_.members, m) == rank())
        transit_->receive(from(m), to_out + m * bytes, bytes);
    for (const Peer& p : peers_)
      transit_->send(to(receiver(p.members, rank())), in, bytes);
    wait();
  };
  in_two(receive, [&] {
    for (int m = 0; m < size(); ++m) {
      const int there = is_local(m) ? m : receiver(local_.members, m);
      if (there != rank())
        copy_bytes(to_out + m * bytes,
                   static_cast<const char*>(seat(there).out) + m * bytes,
                   bytes);
    }
  });
}

}  // namespace dtensor
