// What a communicator asks of NCCL, without its headers: the plugin that is
// loaded where there are GPUs translates it (link.cc), tests have one of their
// own.
#pragma once
#include <array>
#include <cstdint>
#include <memory>

#include "dtensor/device/device.h"
#include "dtensor/placement/dtype.h"
#include "dtensor/placement/layout.h"

namespace dtensor {

// One member's end of a group of GPUs. What takes a Stream is work of that
// stream, in the order that all members keep. Nothing here waits: a call is
// followed by settled(), until that is true, before the next one is made.
//
// Every function but abort() throws the Error that NCCL tells.
class NcclLink {
 public:
  virtual ~NcclLink() = default;

  // Has the host done with the last call, or with making the link? Tells errors
  // of work that runs, too.
  virtual bool settled() = 0;

  // out = the `bytes` bytes of each member, in order; `in` may be this member's
  // part of it.
  virtual void all_gather(Stream, const void* in, void* out, int64_t bytes) = 0;
  // out = this member's n elements of the p * n that each one has.
  virtual void reduce_scatter(Stream, ReduceOp, DType, const void* in,
                              void* out, int64_t n) = 0;
  virtual void all_reduce(Stream, ReduceOp, DType, void* data, int64_t n) = 0;

  // What is between them is one call. A group is of the thread: who does not
  // get to the end of it, by an Error, drops it, or nothing that the thread
  // calls later begins. A link whose group was dropped is only aborted.
  virtual void begin_group() = 0;
  virtual void end_group() = 0;
  virtual void drop_group() noexcept = 0;
  // Of two members each send meets the other one's receive of as many bytes, in
  // order. Not to itself.
  virtual void send(Stream, const void* data, int64_t bytes, int to) = 0;
  virtual void receive(Stream, void* data, int64_t bytes, int from) = 0;

  // From the next call on NCCL reads and writes this memory, of
  // NcclLibrary::allocate(), where it lies. Once, not in a capture, and by all
  // members: where one of them passes such memory to a call, so do all, for all
  // that they pass. It outlives the link.
  virtual void register_memory(void* memory, int64_t bytes) = 0;

  // Ends what is under way; of any thread, while no other call runs. The link
  // is not used again. It may return late: what the link has is freed when its
  // GPU has nothing to do, so that other links of the GPU have to end too, and
  // when graphs that hold calls of it are gone.
  virtual void abort() noexcept = 0;
};

class NcclLibrary {
 public:
  // What the members of a group have to share before they are linked.
  using Id = std::array<char, 128>;

  // Which GPU it is, of all there are on all machines: as NCCL tells them
  // apart, for which a process's NCCL_HOSTID names its machine.
  using Gpu = std::array<char, 16>;

  virtual ~NcclLibrary() = default;
  // See Backend. NCCL's kernels wait for each other, wherever they are; a
  // stand-in may have none.
  virtual bool joins_streams() const { return false; }
  // That of the stream.
  virtual Gpu gpu(Stream) = 0;
  virtual Id make_id() = 0;
  // Memory of the stream's device that links may register; null: NCCL has none
  // (before 2.19). Throws Error when the device has not so much.
  virtual void* allocate(Stream, int64_t /*bytes*/) { return nullptr; }
  // No stream uses it any more, and no link has registered it.
  virtual void release(Stream, void* /*memory*/) noexcept {}
  // Begins to link this member, of that rank, which computes on the stream's
  // device.
  virtual std::unique_ptr<NcclLink> link(const Id&, int size, int rank,
                                         Stream) = 0;
};

}  // namespace dtensor
