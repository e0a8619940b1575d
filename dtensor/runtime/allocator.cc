#include "dtensor/runtime/allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>

#include "dtensor/placement/error.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(block, size) ((void)(block))
#define ASAN_UNPOISON_MEMORY_REGION(block, size) ((void)(block))
#endif

namespace dtensor {
namespace {

constexpr int64_t kAlignment = 64;

// Classes are the multiples of 64 up to 512, then eight per power of two: a
// block is at most an eighth larger than what was asked for.
struct SizeClass {
  size_t index;
  int64_t bytes;
};

SizeClass size_class(int64_t bytes) {
  const uint64_t n = static_cast<uint64_t>(std::max<int64_t>(bytes, 1));
  if (n <= 512) {
    const uint64_t i = (n + kAlignment - 1) / kAlignment;
    return {i - 1, static_cast<int64_t>(i * kAlignment)};
  }
  // n - 1 is in [2^k, 2^(k+1)), cut into eight steps.
  const int k = std::bit_width(n - 1) - 1;
  const uint64_t step = uint64_t{1} << (k - 3);
  const uint64_t eighth = (n - 1) / step + 1;  // 9..16
  return {static_cast<size_t>(k - 9) * 8 + 8 + (eighth - 9),
          static_cast<int64_t>(eighth * step)};
}

// What both allocators count. The caller holds the mutex.
class Counts {
 public:
  void allocated(int64_t bytes, std::string_view tag) {
    stats_.current_bytes += bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.current_bytes);
    ++stats_.allocations;
    // An op allocates several times in a row: look its tag up once.
    if (!last_ || last_->first != tag) {
      auto it = stats_.largest_by_tag.find(tag);
      if (it == stats_.largest_by_tag.end())
        it = stats_.largest_by_tag.emplace(std::string(tag), 0).first;
      last_ = &*it;
    }
    last_->second = std::max(last_->second, bytes);
  }
  void released(int64_t bytes) { stats_.current_bytes -= bytes; }
  void reset_peak() { stats_.peak_bytes = stats_.current_bytes; }
  const Allocator::Stats& stats() const { return stats_; }

 private:
  Allocator::Stats stats_;
  std::pair<const std::string, int64_t>* last_ = nullptr;
};

class CachingAllocator final : public Allocator {
 public:
  ~CachingAllocator() override { drop_cache(); }

  void* allocate(int64_t bytes, std::string_view tag) override {
    DT_CHECK(bytes >= 0, "allocate", "'{}' asks for {} bytes", tag, bytes);
    std::lock_guard lock(mutex_);
    void* block = bytes <= kMost ? take(size_class(bytes)) : nullptr;
    DT_CHECK(block != nullptr, "allocate",
             "the system has no {} bytes for '{}', with {} bytes in use; split "
             "the tensor over more ranks, or free what is not needed",
             bytes, tag, counts_.stats().current_bytes);
    counts_.allocated(bytes, tag);
    ASAN_UNPOISON_MEMORY_REGION(block, static_cast<size_t>(bytes));
    return block;
  }

  void release(void* block, int64_t bytes) override {
    if (!block) return;
    const SizeClass c = size_class(bytes);
    std::lock_guard lock(mutex_);
    counts_.released(bytes);
    ASAN_POISON_MEMORY_REGION(block, static_cast<size_t>(c.bytes));
    classes_[c.index].cached.push_back(block);
  }

  Stats stats() const override {
    std::lock_guard lock(mutex_);
    return counts_.stats();
  }

  void reset_peak() override {
    std::lock_guard lock(mutex_);
    counts_.reset_peak();
  }

 private:
  // What addresses can name; size_class() would overflow far beyond it.
  static constexpr int64_t kMost = int64_t{1} << 47;

  struct Class {
    std::vector<void*> cached;
    size_t blocks = 0;  // cached and handed out
  };

  // A cached block or a new one of the class; null when there is none.
  void* take(SizeClass c) {
    if (classes_.size() <= c.index) classes_.resize(c.index + 1);
    Class& mine = classes_[c.index];
    if (!mine.cached.empty()) {
      void* block = mine.cached.back();
      mine.cached.pop_back();
      return block;
    }
    // release() must not fail, so the room to keep the block is made here.
    if (mine.blocks + 1 > mine.cached.capacity())
      mine.cached.reserve(2 * mine.blocks + 4);
    const size_t bytes = static_cast<size_t>(c.bytes);
    void* block = std::aligned_alloc(kAlignment, bytes);
    if (!block) {
      drop_cache();
      block = std::aligned_alloc(kAlignment, bytes);
    }
    if (!block) return nullptr;
    ++mine.blocks;
    // The part beyond the request stays poisoned.
    ASAN_POISON_MEMORY_REGION(block, bytes);
    return block;
  }

  void drop_cache() {
    for (Class& c : classes_) {
      for (void* block : c.cached) std::free(block);
      c.blocks -= c.cached.size();
      c.cached.clear();
    }
  }

  mutable std::mutex mutex_;
  Counts counts_;
  std::vector<Class> classes_;
};

class DryRunAllocator final : public Allocator {
 public:
  void* allocate(int64_t bytes, std::string_view tag) override {
    DT_CHECK(bytes >= 0, "allocate", "'{}' asks for {} bytes", tag, bytes);
    std::lock_guard lock(mutex_);
    counts_.allocated(bytes, tag);
    return nullptr;
  }
  void release(void*, int64_t bytes) override {
    std::lock_guard lock(mutex_);
    counts_.released(bytes);
  }
  Stats stats() const override {
    std::lock_guard lock(mutex_);
    return counts_.stats();
  }
  void reset_peak() override {
    std::lock_guard lock(mutex_);
    counts_.reset_peak();
  }

 private:
  mutable std::mutex mutex_;
  Counts counts_;
};

}  // namespace

std::shared_ptr<Allocator> Allocator::cpu() {
  return std::make_shared<CachingAllocator>();
}

std::shared_ptr<Allocator> Allocator::dry_run() {
  return std::make_shared<DryRunAllocator>();
}

}  // namespace dtensor
