// SPDX-License-Identifier: Apache-2.0
// Collectives of one tensor, for tests that call a Communicator themselves.
#pragma once
#include <span>

#include "dtensor/comm/communicator.h"

namespace dtensor::testing {

// Local memory that holds `region` of a tensor, with one stride (in elements)
// per dimension.
struct Part {
  void* data = nullptr;
  Shape strides;
  const Region* region = nullptr;
};

inline Transfer transfer_of(const Schedule& schedule, DType dtype,
                            const Part& src, const Part& dst) {
  return {.schedule = &schedule,
          .dtype = dtype,
          .src = src.data,
          .src_strides = src.strides,
          .dst = dst.data,
          .dst_strides = dst.strides};
}

// Calls Communicator::exchange() with a schedule for one tensor. `has` and
// `wants` are the regions that each member holds and will hold. Returns the
// bytes read from other members.
inline int64_t exchange(Communicator& c, const Call& call, Stream stream,
                        DType dtype, const Part& src,
                        std::span<const Region> has, const Part& dst,
                        std::span<const Region> wants) {
  Schedule schedule =
      exchange_schedule(*dst.region, has, c.rank(), name(call.kind));
  if (c.needs_serves()) serve_exchange(schedule, wants);
  Transfer t = transfer_of(schedule, dtype, src, dst);
  c.exchange(call, stream, {&t, 1});
  return t.counted;
}

inline int64_t reduce(Communicator& c, const Call& call, Stream stream,
                      ReduceOp op, DType dtype, const Part& src,
                      std::span<const Region> has, const Part& dst,
                      std::span<const Region> wants) {
  Schedule schedule = reduce_schedule(*dst.region, has, c.rank());
  if (c.needs_serves()) serve_reduction(schedule, wants);
  Transfer t = transfer_of(schedule, dtype, src, dst);
  t.op = op;
  c.reduce(call, stream, {&t, 1});
  return t.counted;
}

}  // namespace dtensor::testing
