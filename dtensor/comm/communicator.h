// Collectives among the members of one group, as one of its members sees them.
//
// Every call is collective: all members make the same calls in the same order.
// Each carries a fingerprint (see Call); when two members' differ, all of them
// throw the same Error that shows both, before any output is touched. When a
// member fails instead of coming, the others throw an Error that names it. A
// communicator is for one thread at a time; another one's call throws Error.
//
// Data is described by Regions: each member's source holds some index ranges
// of a global tensor, and the destination wants some. A backend that shares
// memory copies the intersections straight from the peers' memory, strided;
// one that does not packs them. Nothing is ever padded.
//
// The public calls check, agree with the other members and tell the Watch; what
// a backend adds is protected. What takes a Stream is work of that stream.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dtensor/device/device.h"
#include "dtensor/placement/dtype.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/region.h"
#include "dtensor/placement/schedule.h"
#include "dtensor/placement/shape.h"
#include "dtensor/placement/step_kind.h"

namespace dtensor {

// What this member believes it is calling.
struct Call {
  StepKind kind;             // fits the member function, else Error
  std::string_view op = {};  // for which operator: "matmul"
  uint64_t fingerprint = 0;  // of the specs, reduce op, dtype; the sequence
                             // number within the group is added to it
  // "f32[8](S0) -> f32[8](R)", for the error: describe(what), when there is
  // one. Called only when something is wrong.
  std::string (*describe)(const void*) = nullptr;
  const void* what = nullptr;
  // How the value was made that the call is about (dtensor/lineage.h): a hash,
  // which members compare as they compare the fingerprint, and the end of the
  // sentence for the error, made(what), when there is one.
  uint64_t lineage = 0;
  std::string (*made)(const void*) = nullptr;
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
  bool one_shot = false;  // see all_reduce()
  // This member's elements, elsewhere than in `data`; null: there.
  const void* from = nullptr;
  int64_t counted = 0;  // set
};

struct Collective;  // agreement.h
class FlightRing;   // flight_ring.h

// Told of every collective of more than one member, by the thread that makes
// it: for records, clocks, deadlines.
class Watch {
 public:
  virtual ~Watch() = default;
  // Ahead of the agreement, and when it is over (also by an Error).
  virtual void begins(const Collective&) = 0;
  virtual void ends(const Collective&) noexcept = 0;
  // In between, when all members have come.
  virtual void agreed(const Collective&) noexcept {}
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }

  // For every transfer: dst[i] = the source of the member that its schedule (an
  // exchange_schedule()) names for i. What this rank has is copied locally.
  // All members give as many transfers, of the same tensors in the same order.
  // An all-gather, an all-to-all, a permute or an exchange.
  void exchange(const Call&, Stream, std::span<Transfer>);
  // The same as the others see it, but transfers[which] has no destination:
  // when the other transfers are done, read() is called with what each member
  // gives for it, and reads their sources, which stay as they are until it
  // returns. It makes no collective. REQUIRES: reads_in_place(), and several
  // members.
  using Sources = std::span<const Transfer* const>;  // by member
  using ReadSources = std::function<void(Sources)>;
  void exchange_in_place(const Call&, Stream, std::span<Transfer>, size_t which,
                         const ReadSources& read);

  // For every transfer: dst[i] = the reduction over the members that hold i, in
  // member order, of their sources; where nobody holds i: the identity. A
  // reduce-scatter when all hold everything; the accumulating form of the box
  // exchange when their regions overlap. kAvg divides the sum by the schedule's
  // `terms`; halves are accumulated in f32 and rounded once. kMean is not for
  // here.
  void reduce(const Call&, Stream, std::span<Transfer>);

  // Every buffer's reduction into `data`, the same bits on every member: of n
  // elements member i reduces [floor(i*n/p), floor((i+1)*n/p)) in member order
  // (kAvg divides by p), then everyone collects the rest: (p-1) * own + n - own
  // elements. With `one_shot` each member reduces all of them: (p-1) * n, of
  // one latency.
  void all_reduce(const Call&, Stream, std::span<Buffer>);

  // out[m] = member m's `bytes` bytes; small host-side facts. Not counted.
  void all_gather_bytes(const Call&, const void* in, int64_t bytes, void* out);
  void barrier(const Call&);

  // The same for one tensor, with a schedule made on the spot: `has` and
  // `wants` are what each member holds and will hold (has[rank()] is
  // *src.region, wants[rank()] *dst.region). Returns the bytes read from other
  // members.
  int64_t exchange(const Call&, Stream, DType, const Part& src,
                   std::span<const Region> has, const Part& dst,
                   std::span<const Region> wants);
  int64_t reduce(const Call&, Stream, ReduceOp, DType, const Part& src,
                 std::span<const Region> has, const Part& dst,
                 std::span<const Region> wants);
  int64_t all_reduce(const Call&, Stream, ReduceOp, DType, void* data,
                     int64_t n);

  // Does a schedule for it have to say what this member serves?
  virtual bool needs_serves() const { return false; }
  // Does it read an all-reduce's elements where they lie? Else they are copied.
  virtual bool reads_sources() const { return false; }
  // Can this member's kernels read the others' sources?
  virtual bool reads_in_place() const { return false; }
  // Whose memory and streams the calls are about; at first the CPU's. And who
  // is told. Both outlive the communicator.
  void set_device(Device& device) { device_ = &device; }
  void set_watch(Watch* watch) { watch_ = watch; }
  // Where its collectives are noted, as those of a group that the ring knows;
  // it outlives the communicator.
  void set_flight(FlightRing& ring, uint32_t group) {
    flight_ = &ring;
    flight_group_ = group;
  }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  Device& device() const { return *device_; }

  // False: nothing has memory, and nobody is met.
  virtual bool has_memory() const { return true; }
  // Returns when all members have come with the same fingerprint; else all of
  // them throw what disagree() throws, or that some will not come. Not called
  // in a group of one.
  virtual void agree(const Collective&) = 0;
  // The work itself, after the agreement. Nothing may be thrown before every
  // member has done with this one's memory. (all_reduce and all_gather_bytes
  // not in a group of one; all the counts are 0 at first.)
  virtual void do_exchange(const Call&, Stream, std::span<Transfer>) = 0;
  virtual void do_exchange_in_place(const Call&, Stream, std::span<Transfer>,
                                    size_t which, const ReadSources&);
  virtual void do_reduce(const Call&, Stream, std::span<Transfer>) = 0;
  virtual void do_all_reduce(const Call&, Stream, std::span<Buffer>) = 0;
  virtual void do_all_gather_bytes(const Call&, const void* in, int64_t bytes,
                                   void* out) = 0;
  virtual void do_barrier(const Call&) {}  // to agree is to have met

 private:
  template <class Work>
  void run(Collective&, Work&&);
  void check(const Call&, Transfer&, bool in_place = false) const;
  void copy_source(Buffer&, Stream);

  const int rank_, size_;
  uint64_t sequence_ = 0;  // of the calls that were made
  std::atomic<bool> in_use_ = false;
  Device* device_ = &cpu();
  Watch* watch_ = nullptr;
  FlightRing* flight_ = nullptr;
  uint32_t flight_group_ = 0;
  friend struct WithoutAgreement;  // what it costs: tests/bench/comm_cases.cc
  bool agrees_ = true;
};

}  // namespace dtensor
