// SPDX-License-Identifier: Apache-2.0
// Memory of one thread for messages. It is handed out in pieces, which are all
// taken back at once; the memory is then used again.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "dtensor/device/out_of_memory.h"

namespace dtensor {

class Staging {
 public:
  static constexpr size_t kAlignment = 64;

  // Returns `bytes` bytes of memory, aligned to kAlignment and valid until
  // reset(). Throws Error if there is no memory left.
  void* take(int64_t bytes) {
    const size_t n = (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment;
    if (blocks_.empty() || used_ + n > blocks_.back().lines) add(n);
    used_ += n;
    return &blocks_.back().data[used_ - n];
  }
  // Takes all pieces back. Replaces several blocks by one block of their total
  // size.
  void reset() {
    if (blocks_.size() > 1) {
      size_t all = 0;
      for (const Block& b : blocks_) all += b.lines;
      blocks_.clear();
      add(all);
    }
    used_ = 0;
  }

 private:
  struct alignas(kAlignment) Line {
    char bytes[kAlignment];
  };
  struct Block {
    std::unique_ptr<Line[]> data;
    size_t lines;
  };
  void add(size_t lines) {
    std::unique_ptr<Line[]> data(new (std::nothrow) Line[lines]);
    if (!data)
      out_of_memory(static_cast<int64_t>(lines * kAlignment), "messages");
    blocks_.push_back({std::move(data), lines});
    used_ = 0;
  }

  std::vector<Block> blocks_;
  size_t used_ = 0;  // how many lines of the last block are handed out
};

}  // namespace dtensor
