// SPDX-License-Identifier: Apache-2.0
// A rank's memory: a cache of freed blocks in front of a device, and
// statistics.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/device/device.h"
#include "dtensor/memory_kind.h"

namespace dtensor {

// The allocator of one rank. Thread-safe: the rank's main thread and its second
// thread (async.h) allocate, and threads of other ranks may release blocks.
class Allocator {
 public:
  struct Stats {
    int64_t current_bytes = 0;  // requested and not yet freed
    int64_t peak_bytes = 0;
    int64_t allocations = 0;
    // The bytes of one MemoryKind that are in use, and their peak.
    struct Kind {
      int64_t current_bytes = 0, peak_bytes = 0;
    };
    std::array<Kind, kMemoryKinds> kinds = {};
    const Kind& of(MemoryKind k) const { return kinds[static_cast<size_t>(k)]; }
    // The largest single request for each tag so far, in bytes.
    std::map<std::string, int64_t, std::less<>> largest_by_tag;
  };

  // Makes an allocator of the device's memory. Blocks are 64-byte aligned and
  // rounded up to size classes. Freed blocks are cached for later work of the
  // same stream. On a device without memory (a dry run), the allocator returns
  // null blocks and only counts.
  static std::shared_ptr<Allocator> on(Device&);
  virtual ~Allocator() = default;

  virtual Device& device() const = 0;
  // Returns the allocator of the host memory that Device::copy_host() uses. The
  // first call makes it. It has statistics of its own.
  virtual const std::shared_ptr<Allocator>& host() = 0;
  // The peak of the host's memory, in bytes. 0 if host() was never called.
  virtual int64_t host_peak() const = 0;
  // Returns a block that work on the stream may use. Throws Error when the
  // device is out of memory. `tag` names the purpose (the running op) for Stats
  // and errors. `bytes` may be 0.
  virtual void* allocate(int64_t bytes, Stream, std::string_view tag,
                         MemoryKind = MemoryKind::kActivations) = 0;
  // Frees a block. Pass the `bytes` and the stream that were passed to
  // allocate(), and the kind that the block counts as now (see recount()).
  virtual void release(void* block, int64_t bytes, Stream,
                       MemoryKind = MemoryKind::kActivations) = 0;
  // Frees a block that was allocated on stream `from` and is used last by work
  // on stream `last`. REQUIRES: `last` has waited for all other work on the
  // block. If the streams differ, the block goes back to the device and not to
  // a cache, unless a graph has to keep it (see begin_capture()). In a cache of
  // `last`, such blocks would pile up, while `from` allocates new ones.
  virtual void release_behind(void* block, int64_t bytes, Stream from,
                              Stream last, MemoryKind) = 0;
  // Counts `bytes` of the memory in use as kind `to` instead of `from`.
  virtual void recount(int64_t bytes, MemoryKind from, MemoryKind to) = 0;
  virtual Stats stats() const = 0;
  // Sets the peaks, also that of the host's memory, to the current values.
  virtual void reset_peak() = 0;

  // Prepares for the capture of a graph (see Device::begin_capture()). A replay
  // uses the addresses of the capture, so the captured work needs memory of its
  // own, which the returned handle owns. Until end_capture(), blocks are
  // allocated from that memory and released to it, for later allocations on the
  // same stream. The handle also keeps blocks that were allocated before the
  // capture and are released during it, unless another graph's handle owns
  // them. When the handle is destroyed, its blocks go back to the device once
  // the earlier work on `stream` is done; blocks that are still in use become
  // ordinary ones. Throws Error if a capture is already active.
  virtual std::shared_ptr<void> begin_capture(Stream stream) = 0;
  // While this is set, allocate() returns, during a capture, only blocks that
  // the captured work has not used. Set it to allocate memory that the host
  // writes before a replay: the captured work must not overwrite that memory.
  virtual void set_unused_only(bool) = 0;
  // Ends the capture, and waits until the device has made the allocations that
  // the capture asked for.
  virtual void end_capture() = 0;
};

}  // namespace dtensor
