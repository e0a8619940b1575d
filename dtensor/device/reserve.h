// Memory of a device that was taken from it at once, and that tensors are in as
// long as there is some of it, but for an optimizer's state, which nobody
// sends: NCCL reads and writes there without copies of its own (comm/nccl.h).
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
  // For allocators of the device that are made from now on, as long as somebody
  // holds it; `free` gives the memory back then, when no stream uses it any
  // more. Throws Error when the device has one.
  static std::shared_ptr<Reserve> add(Device&, void* memory, int64_t bytes,
                                      std::function<void()> free);
  // Null: the device has none.
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

  // For work that the stream is given from now on; null when there is no room.
  // What other streams have released and may still use is none: theirs may wait
  // for peers, which wait for this one.
  void* allocate(int64_t bytes, Stream);
  // The stream's earlier work may still use it.
  void release(void* block, Stream) noexcept;
  // Returns when no stream uses what was released, but for those that are
  // captured: when there is no memory left.
  void wait();
  // Bytes that nobody has.
  int64_t free() const;

 private:
  // Released, and not yet everybody's.
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
  std::map<char*, int64_t> gaps_;  // no two beside each other
  std::vector<Pending> pending_;   // the last one last
  std::unordered_map<void*, int64_t> held_;
  int64_t held_bytes_ = 0;
};

}  // namespace dtensor
