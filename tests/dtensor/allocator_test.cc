// SPDX-License-Identifier: Apache-2.0
#include "dtensor/allocator.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/tensor.h"
#include "tests/dtensor/device/recording_device.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

const Stream kStream{};

TEST(AllocatorTest, BlocksAreAlignedAndDistinct) {
  auto a = Allocator::on(cpu());
  std::vector<std::pair<void*, int64_t>> held;
  std::set<void*> seen;
  for (int64_t bytes : {0, 1, 63, 64, 65, 511, 512, 513, 4096, 5000, 1 << 20}) {
    for (int i = 0; i < 3; ++i) {
      void* p = a->allocate(bytes, kStream, "t");
      ASSERT_NE(p, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
      EXPECT_TRUE(seen.insert(p).second);
      std::memset(p, 0xab, static_cast<size_t>(bytes));
      held.push_back({p, bytes});
    }
  }
  for (auto [p, bytes] : held) a->release(p, bytes, kStream);
  EXPECT_EQ(a->stats().current_bytes, 0);
}

TEST(AllocatorTest, FreedBlocksServeTheirSizeClass) {
  auto a = Allocator::on(cpu());
  void* p = a->allocate(1000, kStream, "t");
  a->release(p, 1000, kStream);
  EXPECT_EQ(a->allocate(1024, kStream, "t"), p);  // 961..1024 are one class
  a->release(p, 1024, kStream);
  void* q = a->allocate(1025, kStream, "t");
  EXPECT_NE(q, p);
  a->release(q, 1025, kStream);
  EXPECT_EQ(a->allocate(961, kStream, "t"), p);
  a->release(p, 961, kStream);
  q = a->allocate(960, kStream, "t");
  EXPECT_NE(q, p);
  a->release(q, 960, kStream);
}

// A freed block serves every size of its class, and is never too short for it
// (the address sanitizer watches the writes).
TEST(AllocatorTest, EverySizeFitsItsBlock) {
  auto a = Allocator::on(cpu());
  for (int64_t bytes = 0; bytes < 5000; ++bytes) {
    void* p = a->allocate(bytes, kStream, "t");
    std::memset(p, 1, static_cast<size_t>(bytes));
    a->release(p, bytes, kStream);
  }
  for (int64_t k = 13; k < 24; ++k)
    for (int64_t d : {-1, 0, 1}) {
      const int64_t bytes = (int64_t{1} << k) + d;
      void* p = a->allocate(bytes, kStream, "t");
      std::memset(p, 1, static_cast<size_t>(bytes));
      a->release(p, bytes, kStream);
    }
}

TEST(AllocatorTest, Counts) {
  auto a = Allocator::on(cpu());
  void* p = a->allocate(100, kStream, "matmul");
  void* q = a->allocate(50, kStream, "add");
  EXPECT_EQ(a->stats().current_bytes, 150);
  EXPECT_EQ(a->stats().peak_bytes, 150);
  EXPECT_EQ(a->stats().allocations, 2);
  a->release(p, 100, kStream);
  EXPECT_EQ(a->stats().current_bytes, 50);
  EXPECT_EQ(a->stats().peak_bytes, 150);
  a->reset_peak();
  EXPECT_EQ(a->stats().peak_bytes, 50);
  p = a->allocate(30, kStream, "matmul");
  EXPECT_EQ(a->stats().peak_bytes, 80);
  EXPECT_EQ(a->stats().largest_by_tag,
            (std::map<std::string, int64_t, std::less<>>{{"matmul", 100},
                                                         {"add", 50}}));
  a->release(p, 30, kStream);
  a->release(q, 50, kStream);
  // Stats copy the tags, so a tag may be destroyed after the call.
  std::string tag = "long-lived-tag-that-allocates";
  a->release(a->allocate(7, kStream, tag), 7, kStream);
  tag = "another";
  EXPECT_EQ(a->stats().largest_by_tag.at("long-lived-tag-that-allocates"), 7);
  EXPECT_EQ(a->stats().allocations, 4);
}

TEST(AllocatorTest, CountsByKind) {
  auto a = Allocator::on(cpu());
  using K = MemoryKind;
  void* p = a->allocate(100, kStream, "w", K::kParameters);
  void* q = a->allocate(50, kStream, "x");
  EXPECT_EQ(a->stats().of(K::kParameters).current_bytes, 100);
  EXPECT_EQ(a->stats().of(K::kActivations).current_bytes, 50);
  EXPECT_EQ(a->stats().of(K::kState).peak_bytes, 0);
  a->recount(50, K::kActivations, K::kGradients);
  EXPECT_EQ(a->stats().of(K::kActivations).current_bytes, 0);
  EXPECT_EQ(a->stats().of(K::kActivations).peak_bytes, 50);
  EXPECT_EQ(a->stats().of(K::kGradients).peak_bytes, 50);
  EXPECT_EQ(a->stats().current_bytes, 150);
  a->release(q, 50, kStream, K::kGradients);
  a->release(p, 100, kStream, K::kParameters);
  a->reset_peak();
  for (const auto& kind : a->stats().kinds) {
    EXPECT_EQ(kind.current_bytes, 0);
    EXPECT_EQ(kind.peak_bytes, 0);
  }
  EXPECT_EQ(name(K::kGathered), "gathered");
}

TEST(AllocatorTest, TooMuch) {
  auto a = Allocator::on(cpu());
  auto error_of = [&](int64_t bytes) -> std::string {
    try {
      a->allocate(bytes, kStream, "matmul");
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of(-1),
            "[allocate] 'matmul' asks for -1 bytes; ask for 0 or more");
  EXPECT_EQ(error_of(int64_t{1} << 62),
            "[allocate] 4194304.0 TiB for 'matmul' cannot be allocated: 0 "
            "bytes are in use and 0 bytes were cached; use a smaller batch, "
            "split the tensors over more ranks (--mesh), or, in training, "
            "split the optimizer's state (ZeRO), or recompute or offload "
            "activations");
  EXPECT_EQ(a->stats().allocations, 0);
  void* p = a->allocate(64, kStream, "t");  // the allocator still works
  a->release(p, 64, kStream);
}

// The cached blocks go back to the device before an allocation fails.
TEST(AllocatorTest, TooMuchEmptiesTheCache) {
  const auto device = RecordingDevice::make(1 << 20);
  auto a = Allocator::on(*device);
  const Stream stream = device->open_stream();
  a->release(a->allocate(1 << 18, stream, "t"), 1 << 18, stream);
  for (const char* cached : {"256.0 KiB were cached", "0 bytes were cached"})
    EXPECT_NE(testing::error_of([&] {
                a->allocate(1 << 21, stream, "u");
              }).find(cached),
              std::string::npos);
}

TEST(AllocatorTest, OthersMayRelease) {
  auto a = Allocator::on(cpu());
  constexpr int kThreads = 4, kEach = 500;
  std::vector<std::vector<void*>> blocks(kThreads);
  for (auto& list : blocks)
    for (int i = 0; i < kEach; ++i)
      list.push_back(a->allocate(100 + i, kStream, "t"));
  std::vector<std::thread> threads;
  for (auto& list : blocks)
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i)
        a->release(list[static_cast<size_t>(i)], 100 + i, kStream);
    });
  for (int i = 0; i < kEach; ++i)
    a->release(a->allocate(i, kStream, "u"), i, kStream);
  for (auto& t : threads) t.join();
  EXPECT_EQ(a->stats().current_bytes, 0);
  EXPECT_EQ(a->stats().allocations, kThreads * kEach + kEach);
}

