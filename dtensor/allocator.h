// A rank's memory: a cache of freed blocks in front of a device, and counts.
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

// May be used by several threads: those of one rank allocate, and any rank's
// thread may be the one that frees a tensor.
class Allocator {
 public:
  struct Stats {
    int64_t current_bytes = 0;  // asked for and not yet freed
    int64_t peak_bytes = 0;
    int64_t allocations = 0;
    // Of each MemoryKind: what there is, and the most that there was at once.
    struct Kind {
      int64_t current_bytes = 0, peak_bytes = 0;
    };
    std::array<Kind, kMemoryKinds> kinds = {};
    const Kind& of(MemoryKind k) const { return kinds[static_cast<size_t>(k)]; }
    // The largest single request under each tag, from the first one on.
    std::map<std::string, int64_t, std::less<>> largest_by_tag;
  };

  // 64-byte aligned blocks; rounded up to size classes and kept when freed, for
  // later work of the same stream. On a device without memory: counts alone.
  static std::shared_ptr<Allocator> on(Device&);
  virtual ~Allocator() = default;

  virtual Device& device() const = 0;
  // Throws Error when the device has no more. `tag` names what it is for (the
  // running op), for Stats. 0 bytes are fine.
  virtual void* allocate(int64_t bytes, Stream, std::string_view tag,
                         MemoryKind = MemoryKind::kActivations) = 0;
  // The stream is the one that it was allocated on.
  virtual void release(void* block, int64_t bytes, Stream,
                       MemoryKind = MemoryKind::kActivations) = 0;
  // What was allocated on `from`, and is used last by work of `last`, which has
  // waited for all other work on the block. It is not kept: the one stream
  // would take new memory for ever, and the other one gather it.
  virtual void release_behind(void* block, int64_t bytes, Stream from,
                              Stream last, MemoryKind) = 0;
  // `bytes` of what is in use count as another kind from here on.
  virtual void recount(int64_t bytes, MemoryKind from, MemoryKind to) = 0;
  virtual Stats stats() const = 0;
  // The peaks become what there is.
  virtual void reset_peak() = 0;

  // For work that is captured and replayed (see Device), which finds its memory
  // where it was: until end_capture(), blocks come from memory of their own,
  // that of the handle, and go back there for later allocations on the same
  // stream. What was allocated before and is released meanwhile goes there too.
  // When the handle dies, behind the work of `stream`, so does all of it that
  // nobody holds. One at a time.
  virtual std::shared_ptr<void> begin_capture(Stream stream) = 0;
  // While set, blocks that the capture has not used before, for what is written
  // ahead of a replay: nothing in it writes them.
  virtual void set_unused_only(bool) = 0;
  // Waits until the device has given what was asked for.
  virtual void end_capture() = 0;
};

}  // namespace dtensor
