// A rank's memory: a cache of freed blocks in front of a device, and counts.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/runtime/device/device.h"

namespace dtensor {

// May be used by several threads: those of one rank allocate, and any rank's
// thread may be the one that frees a tensor.
class Allocator {
 public:
  struct Stats {
    int64_t current_bytes = 0;  // asked for and not yet freed
    int64_t peak_bytes = 0;
    int64_t allocations = 0;
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
  virtual void* allocate(int64_t bytes, Stream, std::string_view tag) = 0;
  // The stream is the one that it was allocated on, or one that has waited for
  // all other work on the block.
  virtual void release(void* block, int64_t bytes, Stream) = 0;
  virtual Stats stats() const = 0;
  virtual void reset_peak() = 0;
};

}  // namespace dtensor
