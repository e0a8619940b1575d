#include "dtensor/device/reserve.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/placement/error.h"
#include "tests/dtensor/device/recording_device.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

constexpr int64_t kBytes = 1 << 20;
using testing::error_of;

class ReserveTest : public ::testing::Test {
 protected:
  int64_t offset(void* block) const {
    return static_cast<char*>(block) - memory_;
  }

  const std::unique_ptr<RecordingDevice> device_ =
      RecordingDevice::make(2 * kBytes);
  const Stream one_ = device_->open_stream(), two_ = device_->open_stream();
  char* const memory_ = static_cast<char*>(device_->allocate(kBytes, one_));
  int64_t freed_ = 0;
  std::shared_ptr<Reserve> reserve_ =
      Reserve::add(*device_, memory_, kBytes, [this] { ++freed_; });
};

TEST_F(ReserveTest, IsThatOfItsDeviceWhileSomebodyHoldsIt) {
  EXPECT_EQ(Reserve::of(*device_), reserve_);
  EXPECT_EQ(Reserve::of(cpu()), nullptr);
  EXPECT_EQ(reserve_->data(), memory_);
  EXPECT_EQ(reserve_->bytes(), kBytes);
  EXPECT_TRUE(reserve_->has(memory_) && reserve_->has(memory_ + kBytes - 1));
  EXPECT_FALSE(reserve_->has(memory_ - 1) || reserve_->has(memory_ + kBytes));
  EXPECT_TRUE(reserve_->has(memory_ + 5, kBytes - 5));
  EXPECT_FALSE(reserve_->has(memory_ + 5, kBytes - 4));
  EXPECT_EQ(error_of([&] { Reserve::add(*device_, memory_, 64, [] {}); }),
            "[reserve] the device has already reserved 1048576 bytes and "
            "cannot reserve 64 more; reserve all of them at once");
  std::weak_ptr<Reserve> seen = reserve_;
  reserve_ = nullptr;
  EXPECT_TRUE(seen.expired());
  EXPECT_EQ(freed_, 1);
  EXPECT_EQ(Reserve::of(*device_), nullptr);
}

TEST_F(ReserveTest, GivesTheSmallestGapThatIsLargeEnough) {
  Reserve& r = *reserve_;
  std::vector<void*> blocks;
  for (int64_t bytes : {1000, 3000, 2000, 0})
    blocks.push_back(r.allocate(bytes, one_));
  EXPECT_EQ(offset(blocks[1]), 1024);
  EXPECT_EQ(offset(blocks[2]), 1024 + 3072);
  EXPECT_EQ(offset(blocks[3]), 1024 + 3072 + 2048);
  EXPECT_EQ(r.free(), kBytes - 1024 - 3072 - 2048 - 512);
  r.release(blocks[0], one_);
  r.release(blocks[2], one_);
  device_->synchronize(one_);
  EXPECT_EQ(r.allocate(1024, one_), blocks[0]);
  EXPECT_EQ(r.allocate(1025, one_), blocks[2]);
  EXPECT_EQ(offset(r.allocate(500, one_)), 1024 + 3072 + 1536);
  EXPECT_EQ(r.allocate(kBytes, one_), nullptr);
  EXPECT_EQ(r.allocate(int64_t{1} << 62, one_), nullptr);
}

TEST_F(ReserveTest, NeighboursBecomeOne) {
  Reserve& r = *reserve_;
  std::vector<void*> quarters;
  for (int i = 0; i < 4; ++i)
    quarters.push_back(r.allocate(kBytes / 4, i % 2 ? two_ : one_));
  EXPECT_EQ(r.allocate(1, one_), nullptr);
  for (const Stream s : {one_, two_}) device_->later(s, [] {});
  for (int i : {2, 0, 3, 1})
    r.release(quarters[static_cast<size_t>(i)], i % 2 ? two_ : one_);
  EXPECT_EQ(r.free(), kBytes);
  device_->synchronize(one_);
  EXPECT_EQ(r.allocate(kBytes, one_), nullptr);  // two_ may use half of it
  device_->synchronize(two_);
  EXPECT_EQ(r.allocate(kBytes, one_), memory_);
}

// What is free is not kept from a stream by what is not, beside it.
TEST_F(ReserveTest, NeighboursWaitForNobody) {
  Reserve& r = *reserve_;
  void* const block = r.allocate(kBytes / 4, one_);
  device_->later(one_, [] {});
  r.release(block, one_);
  EXPECT_EQ(offset(r.allocate(kBytes * 3 / 4, two_)), kBytes / 4);
}

// The stream that released it may have it at once, others when its work is
// done.
TEST_F(ReserveTest, WhatAStreamMayUseIsNoOthers) {
  Reserve& r = *reserve_;
  void* const block = r.allocate(kBytes, one_);
  bool ran = false;
  device_->later(one_, [&] { ran = true; });
  r.release(block, one_);
  EXPECT_EQ(r.allocate(64, two_), nullptr);
  EXPECT_EQ(r.allocate(64, one_), block);
  // Nor what it took of that.
  EXPECT_EQ(r.allocate(64, two_), nullptr);
  EXPECT_FALSE(ran);
  device_->synchronize(one_);
  EXPECT_NE(r.allocate(64, two_), nullptr);
}

