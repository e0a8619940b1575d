#include "dtensor/comm/packed_messages.h"

#include <algorithm>
#include <numeric>

namespace dtensor {
namespace {

Shape packed_strides(const Region& region) {
  return contiguous_strides(local_shape(region));
}

// For one peer per member.
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
  order_.clear();
  const auto clear = [](auto& lists, size_t size) {
    lists.resize(size);
    for (auto& list : lists) list.clear();
  };
  clear(to_, index(peers));
  clear(from_, s_->has.size());
  clear(at_, s_->has.size());
  for (const Piece& p : s_->serves)
    for (int m : p.members) {
      if (peer_of[index(m)] < 0) continue;
      Pieces& to = to_[index(peer_of[index(m)])];
      if (to.empty() || to.back() != &p) to.push_back(&p);
    }
  // The pieces of a receiver are the same ones as those of its sender, in the
  // same order.
  for (const Piece& p : s_->pieces) order_.push_back(&p);
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
  return work_.whole(size_of(t_->dtype), pieces[0]->region, in);
}

const void* PackedMessages::whole_to(int peer) const {
  return whole(to_[index(peer)], source());
}

void PackedMessages::pack(const Place& on, int peer, void* out) const {
  const int64_t item = size_of(t_->dtype);
  for (const Piece* p : to_[index(peer)]) {
    work_.copy(on, item, p->region, {out, nullptr, packed_strides(p->region)},
               source());
    out = advance(out, volume(p->region), item);
  }
}

void* PackedMessages::whole_from(int m) const {
  return whole(from_[index(m)], destination());
}

void PackedMessages::unpack(const Place& on, int m, const void* in) const {
  const Pieces& pieces = from_[index(m)];
  const int64_t item = size_of(t_->dtype);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Region& region = pieces[i]->region;
    work_.copy(
        on, item, region, destination(),
        {advance(in, at_[index(m)][i], item), nullptr, packed_strides(region)});
  }
}

void PackedMessages::copy_from(const Place& on, int m,
                               const Transfer& theirs) const {
  for (const Piece* p : from_[index(m)])
    work_.copy(on, size_of(t_->dtype), p->region, destination(),
               {theirs.src, &s_->has[index(m)], theirs.src_strides});
}

std::optional<PackedMessages::Even> PackedMessages::all_gather() const {
  const int p = static_cast<int>(to_.size()), self = s_->self;
  const int other = (self + 1) % p;
  const Pieces& sent = to_[index(other)];
  const Pieces& kept = from_[index(self)];
  // It sends all that it keeps.
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
  // One piece, held by all members.
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

void PackedMessages::reduce(const Place& on, std::span<const void* const> in,
                            const Readable& readable) const {
  next_.assign(from_.size(), 0);
  for (const Piece* p : order_) {
    const Shape packed = packed_strides(p->region);
    work_.sources().clear();
    for (int m : p->members) {
      const int64_t at = at_[index(m)][next_[index(m)]++];
      const Transfer* there = m == s_->self ? t_
                              : readable    ? readable(m)
                                            : nullptr;
      if (there)
        work_.sources().push_back(
            {there->src, &s_->has[index(m)], there->src_strides});
      else
        work_.sources().push_back(
            {advance(in[index(m)], at, size_of(t_->dtype)), nullptr, packed});
    }
    work_.reduce(on, t_->op, t_->dtype, p->region, destination(), s_->terms);
  }
}

}  // namespace dtensor
