// SPDX-License-Identifier: Apache-2.0
// A GPU as a Device. boxes_test.cc tests its operations on boxes.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/device/cuda.h"
#include "dtensor/device/out_of_memory.h"
#include "dtensor/device/running_op.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/shape.h"
#include "tests/dtensor/device/gpu.h"

namespace dtensor {
namespace {

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    device_ = gpu();
    if (!device_) GTEST_SKIP() << no_gpu();
    stream_ = device_->open_stream();
  }

  int32_t* block(int64_t n) {
    return static_cast<int32_t*>(device_->allocate(n * 4, stream_));
  }
  void fill(Stream s, int32_t* x, int64_t n, int32_t value) {
    device_->fill(s, DType::kI32, Shape{n}, x, Shape{1}, value);
  }
  std::vector<int32_t> read(Stream s, const int32_t* x, int64_t n) {
    std::vector<int32_t> values(static_cast<size_t>(n));
    device_->to_host(s, values.data(), x, n * 4);
    return values;
  }

  Device* device_ = nullptr;
  Stream stream_;
};

std::string error_of(auto&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST_F(CudaDeviceTest, HasMemory) {
  EXPECT_EQ(device_->kind(), Device::Kind::kCuda);
  const Device::Memory memory = device_->memory();
  EXPECT_GT(memory.total, int64_t{1} << 30);
  EXPECT_GT(memory.free, 0);
  EXPECT_LE(memory.free, memory.total);
  for (int64_t bytes : {1, 63, 64, 1000, 1 << 20, 300 << 20}) {
    void* a = device_->allocate(bytes, stream_);
    void* b = device_->allocate(bytes, stream_);
    ASSERT_NE(a, nullptr);
    ASSERT_NE(b, nullptr);
    EXPECT_NE(a, b);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
    device_->release(a, bytes, stream_);
    device_->release(b, bytes, stream_);
  }
}

TEST_F(CudaDeviceTest, GoesOnWhenThereIsNoMore) {
  const int64_t total = device_->memory().total;
  EXPECT_EQ(device_->allocate(2 * total, stream_), nullptr);
  const std::string message = error_of(
      [&] { Allocator::on(*device_)->allocate(2 * total, stream_, "matmul"); });
  EXPECT_EQ(message.find("[allocate] " + amount(2 * total) +
                         " for 'matmul' cannot be allocated"),
            0u)
      << message;
  EXPECT_NE(message.find(" of " + amount(total) + " are free on the device"),
            std::string::npos)
      << message;
  int32_t* x = block(100);
  fill(stream_, x, 100, 7);
  EXPECT_EQ(read(stream_, x, 100), std::vector<int32_t>(100, 7));
  device_->release(x, 400, stream_);
}

// Memory that another stream released can be allocated once its work is done.
TEST_F(CudaDeviceTest, TakesWhatOtherStreamsFreed) {
  const Stream other = device_->open_stream();
  const int64_t most = device_->memory().free / 3 * 2;
  void* block = device_->allocate(most, other);
  ASSERT_NE(block, nullptr);
  fill(other, static_cast<int32_t*>(block), 100, 7);
  device_->release(block, most, other);
  block = device_->allocate(most, stream_);
  EXPECT_NE(block, nullptr);
  device_->release(block, most, stream_);
}

// An allocation that fails does not wait for a stream that is being captured,
// so the capture continues.
TEST_F(CudaDeviceTest, HasNoMoreWhileItIsCaptured) {
  const Stream other = device_->open_stream();
  const int64_t total = device_->memory().total;
  int32_t* x = block(100);
  fill(stream_, x, 100, 7);
  device_->begin_capture(stream_);
  fill(stream_, x, 100, 8);
  EXPECT_EQ(device_->allocate(2 * total, other), nullptr);
  fill(stream_, x + 50, 50, 9);
  const auto work = device_->end_capture(stream_);
  EXPECT_EQ(read(stream_, x, 1)[0], 7);
  device_->replay(stream_, *work);
  EXPECT_EQ(read(stream_, x, 1)[0], 8);
  EXPECT_EQ(read(stream_, x + 99, 1)[0], 9);
  device_->release(x, 400, stream_);
}

// Sizes around those of the buffers that copies go through. The host's bytes
// are overwritten as soon as they have been taken.
TEST_F(CudaDeviceTest, CopiesOfAnySize) {
  for (int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{65535},
                        int64_t{65536}, int64_t{65537}, int64_t{4 << 20},
                        int64_t{4 << 20} + 1, int64_t{100 << 20} + 5}) {
    std::vector<uint8_t> host(static_cast<size_t>(bytes));
    for (size_t i = 0; i < host.size(); ++i)
      host[i] = static_cast<uint8_t>(i * 31 + i / 256);
    const std::vector<uint8_t> want = host;
    void* x = device_->allocate(bytes + 1, stream_);
    device_->from_host(stream_, x, host.data(), bytes);
    std::fill(host.begin(), host.end(), uint8_t{0});
    device_->to_host(stream_, host.data(), x, bytes);
    EXPECT_TRUE(host == want) << bytes;
    device_->release(x, bytes + 1, stream_);
  }
}

