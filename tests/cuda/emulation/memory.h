// SPDX-License-Identifier: Apache-2.0
// The emulated GPUs' memory: addresses for each, of which those that a GPU may
// not touch are closed while it works, and all of them while none does.
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
  // What a stream has given back, or taken first, and may not have come to: it
  // is spoilt there. `left` is what the stream has not taken since, and others
  // may take from then on; `taken`, what it has.
  struct Released {
    Range all, left;
    std::vector<Range> taken;
  };

  // Of GPU a and b: may a use the memory of b, if b's pool lets it?
  using Reaches = std::function<bool(int a, int b)>;
  Memory(int devices, size_t bytes_of_each, Reaches);

  size_t total() const { return total_; }
  bool reaches(int a, int b) const { return a == b || reaches_(a, b); }
  // That of the pool of `owner` is open to `device`, or no longer. False where
  // it cannot reach it.
  bool grant(int owner, int device, bool open);
  bool granted(int owner, int device) const;

  // For work of that stream, as from its device's pool; `fresh` becomes what
  // nobody had before, if it is of that. Null when there is no more.
  void* allocate(int device, const void* stream, size_t bytes,
                 std::shared_ptr<Released>& fresh);
  // For a graph, until free_of_graph().
  void* allocate_for_graph(int device, size_t bytes);
  void free_of_graph(void*);
  bool is_of_graph(const void*) const;
  // Whose it is, -1 if it is no GPU's; whether so many bytes are allocated.
  int device_of(const void*) const;
  bool has(const void*, size_t bytes) const;
  size_t bytes_of(const void* block) const;
  // Null: there is no such block of a pool.
  std::shared_ptr<Released> release(void*, const void* stream);
  // By the stream.
  void come_to(int device, const std::shared_ptr<Released>&);
  // Fills it with what is no number.
  static void spoil(Range);

  struct Sizes {
    size_t free, reserved, used;
    uint64_t threshold;
  };
  Sizes sizes(int device) const;
  void set_threshold(int device, uint64_t);
  // Gives back what nobody has, but for so many bytes of the pool.
  void trim(int device, uint64_t keep);

  // Memory of the host that GPUs copy to and from.
  void* pin(size_t bytes);
  bool unpin(void*);
  bool is_pinned(const void*, size_t bytes) const;

  // By the thread that works for the GPUs: what this one may touch is open.
  void open(int device);
  void close();
  // Calls fn; false when it touched what it may not.
  bool guarded(int device, const std::function<void()>& fn);

 private:
  struct Device {
    char *base = nullptr, *end = nullptr, *next = nullptr;
    std::map<char*, size_t> ready;  // that nobody has
    std::vector<std::pair<const void*, std::shared_ptr<Released>>> released;
    size_t reserved = 0, used = 0, of_graphs = 0;
    uint64_t threshold = 0;
    std::vector<bool> grants;
    char* opened = nullptr;  // up to here; null: closed
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
