// Memory that was taken from a device in one piece. New tensors are placed in
// it as long as there is room, except for an optimizer's state, which is never
// sent. NCCL reads and writes it without copies (comm/nccl.h).
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "dtensor/device/device.h"

namespace dtensor {

// All members may be called by several threads at once.
class Reserve {
 public:
  // Adds a reserve, which allocators of the device that are created later use,
  // as long as somebody holds it. Its destructor waits until no stream uses the
  // memory any more, and calls `free`. Throws Error if the device already has a
  // reserve.
  static std::shared_ptr<Reserve> add(Device&, void* memory, int64_t bytes,
                                      std::function<void()> free);
  // The reserve of the device; null if it has none.
  static std::shared_ptr<Reserve> of(const Device&);
  ~Reserve();
  Reserve(const Reserve&) = delete;
  Reserve& operator=(const Reserve&) = delete;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  bool has(const void* p) const {
    const char* at = static_cast<const char*>(p);
    return data_ <= at && at < data_ + bytes_;
  }
  bool has(const void* p, int64_t bytes) const {
    return has(p) && bytes <= data_ + bytes_ - static_cast<const char*>(p);
  }

  // Memory for later work of the stream; null if there is no room. Does not
  // wait for memory that other streams have released and may still use: their
  // work may wait for peers that wait for this stream.
  void* allocate(int64_t bytes, Stream);
  // Earlier work of the stream may still use the block.
  void release(void* block, Stream) noexcept;
  // Waits until no stream uses released memory, except captured streams. Called
  // when there is no memory left.
  void wait();
  // The number of bytes that are not in use.
  int64_t free() const;

 private:
  // Released, but possibly still used by the stream's work.
  struct Pending {
    char* at;
    int64_t bytes;
    Stream stream;
    Event until;
  };
  Reserve(Device&, void* memory, int64_t bytes, std::function<void()> free);
  void sweep();
  char* take_gap(int64_t bytes);
  char* take_pending(int64_t bytes, Stream);

  Device& device_;
  char* const data_;
  const int64_t bytes_;
  const std::function<void()> free_;
  mutable std::mutex mutex_;
  std::map<char*, int64_t> gaps_;  // never adjacent
  std::vector<Pending> pending_;   // in the order of release
  std::unordered_map<void*, int64_t> held_;
  int64_t held_bytes_ = 0;
};

}  // namespace dtensor
