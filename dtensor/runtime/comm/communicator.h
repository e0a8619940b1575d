// Collectives among the members of one group, as one of its members sees them.
//
// Every call is collective: all members make the same calls in the same order.
// Each carries a fingerprint (see Call); when two members' differ, all of them
// throw the same Error that shows both, before any output is touched. When a
// member fails instead of coming, the others throw an Error that names it.
//
// Data is described by Regions: each member's source holds some index ranges
// of a global tensor, and the destination wants some. A backend that shares
// memory copies the intersections straight from the peers' memory, strided;
// one that does not packs them. Nothing is ever padded.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "dtensor/placement/dtype.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/region.h"
#include "dtensor/placement/schedule.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

// What this member believes it is calling.
struct Call {
  std::string_view kind;      // "all-gather"
  std::string_view op;        // for which operator: "matmul"
  uint64_t fingerprint = 0;   // of the specs, reduce op, dtype; the backend
                              // adds the sequence number within the group
  std::string_view describe;  // for the error: "f32[8](S0) -> f32[8](R)"
};

// Local memory that holds `region` of a global tensor, one stride (in
// elements) per dimension; within a dimension the region's ranges lie one
// after the other. data is null only when the region is empty.
struct Part {
  void* data = nullptr;
  Shape strides;
  const Region* region = nullptr;
};

// One tensor of a collective: where this member's source and destination lie.
// Source and destination do not overlap. Strides in elements, one per
// dimension of the schedule's regions; memory is null only when it has no
// elements (of the destination: when the schedule has no pieces).
struct Transfer {
  const Schedule* schedule;
  DType dtype;
  const void* src;
  Shape src_strides;
  void* dst;
  Shape dst_strides;
  ReduceOp op = ReduceOp::kSum;  // of reduce() alone
  int64_t counted =
      0;  // set: bytes read from other members, as they are copied
};

// One tensor of an all-reduce: n contiguous elements.
struct Buffer {
  ReduceOp op;
  DType dtype;
  void* data;
  int64_t n;
  int64_t counted = 0;  // set
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // For every transfer: dst[i] = the source of the member that its schedule (an
  // exchange_schedule()) names for i. What this rank has is copied locally.
  // All members give as many transfers, of the same tensors in the same order.
  virtual void exchange(const Call&, std::span<Transfer>) = 0;

  // For every transfer: dst[i] = the reduction over the members that hold i, in
  // member order, of their sources; where nobody holds i: the identity. A
  // reduce-scatter when all hold everything; the accumulating form of the box
  // exchange when their regions overlap. kAvg divides the sum by the schedule's
  // `terms`; bf16 is accumulated in f32 and rounded once. kMean is not for
  // here.
  virtual void reduce(const Call&, std::span<Transfer>) = 0;

  // Every buffer in place, the same bits on every member: of n elements member
  // i reduces [floor(i*n/p), floor((i+1)*n/p)) in member order (kAvg divides by
  // p), then everyone collects the rest: (p-1) * own + n - own elements.
  virtual void all_reduce(const Call&, std::span<Buffer>) = 0;

  // out[m] = member m's `bytes` bytes; small host-side facts. Not counted.
  virtual void all_gather_bytes(const Call&, const void* in, int64_t bytes,
                                void* out) = 0;
  virtual void barrier(const Call&) = 0;

  // The same for one tensor, with a schedule made on the spot. sources[m] is
  // what member m holds (sources[rank()] is *src.region). Returns the bytes
  // read from other members.
  int64_t exchange(const Call&, DType, const Part& src,
                   std::span<const Region> sources, const Part& dst);
  int64_t reduce(const Call&, ReduceOp, DType, const Part& src,
                 std::span<const Region> sources, const Part& dst);
  int64_t all_reduce(const Call&, ReduceOp, DType, void* data, int64_t n);
};

}  // namespace dtensor
