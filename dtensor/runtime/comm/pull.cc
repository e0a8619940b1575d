#include "dtensor/runtime/comm/pull.h"

namespace dtensor {
namespace {

char* advance(const void* data, int64_t elements, DType dtype) {
  return static_cast<char*>(const_cast<void*>(data)) +
         elements * size_of(dtype);
}

}  // namespace

void Pull::exchange(const Place& on, Transfer& mine, const PeerOf& peer) {
  const Schedule& s = *mine.schedule;
  for (const Piece& piece : s.pieces) {
    const int m = piece.members[0];
    const Transfer& from = m == self_ ? mine : peer(m);
    const HeldRegion* arrays[] = {&s.wants, &s.has[static_cast<size_t>(m)]};
    const Sizes strides[] = {mine.dst_strides, from.src_strides};
    boxes_.reset(piece.region, arrays, strides);
    boxes_.each([&](Sizes shape) {
      const int64_t copied = on.device.copy(
          on.stream, size_of(mine.dtype), shape,
          advance(mine.dst, boxes_.offset(0), mine.dtype), boxes_.strides(0),
          advance(from.src, boxes_.offset(1), mine.dtype), boxes_.strides(1));
      if (m != self_) mine.counted += copied;
    });
  }
}

void Pull::reduce(const Place& on, Transfer& mine, const PeerOf& peer) {
  const Schedule& s = *mine.schedule;
  for (const Piece& piece : s.pieces) {
    arrays_.assign({&s.wants});
    strides_.assign({mine.dst_strides});
    bases_.clear();
    for (int m : piece.members) {
      const Transfer& from = m == self_ ? mine : peer(m);
      arrays_.push_back(&s.has[static_cast<size_t>(m)]);
      strides_.push_back(from.src_strides);
      bases_.push_back(from.src);
    }
    boxes_.reset(piece.region, arrays_, strides_);
    operands_.resize(bases_.size());
    boxes_.each([&](Sizes shape) {
      for (size_t j = 0; j < bases_.size(); ++j)
        operands_[j] = {advance(bases_[j], boxes_.offset(1 + j), mine.dtype),
                        boxes_.strides(1 + j)};
      const int64_t read =
          on.device.reduce(on.stream, mine.op, mine.dtype, shape,
                           advance(mine.dst, boxes_.offset(0), mine.dtype),
                           boxes_.strides(0), operands_, s.terms);
      for (int m : piece.members)
        if (m != self_) mine.counted += read;
    });
  }
}

void Pull::reduce(const Place& on, Buffer& b, Interval elements, char* to) {
  const int64_t item = size_of(b.dtype), unit[] = {1};
  const int64_t shape[] = {elements.size()};
  operands_.resize(at_.size());
  for (size_t m = 0; m < at_.size(); ++m)
    operands_[m] = {at_[m] + elements.lo * item, unit};
  const int64_t read = on.device.reduce(on.stream, b.op, b.dtype, shape, to,
                                        unit, operands_, size());
  for (int m = 0; m < size(); ++m)
    if (m != self_) b.counted += read;
}

void Pull::collect(const Place& on, Buffer& b, int m) {
  const int64_t item = size_of(b.dtype), unit[] = {1};
  const Interval theirs = chunk(b.n, m, size());
  const int64_t shape[] = {theirs.size()};
  const int64_t copied = on.device.copy(
      on.stream, item, shape, advance(b.data, theirs.lo, b.dtype), unit,
      at_[static_cast<size_t>(m)] + theirs.lo * item, unit);
  if (m != self_) b.counted += copied;
}

}  // namespace dtensor
