#include "dtensor/runtime/comm/parcels.h"

#include <algorithm>
#include <numeric>

#include "dtensor/runtime/comm/pieces.h"

namespace dtensor {
namespace {

Shape packed_strides(const Region& region) {
  return contiguous_strides(local_shape(region));
}

char* advance(const void* data, int64_t elements, int64_t item) {
  return static_cast<char*>(const_cast<void*>(data)) + elements * item;
}

bool is_packed(Sizes shape, Sizes strides) {
  int64_t next = 1;
  for (size_t d = shape.size(); d-- > 0; next *= shape[d])
    if (shape[d] != 1 && strides[d] != next) return false;
  return true;
}

// Some indices of one memory.
struct At {
  const void* data;
  const HeldRegion& held;
  const Shape& strides;
};

void copy(const Parcels::Place& on, DType dtype, const Region& which,
          const At& to, const At& from) {
  const HeldRegion* arrays[] = {&to.held, &from.held};
  const Sizes strides[] = {to.strides, from.strides};
  const int64_t item = size_of(dtype);
  Boxes boxes(which, arrays, strides);
  boxes.each([&](Sizes shape) {
    on.device.copy(on.stream, item, shape,
                   advance(to.data, boxes.offset(0), item), boxes.strides(0),
                   advance(from.data, boxes.offset(1), item), boxes.strides(1));
  });
}

// Each member is its own peer.
std::vector<int> each_alone(size_t members) {
  std::vector<int> peers(members);
  std::iota(peers.begin(), peers.end(), 0);
  return peers;
}

}  // namespace

Parcels::Parcels(const Transfer& t)
    : Parcels(t, each_alone(t.schedule->has.size()),
              static_cast<int>(t.schedule->has.size())) {}

Parcels::Parcels(const Transfer& t, std::span<const int> peer_of, int peers)
    : t_(t),
      s_(*t.schedule),
      to_(static_cast<size_t>(peers)),
      from_(s_.has.size()),
      at_(s_.has.size()) {
  for (const Piece& p : s_.serves)
    for (int m : p.members) {
      if (peer_of[index(m)] < 0) continue;
      Pieces& to = to_[index(peer_of[index(m)])];
      if (to.empty() || to.back() != &p) to.push_back(&p);
    }
  // The pieces of the taker are those of the one that serves it, in the same
  // order.
  for (const Piece& p : s_.pieces) order_.push_back(&p);
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

int64_t Parcels::share(int m, std::span<const Parcels* const> takers) {
  Pieces all;
  for (const Parcels* taker : takers) {
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
  return next * size_of(t_.dtype);
}

int64_t Parcels::bytes(const Pieces& pieces) const {
  int64_t n = 0;
  for (const Piece* p : pieces) n += volume(p->region);
  return n * size_of(t_.dtype);
}

void* Parcels::whole(const Pieces& pieces, const void* base,
                     const HeldRegion& held, const Shape& strides) const {
  if (pieces.size() != 1) return nullptr;
  const HeldRegion* arrays[] = {&held};
  const Sizes all[] = {strides};
  Boxes boxes(pieces[0]->region, arrays, all);
  void* at = nullptr;
  int count = 0;
  boxes.each([&](Sizes shape) {
    if (count++ == 0 && is_packed(shape, boxes.strides(0)))
      at = advance(base, boxes.offset(0), size_of(t_.dtype));
  });
  return count == 1 ? at : nullptr;
}

const void* Parcels::whole_to(int peer) const {
  return whole(to_[index(peer)], t_.src, s_.has[index(s_.self)],
               t_.src_strides);
}

void Parcels::pack(const Place& on, int peer, void* out) const {
  for (const Piece* p : to_[index(peer)]) {
    copy(on, t_.dtype, p->region,
         {out, HeldRegion(p->region), packed_strides(p->region)},
         {t_.src, s_.has[index(s_.self)], t_.src_strides});
    out = advance(out, volume(p->region), size_of(t_.dtype));
  }
}

void* Parcels::whole_from(int m) const {
  return whole(from_[index(m)], t_.dst, s_.wants, t_.dst_strides);
}

void Parcels::unpack(const Place& on, int m, const void* in) const {
  const Pieces& pieces = from_[index(m)];
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Region& region = pieces[i]->region;
    copy(on, t_.dtype, region, {t_.dst, s_.wants, t_.dst_strides},
         {advance(in, at_[index(m)][i], size_of(t_.dtype)), HeldRegion(region),
          packed_strides(region)});
  }
}

void Parcels::copy_from(const Place& on, int m, const Transfer& theirs) const {
  for (const Piece* p : from_[index(m)])
    copy(on, t_.dtype, p->region, {t_.dst, s_.wants, t_.dst_strides},
         {theirs.src, s_.has[index(m)], theirs.src_strides});
}

std::optional<Parcels::Even> Parcels::all_gather() const {
  const int p = static_cast<int>(to_.size()), self = s_.self;
  const int other = (self + 1) % p;
  const Pieces& sent = to_[index(other)];
  const Pieces& kept = from_[index(self)];
  // What it sends is what it keeps.
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

std::optional<Parcels::Even> Parcels::reduce_scatter() const {
  const int p = static_cast<int>(to_.size()), self = s_.self;
  if (p == 1 || order_.size() != 1 ||
      (t_.op == ReduceOp::kAvg && s_.terms != p))
    return {};
  // One piece, of all.
  for (const Pieces& from : from_)
    if (from != order_) return {};
  const int64_t n = bytes(order_);
  const auto at = [&](int m) -> const char* {
    const Pieces& taken = m == self ? order_ : to_[index(m)];
    if (bytes(taken) != n) return nullptr;
    return static_cast<const char*>(
        whole(taken, t_.src, s_.has[index(self)], t_.src_strides));
  };
  const char* first = at(0);
  void* out = whole(order_, t_.dst, s_.wants, t_.dst_strides);
  if (!first || !out) return {};
  for (int m = 1; m < p; ++m)
    if (at(m) != first + m * n) return {};
  return Even{first, out, n};
}

void Parcels::reduce(const Place& on, std::span<const void* const> in,
                     const Readable& readable) const {
  const int64_t item = size_of(t_.dtype);
  std::vector<size_t> next(from_.size());
  std::vector<Operand> operands;
  for (const Piece* p : order_) {
    const HeldRegion packed(p->region);
    const Shape strides_in = packed_strides(p->region);
    std::vector<const HeldRegion*> arrays{&s_.wants};
    std::vector<Sizes> strides{t_.dst_strides};
    std::vector<const void*> bases;
    for (int m : p->members) {
      const int64_t at = at_[index(m)][next[index(m)]++];
      const Transfer* there = m == s_.self ? &t_
                              : readable   ? readable(m)
                                           : nullptr;
      arrays.push_back(there ? &s_.has[index(m)] : &packed);
      strides.push_back(there ? Sizes(there->src_strides) : Sizes(strides_in));
      bases.push_back(there ? there->src : advance(in[index(m)], at, item));
    }
    Boxes boxes(p->region, arrays, strides);
    operands.resize(bases.size());
    boxes.each([&](Sizes shape) {
      for (size_t j = 0; j < bases.size(); ++j)
        operands[j] = {advance(bases[j], boxes.offset(1 + j), item),
                       boxes.strides(1 + j)};
      on.device.reduce(on.stream, t_.op, t_.dtype, shape,
                       advance(t_.dst, boxes.offset(0), item), boxes.strides(0),
                       operands, s_.terms);
    });
  }
}

}  // namespace dtensor
