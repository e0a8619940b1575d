// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/packed_messages.h"

#include <algorithm>
#include <numeric>

namespace dtensor {
namespace {

Shape packed_strides(const Region& region) {
  return contiguous_strides(local_shape(region));
}

// Returns a `peer_of` in which each member is a peer of its own.
std::vector<int> each_alone(size_t members) {
  std::vector<int> peers(members);
  std::iota(peers.begin(), peers.end(), 0);
  return peers;
}

}  // namespace

void PackedMessages::reset(const Transfer& t) {
  const size_t members = t.schedule->has.size();
  reset(t, each_alone(members), static_cast<int>(members));
}

void PackedMessages::reset(const Transfer& t, std::span<const int> peer_of,
                           int peers) {
  t_ = &t;
  s_ = t.schedule;
  packed_for_ = -1;
  order_.clear();
  for (const Piece& p : s_->pieces) order_.push_back(&p);
  if (peers == 0) return;
  const auto clear = [](auto& lists, size_t size) {
    lists.resize(size);
    for (auto& list : lists) list.clear();
  };
  // A process with several members of the group is one peer. It gets a piece
  // once, however many of its members take it.
  clear(to_, index(peers));
  clear(from_, s_->has.size());
  clear(at_, s_->has.size());
  for (const Piece& p : s_->serves)
    for (int m : p.members) {
      if (peer_of[index(m)] < 0) continue;
      Pieces& to = to_[index(peer_of[index(m)])];
      if (to.empty() || to.back() != &p) to.push_back(&p);
    }
  // The pieces that a receiver takes from a sender are in the sender's
  // `serves`, which is sorted in this order, too (schedule.h).
  std::sort(order_.begin(), order_.end(), [](const Piece* a, const Piece* b) {
    return comes_first(a->region, b->region);
  });
  for (const Piece* p : order_)
    for (int m : p->members) from_[index(m)].push_back(p);
  for (size_t m = 0; m < from_.size(); ++m) {
    int64_t at = 0;
    for (const Piece* p : from_[m]) {
      at_[m].push_back(at);
      at += volume(p->region);
    }
  }
}

// The message of member m to this process has each region once, in the order of
// comes_first(). So the list of all takers' pieces, in that order, shows where
// the pieces of one taker lie in the message.
int64_t PackedMessages::share(int m,
                              std::span<const PackedMessages* const> takers) {
  Pieces all;
  for (const PackedMessages* taker : takers) {
    const Pieces& theirs = taker->from_[index(m)];
    all.insert(all.end(), theirs.begin(), theirs.end());
  }
  std::stable_sort(all.begin(), all.end(), [](const Piece* a, const Piece* b) {
    return comes_first(a->region, b->region);
  });
  const Pieces& mine = from_[index(m)];
  int64_t at = 0, next = 0;
  for (size_t i = 0, k = 0; i < all.size(); ++i) {
    if (i == 0 || all[i]->region != all[i - 1]->region) {
      at = next;
      next += volume(all[i]->region);
    }
    if (k < mine.size() && all[i] == mine[k]) at_[index(m)][k++] = at;
  }
  return next * size_of(t_->dtype);
}

int64_t PackedMessages::bytes(const Pieces& pieces) const {
  int64_t n = 0;
  for (const Piece* p : pieces) n += volume(p->region);
  return n * size_of(t_->dtype);
}

void* PackedMessages::whole(const Pieces& pieces, const HeldArray& in) const {
  if (pieces.size() != 1) return nullptr;
  const auto is_packed = [](Sizes shape, Sizes strides) {
    int64_t next = 1;
    for (size_t d = shape.size(); d-- > 0; next *= shape[d])
      if (shape[d] != 1 && strides[d] != next) return false;
    return true;
  };
  boxes_.reset(pieces[0]->region, {&in, 1});
  void* at = nullptr;
  int count = 0;
  boxes_.each([&](Sizes shape) {
    if (count++ == 0 && is_packed(shape, boxes_.strides(0)))
      at = boxes_.address(0, size_of(t_->dtype));
  });
  return count == 1 ? at : nullptr;
}

const void* PackedMessages::whole_to(int peer) const {
  return whole(to_[index(peer)], source());
}

const void* PackedMessages::message_to(const Place& on, int peer,
                                       const Take& take) {
  if (const void* at = whole_to(peer)) return at;
  if (packed_for_ >= 0 && same(peer, packed_for_)) return packed_;
  void* out = take(bytes_to(peer));
  packed_for_ = peer;
  packed_ = out;
  for (const Piece* p : to_[index(peer)]) {
    copy(on, p->region, {out, nullptr, packed_strides(p->region)}, source());
    out = advance(out, volume(p->region), size_of(t_->dtype));
  }
  return packed_;
}

void* PackedMessages::whole_from(int m) const {
  return whole(from_[index(m)], destination());
}

// all_gather() and reduce_scatter() detect schedules that a library such as
// NCCL can run as one collective: the pieces of all members have one size and
// lie in memory one after another, in the order of the members. Such a
// collective needs no packing, and it is faster than a message between every
// two members.
std::optional<PackedMessages::Even> PackedMessages::all_gather() const {
  const int p = static_cast<int>(to_.size()), self = s_->self;
  const int other = (self + 1) % p;
  const Pieces& sent = to_[index(other)];
  const Pieces& kept = from_[index(self)];
  // This member must send exactly the piece that it keeps itself.
  if (p == 1 || sent.size() != 1 || kept.size() != 1 ||
      sent[0]->region != kept[0]->region)
    return {};
  const int64_t n = bytes(sent);
  const void* in = whole_to(other);
  char* first = static_cast<char*>(whole_from(0));
  if (!in || !first) return {};
  for (int m = 0; m < p; ++m) {
    if (bytes_from(m) != n || whole_from(m) != first + m * n) return {};
    if (m != self && !same(m, other)) return {};
  }
  return Even{in, first, n};
}

std::optional<PackedMessages::Even> PackedMessages::reduce_scatter() const {
  const int p = static_cast<int>(to_.size()), self = s_->self;
  if (p == 1 || order_.size() != 1 ||
      (t_->op == ReduceOp::kAvg && s_->terms != p))
    return {};
  // All members must hold the one piece that this member wants.
  for (const Pieces& from : from_)
    if (from != order_) return {};
  const int64_t n = bytes(order_);
  const auto at = [&](int m) -> const char* {
    const Pieces& taken = m == self ? order_ : to_[index(m)];
    if (bytes(taken) != n) return nullptr;
    return static_cast<const char*>(whole(taken, source()));
  };
  const char* first = at(0);
  void* out = whole(order_, destination());
  if (!first || !out) return {};
  for (int m = 1; m < p; ++m)
    if (at(m) != first + m * n) return {};
  return Even{first, out, n};
}

// Returns where member m's elements of the piece lie. next_ counts the pieces
// taken from each message, so call this for the pieces in the order of order_.
HeldArray PackedMessages::array(const Piece& p, int m,
                                std::span<const void* const> in,
                                const Readable& readable) {
  if (const Transfer* there = m == s_->self ? t_
                              : readable    ? readable(m)
                                            : nullptr)
    return {there->src, &s_->has[index(m)], there->src_strides};
  const int64_t at = at_[index(m)][next_[index(m)]++];
  const void* message = in[index(m)];
  strides_ = packed_strides(p.region);
  return {message ? advance(message, at, size_of(t_->dtype)) : nullptr, nullptr,
          strides_};
}

int64_t PackedMessages::copy(const Place& on, const Region& piece,
                             const HeldArray& to, const HeldArray& from) {
  const HeldArray arrays[] = {to, from};
  const int64_t item = size_of(t_->dtype);
  int64_t copied = 0;
  boxes_.reset(piece, arrays);
  boxes_.each([&](Sizes shape) {
    copied += on.device.copy(on.stream, item, shape, boxes_.address(0, item),
                             boxes_.strides(0), boxes_.address(1, item),
                             boxes_.strides(1));
  });
  return copied;
}

int64_t PackedMessages::exchange(const Place& on,
                                 std::span<const void* const> in,
                                 const Readable& readable) {
  int64_t read = 0;
  next_.assign(from_.size(), 0);
  for (const Piece* p : order_) {
    const int m = p->members[0];
    const HeldArray from = array(*p, m, in, readable);
    if (!from.data) continue;
    const int64_t copied = copy(on, p->region, destination(), from);
    if (m != s_->self) read += copied;
  }
  return read;
}

int64_t PackedMessages::reduce(const Place& on, std::span<const void* const> in,
                               const Readable& readable) {
  const int64_t item = size_of(t_->dtype);
  int64_t read = 0;
  next_.assign(from_.size(), 0);
  for (const Piece* p : order_) {
    arrays_.assign(1, destination());
    for (int m : p->members) arrays_.push_back(array(*p, m, in, readable));
    boxes_.reset(p->region, arrays_);
    operands_.resize(p->members.size());
    int64_t each = 0;
    boxes_.each([&](Sizes shape) {
      for (size_t j = 0; j < operands_.size(); ++j)
        operands_[j] = {boxes_.address(1 + j, item), boxes_.strides(1 + j)};
      each += on.device.reduce(on.stream, t_->op, t_->dtype, shape,
                               boxes_.address(0, item), boxes_.strides(0),
                               operands_, s_->terms);
    });
    for (int m : p->members)
      if (m != s_->self) read += each;
  }
  return read;
}

}  // namespace dtensor
