#include "dtensor/comm/nccl/bounce_buffer_link.h"

namespace dtensor {

void* BounceBufferLink::scratch(int64_t bytes) {
  return scratch_.emplace_back(device_, stream_, bytes, where_).data();
}

void BounceBufferLink::copy(void* to, const void* from, int64_t bytes) {
  const int64_t shape[] = {bytes}, unit[] = {1};
  device_.copy(stream_, 1, shape, to, unit, from, unit);
}

const void* BounceBufferLink::in(const void* data, int64_t bytes) {
  if (!registered_.has(data)) return data;
  void* const to = scratch(bytes);
  copy(to, data, bytes);
  return to;
}

void* BounceBufferLink::out(void* data, int64_t bytes) {
  if (!registered_.has(data)) return data;
  void* const from = scratch(bytes);
  back_.push_back({data, from, bytes});
  return from;
}

void BounceBufferLink::back() {
  for (const Back& b : back_) copy(b.to, b.from, b.bytes);
  back_.clear();
}

void BounceBufferLink::all_gather(Stream s, const void* data, void* to,
                                  int64_t bytes) {
  link_.all_gather(s, in(data, bytes), out(to, members_ * bytes), bytes);
}

void BounceBufferLink::reduce_scatter(Stream s, ReduceOp op, DType dtype,
                                      const void* data, void* to, int64_t n) {
  const int64_t bytes = n * size_of(dtype);
  link_.reduce_scatter(s, op, dtype, in(data, members_ * bytes), out(to, bytes),
                       n);
}

// The bounce buffer is also reduced in place.
void BounceBufferLink::all_reduce(Stream s, ReduceOp op, DType dtype,
                                  void* data, int64_t n) {
  const int64_t bytes = n * size_of(dtype);
  void* const there = out(data, bytes);
  if (there != data) copy(there, data, bytes);
  link_.all_reduce(s, op, dtype, there, n);
}

void BounceBufferLink::send(Stream s, const void* data, int64_t bytes, int to) {
  link_.send(s, in(data, bytes), bytes, to);
}

void BounceBufferLink::receive(Stream s, void* data, int64_t bytes, int from) {
  link_.receive(s, out(data, bytes), bytes, from);
}

}  // namespace dtensor