// One stream allocates blocks that another one uses last. The blocks go back to
// the device and do not pile up in a cache.
TEST(AllocatorTest, BlocksThatEndOnAnotherStreamGoBack) {
  const auto device = RecordingDevice::make(4 << 20);
  auto a = Allocator::on(*device);
  const Stream one = device->open_stream(), two = device->open_stream();
  for (int i = 0; i < 20; ++i) {
    void* p = a->allocate(1 << 20, one, "t");
    a->release_behind(p, 1 << 20, one, two, MemoryKind::kActivations);
    EXPECT_EQ(a->stats().current_bytes, 0);
    // The device gets the block only when the work of `two` is done.
    EXPECT_EQ(device->waiting(), 1);
    device->synchronize(two);
  }
  EXPECT_EQ(device->memory().free, 4 << 20);
}

TEST(AllocatorTest, BlocksThatEndOnAnotherStreamAreForgotten) {
  auto a = Allocator::on(cpu());
  const Stream other{&a};
  const auto used = [] {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const size_t before = used();
  for (int i = 0; i < 100'000; ++i)
    a->release_behind(a->allocate(64, kStream, "t"), 64, kStream, other,
                      MemoryKind::kActivations);
  EXPECT_LT(used(), before + (64 << 10));
}

TEST(AllocatorTest, ACaptureHasMemoryOfItsOwn) {
  auto a = Allocator::on(cpu());
  const Stream other{&a};
  const auto get = [&](Stream s) { return a->allocate(1000, s, "t"); };
  const auto put = [&](void* p, Stream s) { a->release(p, 1000, s); };
  void *const kept = get(kStream), *const dropped = get(kStream);
  std::shared_ptr<void> memory = a->begin_capture(kStream);
  EXPECT_THROW(a->begin_capture(kStream), Error);
  put(dropped, kStream);
  void *const mine = get(kStream), *const result = get(kStream);
  EXPECT_NE(mine, dropped);  // the graph may read it
  put(mine, kStream);
  void* const others = get(other);
  EXPECT_NE(others, mine);  // blocks are reused on their own stream only
  EXPECT_EQ(get(kStream), mine);
  put(mine, kStream);
  put(others, other);
  // The captured work must not overwrite memory that is written before a
  // replay.
  a->set_unused_only(true);
  void* const written = get(kStream);
  EXPECT_NE(written, mine);
  a->set_unused_only(false);
  put(written, kStream);
  a->end_capture();
  // No allocation gets a block of the capture while the graph lives.
  std::set<void*> seen = {dropped, mine, others, result, kept};
  std::vector<void*> later;
  for (int i = 0; i < 8; ++i) {
    later.push_back(get(i % 2 ? other : kStream));
    EXPECT_TRUE(seen.insert(later.back()).second);
  }
  for (int i = 0; i < 8; ++i)
    put(later[static_cast<size_t>(i)], i % 2 ? other : kStream);
  EXPECT_EQ(a->stats().current_bytes, 2000);
  // A block that is in use outlives the graph, and is then a block like any
  // other.
  std::memset(result, 1, 1000);
  memory = nullptr;
  std::memset(result, 2, 1000);
  put(result, kStream);
  EXPECT_EQ(get(kStream), result);
  put(result, kStream);
  put(kept, kStream);
  EXPECT_EQ(a->stats().current_bytes, 0);
}

// The first capture's memory is destroyed during the second capture.
TEST(AllocatorTest, Captures) {
  auto a = Allocator::on(cpu());
  std::shared_ptr<void> first = a->begin_capture(kStream);
  void* p = a->allocate(64, kStream, "t");
  a->end_capture();
  std::shared_ptr<void> second = a->begin_capture(kStream);
  a->release(p, 64, kStream);
  void* q = a->allocate(64, kStream, "t");
  EXPECT_NE(p, q);
  first = nullptr;
  a->release(q, 64, kStream);
  EXPECT_EQ(a->allocate(64, kStream, "t"), q);
  second = nullptr;  // the capture is given up
  a->release(q, 64, kStream);
  EXPECT_EQ(a->allocate(64, kStream, "t"), q);
  a->release(q, 64, kStream);
}

// Bytes go to the host and back in the order of the stream's work, and are
// copied again only if they have changed.
TEST(AllocatorTest, TensorsGoToTheHostAndBack) {
  const auto device = RecordingDevice::make();
  RankContext context;
  context.device = device.get();
  context.allocator = Allocator::on(*device);
  context.stream = device->open_stream();
  RankContext::set_current(&context);
  Allocator& here = *context.allocator;
  const auto& host = here.host();
  EXPECT_EQ(here.host_peak(), 0);
  {
    const Tensor t = Tensor::full({2, 50}, DType::kF32, 1);
    const Tensor row = t.slice(0, 1, 2);
    Storage& s = *t.storage();
    const uint64_t version = s.version();
    EXPECT_FALSE(s.was_away());
    s.offload();
    EXPECT_TRUE(s.away());
    EXPECT_EQ(s.data(), nullptr);
    EXPECT_EQ(here.stats().current_bytes, 0);
    EXPECT_EQ(host->stats().current_bytes, 400);
    s.set_kind(MemoryKind::kState);
    {
      // Gets the memory that was freed.
      const Tensor other = Tensor::full({100}, DType::kF32, 7);
      EXPECT_EQ(row.at(3), 1);
      EXPECT_EQ(other.at(3), 7);
    }
    EXPECT_FALSE(s.away());
    EXPECT_EQ(s.version(), version);
    EXPECT_EQ(here.stats().of(MemoryKind::kState).current_bytes, 400);
    const int64_t given = device->given();
    s.offload();
    EXPECT_EQ(device->given(), given);
    row.fill(3);
    s.offload();
    s.offload();
    EXPECT_EQ(t.to_doubles()[49], 1);
    EXPECT_EQ(t.to_doubles()[50], 3);
    s.offload();
    EXPECT_EQ(here.host_peak(), 400);
    EXPECT_EQ(host->stats().of(MemoryKind::kState).current_bytes, 400);
  }
  EXPECT_EQ(here.stats().current_bytes, 0);
  EXPECT_EQ(host->stats().current_bytes, 0);
  EXPECT_EQ(here.stats().of(MemoryKind::kState).current_bytes, 0);
  here.reset_peak();
  EXPECT_EQ(here.host_peak(), 0);
  RankContext::set_current(nullptr);
  // On a CPU, nothing moves.
  const Tensor t = Tensor::full({2}, DType::kF32, 1);
  t.storage()->offload();
  EXPECT_FALSE(t.storage()->was_away());
}

TEST(AllocatorTest, TooMuchForTheHostIsAnError) {
  const auto device = RecordingDevice::make(1 << 20);
  const auto host = Allocator::on(*device)->host();
  const std::string e = testing::error_of(
      [&] { host->allocate(int64_t{2} << 20, device->open_stream(), "op"); });
  EXPECT_NE(e.find("all of it pinned memory of the host"), std::string::npos)
      << e;
}

TEST(AllocatorTest, DryRunCountsTheSame) {
  auto real = Allocator::on(cpu()), dry = Allocator::on(no_device());
  for (auto& a : {real, dry}) {
    void* p = a->allocate(1000, kStream, "x");
    a->release(p, 1000, kStream);
    p = a->allocate(300, kStream, "y");
    a->release(p, 300, kStream);
  }
  EXPECT_EQ(dry->allocate(int64_t{1} << 45, kStream, "huge"), nullptr);
  EXPECT_EQ(dry->stats().current_bytes, int64_t{1} << 45);
  dry->release(nullptr, int64_t{1} << 45, kStream);
  EXPECT_EQ(dry->stats().current_bytes, 0);
  EXPECT_EQ(dry->stats().largest_by_tag.at("x"),
            real->stats().largest_by_tag.at("x"));
  EXPECT_EQ(dry->stats().allocations, real->stats().allocations + 1);
}

}  // namespace
}  // namespace dtensor
