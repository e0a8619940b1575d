// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that a communicator uses, without NCCL's headers. The
// plugin that is loaded on machines with GPUs implements them
// (ops/cuda_plugin/nccl_link.cc); tests have an implementation of their own.
#pragma once
#include <array>
#include <cstdint>
#include <memory>

#include "dtensor/device/device.h"
#include "dtensor/placement/dtype.h"
#include "dtensor/placement/layout.h"

namespace dtensor {

// One member's connection to the other GPUs of its group. Calls that take a
// Stream enqueue work on that stream, in the same order on all members. Only
// abort() and the destructor wait: after any other call, settled() must return
// true before the next call is made.
//
// Every function except drop_group() and abort() throws NCCL's errors as Error.
class NcclLink {
 public:
  virtual ~NcclLink() = default;

  // Whether the host has finished the last call or, if there was none, the
  // creation of the link. Also throws errors of running work.
  virtual bool settled() = 0;

  // out = the `bytes` bytes of every member, in member order. `in` may be this
  // member's part of `out`.
  virtual void all_gather(Stream, const void* in, void* out, int64_t bytes) = 0;
  // Reduces the p * n elements at `in` over all p members. `out` receives this
  // member's n elements of the result.
  virtual void reduce_scatter(Stream, ReduceOp, DType, const void* in,
                              void* out, int64_t n) = 0;
  virtual void all_reduce(Stream, ReduceOp, DType, void* data, int64_t n) = 0;

  // The calls between begin_group() and end_group() form one call. Groups
  // belong to the thread: if an Error prevents end_group(), the thread must
  // call drop_group(), or none of its later calls begin. After drop_group(),
  // the link may only be aborted.
  virtual void begin_group() = 0;
  virtual void end_group() = 0;
  virtual void drop_group() noexcept = 0;
  // Each send matches the other member's receive of the same size, in order. A
  // member does not send to itself.
  virtual void send(Stream, const void* data, int64_t bytes, int to) = 0;
  virtual void receive(Stream, void* data, int64_t bytes, int from) = 0;

  // Ends running work. Any thread may call it while no other call runs; the
  // link is not used again. It may return late, because NCCL frees a link only
  // when the GPU has no work left and no graph contains calls of the link. So
  // the other links of the GPU must end as well.
  virtual void abort() noexcept = 0;
};

class NcclLibrary {
 public:
  // A value that the members of a group share before they are linked.
  using Id = std::array<char, 128>;

  // Identifies a GPU among those of all machines, as NCCL distinguishes them:
  // machines with different NCCL_HOSTID count as different.
  using Gpu = std::array<char, 16>;

  virtual ~NcclLibrary() = default;
  // See Backend::joins_streams(). NCCL's kernels wait for each other without
  // events between streams; a stand-in for tests may need such events.
  virtual bool joins_streams() const { return false; }
  // The GPU of the stream.
  virtual Gpu gpu(Stream) = 0;
  virtual Id make_id() = 0;
  // Begins to link member `rank` of `size`, which computes on the stream's
  // device.
  virtual std::unique_ptr<NcclLink> link(const Id&, int size, int rank,
                                         Stream) = 0;
};

// Returns the real NCCL. Defined only in libdtensor_cuda.so, which passes it to
// the program.
NcclLibrary& nccl_library();

}  // namespace dtensor
