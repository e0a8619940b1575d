// Memory of one thread for messages: handed out in pieces, which are all taken
// back at once and reused.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "dtensor/device/out_of_memory.h"

namespace dtensor {

class Staging {
 public:
  static constexpr size_t kAlignment = 64;

  // `bytes` bytes, aligned, valid until reset(). Throws Error if there is no
  // memory left.
  void* take(int64_t bytes) {
    const size_t n = padded(bytes);
    if (blocks_.empty() || used_ + n > blocks_.back().size) {
      add(n);
      used_ = 0;
    }
    used_ += n;
    return blocks_.back().data.get() + used_ - n;
  }
  // Takes everything back. Next time, the same total fits into one block.
  void reset() {
    if (blocks_.size() > 1) {
      size_t all = 0;
      for (const Block& b : blocks_) all += b.size;
      blocks_.clear();
      add(all);
    }
    used_ = 0;
  }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  struct Block {
    std::unique_ptr<char, Free> data;
    size_t size;
  };
  static size_t padded(int64_t bytes) {
    return (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment *
           kAlignment;
  }
  void add(size_t bytes) {
    void* data = std::aligned_alloc(kAlignment, bytes);
    if (!data) out_of_memory(static_cast<int64_t>(bytes), "messages");
    blocks_.push_back(
        {std::unique_ptr<char, Free>(static_cast<char*>(data)), bytes});
  }

  std::vector<Block> blocks_;
  size_t used_ = 0;  // in the last block
};

}  // namespace dtensor
