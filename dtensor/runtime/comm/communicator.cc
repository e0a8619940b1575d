#include "dtensor/runtime/comm/communicator.h"

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

Transfer transfer_of(const Schedule& schedule, DType dtype, const Part& src,
                     const Part& dst) {
  return {.schedule = &schedule,
          .dtype = dtype,
          .src = src.data,
          .src_strides = src.strides,
          .dst = dst.data,
          .dst_strides = dst.strides};
}

void check_sources(const Call& call, const Part& src,
                   std::span<const Region> sources, const Part& dst, int rank,
                   int size) {
  DT_CHECK(static_cast<int>(sources.size()) == size, call.kind,
           "the sources of {} members were given in a group of {}",
           sources.size(), size);
  const Region& mine = sources[static_cast<size_t>(rank)];
  DT_CHECK(src.region == &mine || *src.region == mine, call.kind,
           "member {} holds another region than the list of sources says",
           rank);
  for (const Region& r : sources)
    DT_CHECK(r.size() == dst.region->size(), call.kind,
             "a source has {} dimensions and the destination {}", r.size(),
             dst.region->size());
}

}  // namespace

int64_t Communicator::exchange(const Call& call, DType dtype, const Part& src,
                               std::span<const Region> sources,
                               const Part& dst) {
  check_sources(call, src, sources, dst, rank(), size());
  const Schedule schedule =
      exchange_schedule(*dst.region, sources, rank(), {}, call.kind);
  Transfer t = transfer_of(schedule, dtype, src, dst);
  exchange(call, {&t, 1});
  return t.counted;
}

int64_t Communicator::reduce(const Call& call, ReduceOp op, DType dtype,
                             const Part& src, std::span<const Region> sources,
                             const Part& dst) {
  check_sources(call, src, sources, dst, rank(), size());
  const Schedule schedule = reduce_schedule(*dst.region, sources, rank());
  Transfer t = transfer_of(schedule, dtype, src, dst);
  t.op = op;
  reduce(call, {&t, 1});
  return t.counted;
}

int64_t Communicator::all_reduce(const Call& call, ReduceOp op, DType dtype,
                                 void* data, int64_t n) {
  Buffer b{.op = op, .dtype = dtype, .data = data, .n = n};
  all_reduce(call, {&b, 1});
  return b.counted;
}

}  // namespace dtensor