TEST_F(ReserveTest, IsFreedWhenNoStreamUsesIt) {
  void* const block = reserve_->allocate(64, two_);
  bool ran = false;
  device_->later(two_, [&] { ran = true; });
  reserve_->release(block, two_);
  reserve_ = nullptr;
  EXPECT_TRUE(ran);
  EXPECT_EQ(freed_, 1);
}

// No two that are held overlap, whoever takes and releases.
TEST_F(ReserveTest, BlocksNeverOverlap) {
  Reserve& r = *reserve_;
  std::mt19937 draw(7);
  std::map<int64_t, std::pair<int64_t, Stream>> held;
  int64_t taken = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const Stream s = draw() % 2 ? one_ : two_;
    if (draw() % 64 == 0) device_->synchronize(s);
    if (draw() % 2 && !held.empty()) {
      const auto it =
          std::next(held.begin(), static_cast<int64_t>(draw() % held.size()));
      r.release(memory_ + it->first, it->second.second);
      held.erase(it);
      continue;
    }
    const auto bytes = static_cast<int64_t>(draw() % (kBytes / 16));
    void* const block = r.allocate(bytes, s);
    if (!block) {
      ++refused;
      continue;
    }
    ++taken;
    const int64_t begin = offset(block), end = begin + bytes;
    EXPECT_TRUE(begin % 512 == 0 && begin >= 0 && end <= kBytes);
    const auto next = held.lower_bound(begin);
    if (next != held.end()) {
      EXPECT_LE(end, next->first);
    }
    if (next != held.begin()) {
      const auto last = std::prev(next);
      EXPECT_LE(last->first + last->second.first, begin);
    }
    held[begin] = {bytes, s};
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(refused, 100);
  for (const auto& [begin, b] : held) r.release(memory_ + begin, b.second);
  EXPECT_EQ(r.free(), kBytes);
}

// Allocators take theirs there first, but for an optimizer's state, and give it
// back there.
TEST_F(ReserveTest, AllocatorsTakeFromItFirst) {
  using K = MemoryKind;
  auto a = Allocator::on(*device_);
  void* const state = a->allocate(kBytes / 2, one_, "t", K::kState);
  EXPECT_FALSE(reserve_->has(state));
  void* const p = a->allocate(kBytes / 2, one_, "t");
  EXPECT_TRUE(reserve_->has(p));
  EXPECT_EQ(reserve_->free(), kBytes / 2);
  EXPECT_EQ(a->stats().current_bytes, kBytes);
  a->release(p, kBytes / 2, one_);
  EXPECT_EQ(reserve_->free(), kBytes / 2);  // cached
  EXPECT_EQ(a->allocate(kBytes / 2, one_, "t"), p);
  a->release_behind(p, kBytes / 2, one_, two_, K::kActivations);
  EXPECT_EQ(reserve_->free(), kBytes);
  // What has no room there is elsewhere; and the other way round.
  void* const more = a->allocate(kBytes * 3 / 4, two_, "t");
  void* const rest = a->allocate(kBytes / 2, two_, "t");
  EXPECT_TRUE(reserve_->has(more));
  EXPECT_FALSE(reserve_->has(rest));
  void* const last = a->allocate(kBytes / 8, two_, "t", K::kState);
  EXPECT_TRUE(reserve_->has(last));
  // There is one eighth left of the one, and nothing of the other.
  EXPECT_NE(error_of([&] { a->allocate(kBytes / 4, two_, "t"); })
                .find("1.9 MiB are in use and 0 bytes were cached, and 128.0 "
                      "KiB of 2.0 MiB are free on the device"),
            std::string::npos)
      << error_of([&] { a->allocate(kBytes / 4, two_, "t"); });
  a->release(state, kBytes / 2, one_, K::kState);
  a->release(more, kBytes * 3 / 4, two_);
  a->release(rest, kBytes / 2, two_);
  a->release(last, kBytes / 8, two_, K::kState);
  // What is cached is given back to both, and waited for, when there is no
  // more.
  void* const all = a->allocate(kBytes, two_, "t");
  EXPECT_EQ(all, memory_);
  a->release(all, kBytes, two_);
  a = nullptr;
  EXPECT_EQ(reserve_->free(), kBytes);
}

// As a graph's memory, until it dies.
TEST_F(ReserveTest, CapturesTakeFromItToo) {
  auto a = Allocator::on(*device_);
  std::shared_ptr<void> graph = a->begin_capture(one_);
  void* const p = a->allocate(kBytes / 2, one_, "t");
  EXPECT_TRUE(reserve_->has(p));
  a->release(p, kBytes / 2, one_);
  a->end_capture();
  EXPECT_EQ(reserve_->free(), kBytes / 2);
  graph = nullptr;
  EXPECT_EQ(reserve_->free(), kBytes);
}

}  // namespace
}  // namespace dtensor
