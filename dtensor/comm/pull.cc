#include "dtensor/comm/pull.h"

#include <algorithm>
#include <atomic>

#include "dtensor/device/combine.h"

namespace dtensor {

void Pull::exchange(const Place& on, Transfer& mine, const PeerOf& peer) {
  const Schedule& s = *mine.schedule;
  for (const Piece& piece : s.pieces) {
    const int m = piece.members[0];
    const Transfer& from = m == self_ ? mine : peer(m);
    const int64_t copied = work_.copy(
        on, size_of(mine.dtype), piece.region,
        {mine.dst, &s.wants, mine.dst_strides},
        {from.src, &s.has[static_cast<size_t>(m)], from.src_strides});
    if (m != self_) mine.counted += copied;
  }
}

void Pull::reduce(const Place& on, Transfer& mine, const PeerOf& peer) {
  const Schedule& s = *mine.schedule;
  for (const Piece& piece : s.pieces) {
    work_.sources().clear();
    for (int m : piece.members) {
      const Transfer& from = m == self_ ? mine : peer(m);
      work_.sources().push_back(
          {from.src, &s.has[static_cast<size_t>(m)], from.src_strides});
    }
    const int64_t read =
        work_.reduce(on, mine.op, mine.dtype, piece.region,
                     {mine.dst, &s.wants, mine.dst_strides}, s.terms);
    for (int m : piece.members)
      if (m != self_) mine.counted += read;
  }
}

void Pull::operands_at(int64_t bytes) {
  static constexpr int64_t kUnit[] = {1};
  operands_.resize(from_.size());
  for (size_t m = 0; m < from_.size(); ++m)
    operands_[m] = {from_[m] + bytes, kUnit};
}

void Pull::reduce(const Place& on, Buffer& b, void* to) {
  const int64_t shape[] = {b.n}, unit[] = {1};
  operands_at(0);
  const int64_t read = on.device.reduce(on.stream, b.op, b.dtype, shape, to,
                                        unit, operands_, size());
  for (int m = 0; m < size(); ++m)
    if (m != self_) b.counted += read;
}

// Each member writes its chunk to all results as it computes it, because
// reading data that a peer has just written takes far longer than overwriting
// the peer's cache line. The chunks of different members do not overlap, so no
// member waits for another in between.
int64_t Pull::push_chunk(const Place& on, Buffer& b) {
  const Interval mine = {self_ * b.n / size(), (self_ + 1) * b.n / size()};
  const int64_t at = mine.lo * size_of(b.dtype);
  for (const char*& p : from_) p += at;
  for (char*& p : to_) p += at;
  // Its own result first, and the others in an order that differs between
  // members.
  std::rotate(to_.begin(), to_.begin() + self_, to_.end());
  int64_t read = 0;
  if (on.device.kind() == Device::Kind::kCpu) {
    read = reduce_into_all(b.op, b.dtype, mine.size(), to_, from_, size());
  } else {
    const int64_t shape[] = {mine.size()}, unit[] = {1};
    operands_at(0);
    read = on.device.reduce(on.stream, b.op, b.dtype, shape, to_[0], unit,
                            operands_, size());
    for (size_t m = 1; m < to_.size(); ++m)
      on.device.copy(on.stream, size_of(b.dtype), shape, to_[m], unit, to_[0],
                     unit);
  }
  // A member adds what it reads itself; the others add what they push to it.
  std::atomic_ref(b.counted).fetch_add((size() - 1) * read,
                                       std::memory_order_relaxed);
  return read;
}

}  // namespace dtensor
