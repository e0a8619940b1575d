// SPDX-License-Identifier: Apache-2.0
// Collectives among the members of one group, seen from one member:
//
//   run({.world = 4}, [](Runtime& rt) {
//     float x[] = {1, static_cast<float>(rt.rank())};
//     Communicator& all = rt.context().communicator({0, 1, 2, 3});
//     all.all_reduce({StepKind::kAllReduce, "example"}, {}, ReduceOp::kSum,
//                    DType::kF32, x, 2);  // {4, 6} on every rank
//   });
//
// On the CPU, a call's outputs are complete when the call returns; on a GPU,
// they are complete for work that is enqueued on the call's Stream afterwards.
// Each member reads what the others wrote to their sources before their calls.
// After its own call (on a GPU, in later work of the Stream), a member may
// overwrite its sources: by then all others have read them.
//
// The functions that take a Call are collective: all members make the same
// calls in the same order. When the fingerprints (see Call) of two members
// differ, all members throw the same Error, which shows both calls, before any
// output is written. When a member fails instead of making the call, the others
// throw an Error that names it. One thread at a time may use a communicator. If
// the group has several members, a concurrent call by another thread throws
// Error, unless both begin within a few nanoseconds.
//
// Data is described by Regions: each member's source holds some index ranges of
// a global tensor, and its destination wants some. Members of a HostBackend
// that share memory copy the intersections straight from each other's strided
// memory. All other members send the intersections, packed if need be. Parts of
// different sizes are never padded to one size.
//
// The public calls check their arguments and, in a group of several members,
// agree with the others and notify the Watch. Each backend implements the
// protected functions. Calls that take a Stream enqueue their work on it.
#pragma once
#include <atomic>
#include <cstdint>
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

// How a member describes its call to the other members.
struct Call {
  StepKind kind;             // must fit the member function, else Error
  std::string_view op = {};  // the operator that makes the call: "matmul"
  uint64_t fingerprint = 0;  // a hash of the values to agree on, such as specs;
                             // fingerprint_of() mixes in the call's number
  // If set, describe(what) returns the text for the error, such as "f32[8](S0)
  // -> f32[8](R)". Called only if the members' calls differ.
  std::string (*describe)(const void*) = nullptr;
  const void* what = nullptr;
  // A hash of how the value that is communicated was made (dtensor/lineage.h);
  // members compare it together with the fingerprint. If `made` is set,
  // made(what) returns the end of the error text, which says how the value was
  // made.
  uint64_t lineage = 0;
  std::string (*made)(const void*) = nullptr;
};

// One tensor of a collective: where this member's source and destination lie.
// Source and destination do not overlap. Strides are in elements, one per
// dimension of the schedule's regions. src is null only if this member holds no
// elements. dst is null only if the schedule has no pieces.
struct Transfer {
  const Schedule* schedule;
  DType dtype;
  const void* src;
  Shape src_strides;
  void* dst;
  Shape dst_strides;
  ReduceOp op = ReduceOp::kSum;  // used by reduce() only
  int64_t counted = 0;           // output: bytes read from other members
};

// One tensor of an all-reduce: n contiguous elements.
struct Buffer {
  ReduceOp op;
  DType dtype;
  void* data;
  int64_t n;
  bool one_shot = false;  // see all_reduce()
  // This member's input; null if the input is in `data`.
  const void* from = nullptr;
  int64_t counted = 0;  // output: bytes read from other members
};

struct Collective;  // agreement.h
class FlightRing;   // flight_ring.h

