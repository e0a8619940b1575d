// SPDX-License-Identifier: Apache-2.0
// Runs a GPU's kernels on the tests' memory: for each call, the memory that it
// reads and writes is copied to the device and back. Skips tests if there is no
// GPU.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <vector>

#include "dtensor/placement/error.h"
#include "tests/dtensor/device/given_kernels.h"
#include "tests/dtensor/device/gpu.h"
#include "tests/nothrow_new.h"
#include "tests/ops/kernels/testing.h"

namespace dtensor::kernels {
namespace {

// All blocks of the heap, by first byte: a call has pointers to anywhere in a
// block, and does not say how long the block is.
class Heap {
 public:
  struct Block {
    char* begin = nullptr;
    size_t size = 0;
  };

  void add(void* p, size_t size) {
    std::lock_guard lock(mutex_);
    blocks_[static_cast<char*>(p)] = size;
  }
  void remove(void* p) {
    std::lock_guard lock(mutex_);
    blocks_.erase(static_cast<char*>(p));
  }
  // The block that p points into, or to the end of. Throws Error if there is
  // none.
  Block find(const void* p) {
    const Block block = last_before(static_cast<const char*>(p));
    DT_CHECK(block.begin && p <= block.begin + block.size, "kernels_under_test",
             "{} is not on the heap; a GPU is given Arrays and std::vectors",
             p);
    return block;
  }

 private:
  // An allocator that does not use operator new, so that its memory is not in
  // the Heap.
  template <class T>
  struct Aside {
    using value_type = T;
    Aside() = default;
    template <class U>
    Aside(const Aside<U>&) {}
    T* allocate(size_t n) {
      void* const p = std::malloc(n * sizeof(T));
      if (!p) throw std::bad_alloc();
      return static_cast<T*>(p);
    }
    void deallocate(T* p, size_t) { std::free(p); }
    bool operator==(const Aside&) const { return true; }
  };

  Block last_before(const char* p) {
    std::lock_guard lock(mutex_);
    const auto next = blocks_.upper_bound(p);
    if (next == blocks_.begin()) return {};
    const auto& [begin, size] = *std::prev(next);
    return {begin, size};
  }

  std::mutex mutex_;
  std::map<char*, size_t, std::less<>, Aside<std::pair<char* const, size_t>>>
      blocks_;
};

// Never destroyed, because other static variables are freed late.
Heap& heap() {
  alignas(Heap) static char place[sizeof(Heap)];
  static Heap* const heap = new (place) Heap;
  return *heap;
}

// The device's copies of the blocks that a call points into.
class Copies {
 public:
  Copies(Device& device, Stream s) : device_(device), stream_(s) {}
  ~Copies() {
    for (const Copy& c : copies_) device_.release(c.data, bytes(c), stream_);
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  template <class T>
  void to_device(T*& p) {
    if (!p) return;
    const Heap::Block block = heap().find(p);
    const Copy* there = nullptr;
    for (const Copy& c : copies_)
      if (c.block.begin == block.begin) there = &c;
    if (!there) {
      Copy made{block, nullptr};
      made.data = device_.allocate(bytes(made), stream_);
      DT_CHECK(made.data, "kernels_under_test", "the GPU has no {} bytes more",
               bytes(made));
      device_.from_host(stream_, made.data, block.begin,
                        static_cast<int64_t>(block.size));
      there = &copies_.emplace_back(made);
    }
    using Bytes = std::conditional_t<std::is_const_v<T>, const char, char>;
    const auto offset = reinterpret_cast<const char*>(p) - block.begin;
    p = reinterpret_cast<T*>(static_cast<Bytes*>(there->data) + offset);
  }
  void to_host() {
    for (const Copy& c : copies_)
      device_.to_host(stream_, c.block.begin, c.data,
                      static_cast<int64_t>(c.block.size));
  }

 private:
  struct Copy {
    Heap::Block block;
    void* data;
  };
  static int64_t bytes(const Copy& c) {
    return std::max<int64_t>(1, static_cast<int64_t>(c.block.size));
  }

  Device& device_;
  const Stream stream_;
  std::vector<Copy> copies_;
};

class OnGpu final : public GivenKernels<OnGpu> {
 public:
  explicit OnGpu(Device& device)
      : device_(device),
        kernels_(kernels_of(device)),
        stream_(device.open_stream()) {}

  bool has(const KernelName& name) const override { return kernels_.has(name); }
  template <class Kernel>
  void given(Stream, Kernel kernel) const {
    Copies copies(device_, stream_);
    HostArrays arrays;
    arrays.keep(kernel, [&](auto*& p) { copies.to_device(p); });
    kernels_.run(stream_, kernel);
    copies.to_host();
  }

 private:
  Device& device_;
  const Kernels& kernels_;
  const Stream stream_;
};

struct SkipWithoutGpu : testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override {
    if (!gpu()) GTEST_SKIP() << no_gpu();
  }
};
[[maybe_unused]] const bool skips = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new SkipWithoutGpu);
  return true;
}();

}  // namespace

const Kernels& under_test() {
  static const OnGpu kernels(*gpu());
  return kernels;
}

int64_t vectors_and_more() { return 19; }

}  // namespace dtensor::kernels

void* operator new(size_t size) {
  void* const p = std::malloc(size ? size : 1);
  if (!p) throw std::bad_alloc();
  dtensor::kernels::heap().add(p, size);
  return p;
}
void operator delete(void* p) noexcept {
  if (p) dtensor::kernels::heap().remove(p);
  std::free(p);
}
void operator delete(void* p, size_t) noexcept { operator delete(p); }