TEST_F(CudaDeviceTest, ManySmallCopiesWaitForNothing) {
  constexpr int64_t kCopies = 40;
  int32_t* x = block(kCopies);
  device_->synchronize(stream_);
  const int64_t before = device_->waits();
  for (int32_t i = 0; i < kCopies; ++i) {
    int32_t value = i;
    device_->from_host(stream_, x + i, &value, 4);
    value = -1;
  }
  EXPECT_EQ(device_->waits(), before);
  std::vector<int32_t> want(kCopies);
  std::iota(want.begin(), want.end(), 0);
  EXPECT_EQ(read(stream_, x, kCopies), want);
  EXPECT_EQ(device_->waits(), before + 1);
  device_->release(x, kCopies * 4, stream_);
}

// Work of another stream after an event sees all work before that event.
TEST_F(CudaDeviceTest, EventsOrderStreams) {
  const Stream other = device_->open_stream();
  // So many elements (some thousandths of its memory) keep a GPU busy for a
  // while.
  const int64_t elements = device_->memory().total / 1024;
  int32_t *x = block(elements), *y = block(elements);
  device_->synchronize(stream_);
  for (int32_t round = 1; round <= 20; ++round) {
    for (int i = 0; i < 5; ++i) fill(stream_, x, elements, -1);
    fill(stream_, x, elements, round);
    device_->wait(other, device_->record(stream_));
    device_->copy(other, 4, Shape{elements}, y, Shape{1}, x, Shape{1});
    device_->wait(stream_, device_->record(other));
    EXPECT_EQ(read(other, y + elements - 1, 1)[0], round);
  }
  device_->wait(stream_, Event{});
  device_->release(x, elements * 4, stream_);
  device_->release(y, elements * 4, stream_);
}

// More threads than there are buffers for copies.
TEST_F(CudaDeviceTest, ThreadsCopyAtOnce) {
  std::vector<std::thread> threads;
  for (int32_t t = 0; t < 12; ++t)
    threads.emplace_back([&, t] {
      constexpr int64_t kElements = (20 << 20) / 4 + 3;
      const Stream s = device_->open_stream();
      auto* x = static_cast<int32_t*>(device_->allocate(kElements * 4, s));
      for (int32_t round = 0; round < 3; ++round) {
        std::vector<int32_t> values(kElements, 10 * t + round);
        device_->from_host(s, x, values.data(), kElements * 4);
        EXPECT_TRUE(read(s, x, kElements) == values) << t << " " << round;
      }
      device_->release(x, kElements * 4, s);
    });
  for (std::thread& t : threads) t.join();
}

TEST_F(CudaDeviceTest, RefusesWhatIsWrong) {
  EXPECT_NE(error_of([&] {
              device_->synchronize({this});
            }).find("is not a stream of a CUDA device"),
            std::string::npos);
  EXPECT_EQ(error_of([&] {
              device_->divide(stream_, DType::kI64, 1, nullptr, nullptr,
                              nullptr);
            }),
            "[divide] i64 is not a float type; cast to f32 first");
  const int n = cuda_devices();
  EXPECT_EQ(error_of([&] {
              cuda(n);
            }).find("[cuda] cuda:" + std::to_string(n) + " does not exist"),
            0u);
}

// Runs in a process of its own: the device accepts no work from it afterwards.
TEST_F(CudaDeviceTest, WorkThatFailsLaterNamesTheOperators) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        std::string_view op = "arange";
        keep_running_op(&op);
        int32_t* x = block(10);
        fill(stream_, x, 10, 1);
        device_->synchronize(stream_);
        op = "matmul";
        fill(stream_, reinterpret_cast<int32_t*>(64), 10, 1);
        op = "loss";
        const std::string message = error_of([&] { read(stream_, x, 10); });
        std::fprintf(stderr, "%s\n", message.c_str());
        device_->release(x, 40, stream_);
        std::_Exit(0);
      },
      testing::ExitedWithCode(0),
      "\\[cuda\\] earlier work of cuda:0 has failed: CUDA says "
      "cudaErrorIllegalAddress .* in reply to .* for 'loss'; the work since "
      "the last wait is from matmul, loss; run with CUDA_LAUNCH_BLOCKING=1");
}

}  // namespace
}  // namespace dtensor
