// SPDX-License-Identifier: Apache-2.0
// The emulated GPUs' memory: a range of addresses for each. While a GPU works,
// the addresses that it may not touch are closed; while none works, all are.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace emulation {

// All members may be called by several threads, unless they say otherwise.
class Memory {
 public:
  struct Range {
    char* at = nullptr;
    size_t bytes = 0;
    char* end() const { return at + bytes; }
  };
  // Memory that a stream has released, or is the first to take. spoil() fills
  // it when the stream reaches the release or that first allocation. `taken` is
  // what the stream has taken of it since; `left` is the rest, which other
  // streams may take afterwards.
  struct Released {
    Range all, left;
    std::vector<Range> taken;
  };

  // Whether GPU a can use the memory of b, if b's pool grants access.
  using Reaches = std::function<bool(int a, int b)>;
  Memory(int devices, size_t bytes_of_each, Reaches);

  size_t total() const { return total_; }
  bool reaches(int a, int b) const { return a == b || reaches_(a, b); }
  // Opens the memory of owner's pool to `device`, or ends that. False if the
  // device cannot reach the memory.
  bool grant(int owner, int device, bool open);
  bool granted(int owner, int device) const;

  // Allocates from the device's pool for work of that stream. If the memory is
  // new to the pool, sets `fresh`, for come_to(). Returns null if memory is
  // short.
  void* allocate(int device, const void* stream, size_t bytes,
                 std::shared_ptr<Released>& fresh);
  // Allocates for a graph, until free_of_graph().
  void* allocate_for_graph(int device, size_t bytes);
  void free_of_graph(void*);
  bool is_of_graph(const void*) const;
  // The GPU of an address, or -1; and whether so many bytes are allocated
  // there.
  int device_of(const void*) const;
  bool has(const void*, size_t bytes) const;
  size_t bytes_of(const void* block) const;
  // Returns null if the pool has no such block.
  std::shared_ptr<Released> release(void*, const void* stream);
  // Called when the stream reaches the release, or the allocation that set
  // `fresh`.
  void come_to(int device, const std::shared_ptr<Released>&);
  // Fills the memory with NaNs.
  static void spoil(Range);

  struct Sizes {
    size_t free, reserved, used;
    uint64_t threshold;
  };
  Sizes sizes(int device) const;
  void set_threshold(int device, uint64_t);
  // Gives unused memory back to the system, but keeps this many bytes in the
  // pool.
  void trim(int device, uint64_t keep);

  // Memory of the host that GPUs copy to and from.
  void* pin(size_t bytes);
  bool unpin(void*);
  bool is_pinned(const void*, size_t bytes) const;

  // Called by the thread that works for the GPUs. Opens what the device may
  // touch.
  void open(int device);
  void close();
  // Calls fn. False if it touched memory that the device may not touch.
  bool guarded(int device, const std::function<void()>& fn);

 private:
  struct Device {
    char *base = nullptr, *end = nullptr, *next = nullptr;
    std::map<char*, size_t> ready;  // memory that is free
    std::vector<std::pair<const void*, std::shared_ptr<Released>>> released;
    size_t reserved = 0, used = 0, of_graphs = 0;
    uint64_t threshold = 0;
    std::vector<bool> grants;
    char* opened = nullptr;  // open up to here; null: closed
  };
  struct Block {
    size_t bytes;
    int device;
    bool of_graph, other = false;
  };
  Device& at(int device) { return devices_[static_cast<size_t>(device)]; }
  const Device& at(int device) const {
    return devices_[static_cast<size_t>(device)];
  }
  char* take_addresses(Device&, size_t bytes);
  static void put(Device&, Range);
  static char* take(Device&, const void* stream, size_t bytes, size_t asked);

  const size_t total_;
  const Reaches reaches_;
  mutable std::mutex mutex_;
  std::vector<Device> devices_;
  std::map<const char*, Block> blocks_;
  std::map<const char*, size_t> pinned_;
};

}  // namespace emulation