// Observes the collectives of groups with more than one member, on the thread
// that makes them; a Tracer, for example, records their times.
class Watch {
 public:
  virtual ~Watch() = default;
  // Called before the members agree.
  virtual void begins(const Collective&) = 0;
  // Called when the collective is over, also if it throws.
  virtual void ends(const Collective&) noexcept = 0;
  // Called between begins() and ends(), once all members have agreed.
  virtual void agreed(const Collective&) noexcept {}
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }

  // For every transfer and index i that this member wants: dst[i] = src[i] of
  // the member that the schedule (made by exchange_schedule()) names for i.
  // Elements that this rank holds itself are copied locally. All members pass
  // the same number of transfers, of the same tensors in the same order. This
  // is an all-gather, an all-to-all, a permute or an exchange, depending on the
  // schedule.
  void exchange(const Call&, Stream, std::span<Transfer>);

  // For every transfer and index i that this member wants: dst[i] = the
  // reduction, in member order, of the sources of all members that hold i; the
  // identity if no member holds it. This is a reduce-scatter if every member
  // holds everything, and an accumulating exchange if regions overlap. kAvg
  // divides the sum by the schedule's `terms`. f16 and bf16 are accumulated in
  // f32 and rounded once. (NCCL may add and round otherwise, see nccl.h.)
  // Throws Error for kMean.
  void reduce(const Call&, Stream, std::span<Transfer>);

  // Reduces every buffer into `data`, with the same bits on every member. With
  // p members, member i reduces its chunk, [floor(i*n/p), floor((i+1)*n/p)), in
  // member order (kAvg divides by p), and then collects the other chunks. If
  // the chunk has c elements, member i reads (p-1) * c + n - c elements. With
  // `one_shot`, each member reduces all n elements itself: it reads (p-1) * n
  // elements, but in one step of latency. Backends may work otherwise (NCCL
  // adds in its own order, see nccl.h), but they count these elements. Throws
  // Error for kMean.
  void all_reduce(const Call&, Stream, std::span<Buffer>);

  // Gathers `bytes` bytes of each member's host memory at `in`; those of member
  // m go to out + m * bytes. Use it for a few bytes only: they are not counted.
  void all_gather_bytes(const Call&, const void* in, int64_t bytes, void* out);
  void barrier(const Call&);

  // Like all_reduce() of one buffer; returns the bytes read from other members.
  int64_t all_reduce(const Call&, Stream, ReduceOp, DType, void* data,
                     int64_t n);

  // Whether this communicator needs schedules with Schedule::serves filled in.
  virtual bool needs_serves() const { return false; }
  // Whether all_reduce() reads Buffer::from in place; else the input is copied
  // to `data` first.
  virtual bool reads_sources() const { return false; }
  // Sets the device of the calls, by default the CPU. It outlives this object.
  void set_device(Device& device) { device_ = &device; }
  // Sets the observer of the calls, by default none. It outlives this object.
  void set_watch(Watch* watch) { watch_ = watch; }
  // Records this communicator's collectives in `ring`. `group` is the number
  // that ring.add_group() has returned. The ring outlives the communicator.
  void set_flight(FlightRing& ring, uint32_t group) {
    flight_ = &ring;
    flight_group_ = group;
  }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  Device& device() const { return *device_; }

  // False for a dry run: there is no memory to move, and no other member to
  // wait for.
  virtual bool has_memory() const { return true; }
  // Returns when all members have made this call with the same fingerprint.
  // Otherwise all members throw: the Error of disagree(), or one that says why
  // some members will not come. Not called in a group of one.
  virtual void agree(const Collective&) = 0;
  // The functions do_...() move the data, after the agreement. They must not
  // throw before every other member has finished reading this member's memory.
  // All `counted` fields are 0 on entry. do_move() exchanges or reduces
  // transfers, as Call::kind says.
  virtual void do_move(const Collective&) = 0;
  virtual void do_all_reduce(const Collective&) = 0;  // not in a group of one
  // In a group of one, called only in a dry run.
  virtual void do_all_gather_bytes(const Collective&) = 0;
  virtual void do_barrier(const Collective&) {}  // the agreement is the barrier

  // The chunk of n elements that member m of p reduces; see all_reduce().
  static Interval chunk(int64_t n, int m, int p) {
    return {m * n / p, (m + 1) * n / p};
  }
  // The bytes that this member reads in an all-reduce of the buffer.
  int64_t all_reduce_bytes(const Buffer& b) const {
    const int64_t own = b.one_shot ? b.n : chunk(b.n, rank_, size_).size();
    return ((size_ - 1) * own + b.n - own) * size_of(b.dtype);
  }

 private:
  void run(Collective&, void (Communicator::*move)(const Collective&));
  void run_transfers(Collective);
  void check(const Call&, Transfer&) const;
  void copy_source(Buffer&, Stream);

  const int rank_, size_;
  uint64_t sequence_ = 0;  // the number of calls made so far
  std::atomic<bool> in_use_ = false;
  Device* device_ = &cpu();
  Watch* watch_ = nullptr;
  FlightRing* flight_ = nullptr;
  uint32_t flight_group_ = 0;
  friend struct WithoutAgreement;  // see tests/bench/comm_cases.cc
  bool agrees_ = true;
};

}  // namespace dtensor
