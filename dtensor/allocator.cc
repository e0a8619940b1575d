// SPDX-License-Identifier: Apache-2.0
#include "dtensor/allocator.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "dtensor/device/out_of_memory.h"
#include "dtensor/placement/error.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(block, size) ((void)(block), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(block, size) ((void)(block), (void)(size))
#endif

namespace dtensor {
namespace {

constexpr int64_t kAlignment = 64;

// The size classes are the multiples of 64 bytes up to 512, then eight steps
// per power of two. A block above 512 bytes is at most an eighth larger than
// the request.
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
  // n - 1 is in [2^k, 2^(k+1)), a range that is divided into eight steps.
  const int k = std::bit_width(n - 1) - 1;
  const uint64_t step = uint64_t{1} << (k - 3);
  const uint64_t eighth = (n - 1) / step + 1;  // 9..16
  return {static_cast<size_t>(k - 9) * 8 + 8 + (eighth - 9),
          static_cast<int64_t>(eighth * step)};
}

// A rank's two threads seldom allocate at the same time, and usually hold the
// lock for a few instructions. Without contention, this lock takes one atomic
// read-modify-write; a std::mutex takes two.
class SpinLock {
 public:
  void lock() {
    while (taken_.exchange(true, std::memory_order_acquire))
      std::this_thread::yield();
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_ = false;
};

class CachingAllocator final
    : public Allocator,
      public std::enable_shared_from_this<CachingAllocator> {
 public:
  // `of_host`: allocates host memory, for Device::copy_host().
  explicit CachingAllocator(Device& device, bool of_host = false)
      : device_(device),
        of_host_(of_host),
        has_memory_(device.kind() != Device::Kind::kNone),
        at_once_(device.kind() == Device::Kind::kCpu) {}
  ~CachingAllocator() override { drop_cache(); }

  Device& device() const override { return device_; }
  const std::shared_ptr<Allocator>& host() override {
    std::lock_guard lock(mutex_);
    if (!host_) host_ = std::make_shared<CachingAllocator>(device_, true);
    return host_;
  }
  int64_t host_peak() const override {
    std::lock_guard lock(mutex_);
    return host_ ? host_->stats().peak_bytes : 0;
  }

  void* allocate(int64_t bytes, Stream stream, std::string_view tag,
                 MemoryKind kind) override {
    DT_CHECK(bytes >= 0, "allocate", "{} asks for {} bytes; ask for 0 or more",
             requester(tag), bytes);
    std::lock_guard lock(mutex_);
    void* block = nullptr;
    if (has_memory_) {
      const int64_t cached = cached_;  // read before take() may empty the cache
      if (bytes <= kMost)
        block = capturing_ ? take_captured(stream, size_class(bytes))
                           : take(pool(pools_, stream), size_class(bytes));
      if (!block) no_memory(bytes, tag, cached);
      unpoison(block, bytes);
    }
    count(bytes, tag, kind);
    return block;
  }

  void release(void* block, int64_t bytes, Stream stream,
               MemoryKind kind) override {
    if (!block && has_memory_) return;
    std::lock_guard lock(mutex_);
    count_out(bytes, kind);
    if (!block) return;
    const SizeClass c = size_class(bytes);
    poison(block, c.bytes);
    if (!arenas_.empty() && keep(block, stream, c)) return;
    put(pool(pools_, stream), c, block);
    cached_ += c.bytes;
  }

  void release_behind(void* block, int64_t bytes, Stream from, Stream last,
                      MemoryKind kind) override {
    if (from == last) return release(block, bytes, last, kind);
    std::lock_guard lock(mutex_);
    count_out(bytes, kind);
    if (!block) return;
    const SizeClass c = size_class(bytes);
    if (!arenas_.empty() && keep(block, last, c)) return;
    // `blocks` does not count a block that is left from a destroyed graph.
    size_t& blocks = class_of(pool(pools_, from), c).blocks;
    if (blocks > 0) --blocks;
    unpoison(block, c.bytes);
    give_back(block, c.bytes, last);
  }

  void recount(int64_t bytes, MemoryKind from, MemoryKind to) override {
    std::lock_guard lock(mutex_);
    of(from).current_bytes -= bytes;
    add(of(to), bytes);
  }

  Stats stats() const override {
    std::lock_guard lock(mutex_);
    return stats_;
  }

  void reset_peak() override {
    std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.current_bytes;
    for (Stats::Kind& k : stats_.kinds) k.peak_bytes = k.current_bytes;
    if (host_) host_->reset_peak();
  }

  std::shared_ptr<void> begin_capture(Stream stream) override {
    std::lock_guard lock(mutex_);
    DT_CHECK(!capturing_, "cuda graph",
             "this rank is already capturing a graph; end that capture first");
    // Return cached blocks to the device, so that the graph can get their
    // memory.
    drop_cache();
    if (!source_) source_ = device_.open_stream();
    arenas_.push_back(std::make_unique<Arena>());
    capturing_ = arenas_.back().get();
    return {capturing_, [self = shared_from_this(), stream](void* arena) {
              self->end_arena(static_cast<Arena*>(arena), stream);
            }};
  }
  void set_unused_only(bool set) override {
    std::lock_guard lock(mutex_);
    unused_only_ = set;
  }
  void end_capture() override {
    std::lock_guard lock(mutex_);
    capturing_ = nullptr;
    device_.synchronize(*source_);
  }

 private:
  // The largest request in bytes: the size of an address space. size_class()
  // overflows only for far larger requests.
  static constexpr int64_t kMost = int64_t{1} << 47;

  struct Class {
    std::vector<void*> cached;
    size_t blocks = 0;  // cached or handed out
    int64_t bytes = 0;  // the size of one block
  };
  // A released block is reused only on the stream that released it: later work
  // of that stream runs after the work that may still use the block.
  struct Pool {
    Stream stream;
    std::vector<Class> classes;
  };

  // The memory of one CUDA graph, see begin_capture().
  struct Arena {
    struct Block {
      SizeClass size;
      bool held;  // handed out and not released
    };
    std::unordered_map<void*, Block> blocks;
    std::vector<Pool> pools;  // reusable blocks, during the capture
  };

  void* get(int64_t bytes, Stream stream) {
    return of_host_ ? device_.allocate_host(bytes, stream)
                    : device_.allocate(bytes, stream);
  }
  void give_back(void* block, int64_t bytes, Stream stream) noexcept {
    of_host_ ? device_.release_host(block, bytes, stream)
             : device_.release(block, bytes, stream);
  }

  void* take_captured(Stream stream, SizeClass c) {
    Class& mine = class_of(pool(capturing_->pools, stream), c);
    void* block = nullptr;
    if (!mine.cached.empty() && !unused_only_) {
      block = mine.cached.back();
      mine.cached.pop_back();
      capturing_->blocks.at(block).held = true;
      return block;
    }
    make_room(mine);
    // Allocate on a stream that is not captured: on a captured one, the memory
    // would become part of the graph.
    block = get(c.bytes, *source_);
    if (!block) return nullptr;
    ++mine.blocks;
    capturing_->blocks[block] = {c, true};
    return block;
  }

  // Keeps a released block if a graph may still use it; else returns false.
  // During a capture, that is any block: the captured work may use it.
  bool keep(void* block, Stream stream, SizeClass c) {
    for (const auto& arena : arenas_) {
      const auto it = arena->blocks.find(block);
      if (it == arena->blocks.end()) continue;
      it->second.held = false;
      if (arena.get() == capturing_) put(pool(arena->pools, stream), c, block);
      return true;
    }
    if (!capturing_) return false;
    capturing_->blocks[block] = {c, false};
    return true;
  }

  void end_arena(Arena* arena, Stream stream) {
    std::lock_guard lock(mutex_);
    if (capturing_ == arena) capturing_ = nullptr;
    // Blocks that tensors still hold become ordinary blocks.
    for (const auto& [block, b] : arena->blocks) {
      if (b.held) continue;
      unpoison(block, b.size.bytes);
      give_back(block, b.size.bytes, stream);
    }
    std::erase_if(arenas_, [&](const auto& a) { return a.get() == arena; });
  }

  // Makes AddressSanitizer report accesses to a free block. Does nothing on a
  // device that runs work later: work that was enqueued before the release may
  // still access the block.
  void poison(void* block, int64_t bytes) {
    if (at_once_) ASAN_POISON_MEMORY_REGION(block, static_cast<size_t>(bytes));
  }
  void unpoison(void* block, int64_t bytes) {
    if (at_once_)
      ASAN_UNPOISON_MEMORY_REGION(block, static_cast<size_t>(bytes));
  }

  static Pool& pool(std::vector<Pool>& pools, Stream stream) {
    for (Pool& p : pools)
      if (p.stream == stream) return p;
    pools.push_back({stream, {}});
    return pools.back();
  }
  static Class& class_of(Pool& pool, SizeClass c) {
    if (pool.classes.size() <= c.index) pool.classes.resize(c.index + 1);
    pool.classes[c.index].bytes = c.bytes;
    return pool.classes[c.index];
  }
  // Makes room in `cached` for every block of the class. Called for each new
  // block, because release() must not fail.
  static void make_room(Class& c) {
    if (c.blocks + 1 > c.cached.capacity()) c.cached.reserve(2 * c.blocks + 4);
  }
  static void put(Pool& pool, SizeClass c, void* block) {
    class_of(pool, c).cached.push_back(block);
  }

  // Returns a cached or a new block of the class, or null if out of memory.
  void* take(Pool& from, SizeClass c) {
    Class& mine = class_of(from, c);
    if (!mine.cached.empty()) {
      void* block = mine.cached.back();
      mine.cached.pop_back();
      cached_ -= c.bytes;
      return block;
    }
    make_room(mine);
    void* block = get(c.bytes, from.stream);
    if (!block) {
      drop_cache();
      block = get(c.bytes, from.stream);
    }
    if (!block) return nullptr;
    ++mine.blocks;
    // allocate() unpoisons the requested bytes; the rest of the block stays
    // poisoned.
    poison(block, c.bytes);
    return block;
  }

  void drop_cache() {
    for (Pool& p : pools_)
      for (Class& c : p.classes) {
        for (void* block : c.cached) {
          unpoison(block, c.bytes);
          give_back(block, c.bytes, p.stream);
        }
        c.blocks -= std::min(c.blocks, c.cached.size());
        c.cached.clear();
      }
    cached_ = 0;
  }

  [[noreturn]] void no_memory(int64_t bytes, std::string_view tag,
                              int64_t cached) const {
    std::string device;
    if (of_host_)
      device = ", all of it pinned memory of the host";
    else if (const auto m = device_.memory(); m.total > 0)
      device = fmt::format(", and {} of {} are free on the device",
                           amount(m.free), amount(m.total));
    std::vector<std::pair<int64_t, std::string_view>> largest;
    for (const auto& [name, most] : stats_.largest_by_tag)
      largest.push_back({most, name});
    std::stable_sort(largest.begin(), largest.end(),
                     [](auto& a, auto& b) { return a.first > b.first; });
    if (largest.size() > 3) largest.resize(3);
    std::string tags;
    for (const auto& [most, name] : largest)
      tags += fmt::format("{} {} for {}",
                          tags.empty() ? "; the largest requests before:" : ",",
                          amount(most), requester(name));
    out_of_memory(bytes, tag,
                  fmt::format("{} are in use and {} were cached{}{}",
                              amount(stats_.current_bytes), amount(cached),
                              device, tags));
  }

  Stats::Kind& of(MemoryKind k) { return stats_.kinds[static_cast<size_t>(k)]; }
  static void add(Stats::Kind& k, int64_t bytes) {
    k.current_bytes += bytes;
    k.peak_bytes = std::max(k.peak_bytes, k.current_bytes);
  }

  void count_out(int64_t bytes, MemoryKind kind) {
    stats_.current_bytes -= bytes;
    of(kind).current_bytes -= bytes;
  }
  void count(int64_t bytes, std::string_view tag, MemoryKind kind) {
    add(of(kind), bytes);
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

  Device& device_;
  const bool of_host_, has_memory_, at_once_;
  int64_t cached_ = 0;  // bytes of all cached blocks
  mutable SpinLock mutex_;
  Stats stats_;
  std::pair<const std::string, int64_t>* last_ = nullptr;
  std::vector<Pool> pools_;
  std::vector<std::unique_ptr<Arena>> arenas_;  // one per existing graph
  Arena* capturing_ = nullptr;
  bool unused_only_ = false;
  std::optional<Stream> source_;     // allocates the memory of graphs
  std::shared_ptr<Allocator> host_;  // see host()
};

}  // namespace

std::shared_ptr<Allocator> Allocator::on(Device& device) {
  return std::make_shared<CachingAllocator>(device);
}

}  // namespace dtensor
