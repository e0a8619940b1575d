// SPDX-License-Identifier: Apache-2.0
#include "tests/dtensor/device/recording_device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string_view>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/device/running_op.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/tensor.h"

namespace dtensor {
namespace {

constexpr int64_t kUnit[] = {1};

class RecordingDeviceTest : public testing::Test {
 protected:
  RecordingDeviceTest() {
    context_.device = device_.get();
    context_.allocator = Allocator::on(*device_);
    context_.stream = device_->open_stream();
    RankContext::set_current(&context_);
  }
  ~RecordingDeviceTest() override { RankContext::set_current(nullptr); }

  float* block(Stream s) {
    return static_cast<float*>(device_->allocate(64, s));
  }
  void fill(Stream s, float* x, double value) {
    const int64_t shape[] = {16};
    device_->fill(s, DType::kF32, shape, x, kUnit, value);
  }
  void copy(Stream s, float* to, const float* from) {
    const int64_t shape[] = {16};
    EXPECT_EQ(device_->copy(s, 4, shape, to, kUnit, from, kUnit), 64);
  }
  float read(Stream s, const float* x) {
    float value = 0;
    device_->to_host(s, &value, x + 3, sizeof(value));
    return value;
  }

  const std::unique_ptr<RecordingDevice> device_ = RecordingDevice::make();
  RankContext context_;
};

TEST_F(RecordingDeviceTest, WorkRunsLateAndInOrder) {
  const Stream s = context_.stream;
  float *x = block(s), *y = block(s);
  fill(s, x, 1);
  copy(s, y, x);
  fill(s, x, 2);
  EXPECT_EQ(device_->waiting(), 3);
  EXPECT_EQ(device_->works(), 0);
  EXPECT_EQ(read(s, y), 1);
  EXPECT_EQ(read(s, x), 2);
  EXPECT_EQ(device_->waiting(), 0);
  EXPECT_EQ(device_->works(), 3);
}

TEST_F(RecordingDeviceTest, TensorsAreReadThroughIt) {
  Tensor t = Tensor::full({2, 3}, DType::kI32, 7);
  t.slice(1, 1, 2).fill(-1);
  EXPECT_GT(device_->waiting(), 0);
  EXPECT_EQ(t.to_doubles(), (std::vector<double>{7, -1, 7, 7, -1, 7}));
  EXPECT_EQ(t.transpose(0, 1).to_doubles(),
            (std::vector<double>{7, 7, -1, -1, 7, 7}));
  EXPECT_EQ(t.at(4), -1);
  const float values[] = {1.5f, 2.5f};
  EXPECT_EQ(Tensor::from<float>({2}, values).at(1), 2.5);
}

// A planted read, and a planted write, by the host.
TEST_F(RecordingDeviceTest, TheHostMayNotTouchItsMemory) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Tensor t = Tensor::full({4}, DType::kF32, 1);
  EXPECT_EQ(t.at(0), 1);
  const volatile float* data = t.ptr<float>();
  EXPECT_DEATH((void)data[0], "the host touches memory of the device");
  EXPECT_DEATH(*t.mutable_ptr<float>() = 3,
               "the host touches memory of the device");
}

// Without a wait, stream b copies memory that stream a has not filled yet.
TEST_F(RecordingDeviceTest, StreamsAreOrderedByEventsAlone) {
  const Stream a = context_.stream, b = device_->open_stream();
  for (bool waits : {false, true}) {
    float *x = block(a), *y = block(b);
    fill(a, x, 1);
    if (waits) device_->wait(b, device_->record(a));
    copy(b, y, x);
    if (waits)
      EXPECT_EQ(read(b, y), 1);
    else
      EXPECT_TRUE(std::isnan(read(b, y)));
  }
}

// Work that the stream was given after the event need not have run.
TEST_F(RecordingDeviceTest, AnEventIsAPoint) {
  const Stream a = context_.stream, b = device_->open_stream();
  float *x = block(a), *y = block(b);
  fill(a, x, 1);
  const Event event = device_->record(a);
  fill(a, x, 2);
  device_->wait(b, event);
  copy(b, y, x);
  EXPECT_EQ(read(b, y), 1);
  EXPECT_EQ(device_->waiting(), 1);
}

// A block that one stream frees does not go to another one while the first may
// still use it.
TEST_F(RecordingDeviceTest, FreedMemoryStaysWithItsStream) {
  const auto allocator = context_.allocator;
  const Stream a = context_.stream, b = device_->open_stream();
  auto* x = static_cast<float*>(allocator->allocate(64, a, ""));
  float* y = block(a);
  fill(a, x, 1);
  copy(a, y, x);
  allocator->release(x, 64, a);
  auto* other = static_cast<float*>(allocator->allocate(64, b, ""));
  EXPECT_NE(other, x);
  fill(b, other, 5);
  device_->synchronize(b);
  auto* again = static_cast<float*>(allocator->allocate(64, a, ""));
  EXPECT_EQ(again, x);
  fill(a, again, 6);
  EXPECT_EQ(read(a, y), 1);
  allocator->release(other, 64, b);
  allocator->release(again, 64, a);
}

// The host does not wait when it gives work to a stream, but when it reads a
// result.
TEST_F(RecordingDeviceTest, WaitsAreCounted) {
  const Stream s = context_.stream;
  float* x = block(s);
  const float values[16] = {};
  device_->from_host(s, x, values, sizeof(values));
  fill(s, x, 1);
  device_->wait(s, device_->record(s));
  EXPECT_EQ(device_->waits(), 0);
  read(s, x);
  EXPECT_EQ(device_->waits(), 1);
  device_->synchronize(s);
  EXPECT_EQ(device_->waits(), 2);
}

// The Error's text, or "".
template <class Fn>
std::string told(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST_F(RecordingDeviceTest, ACaptureRunsWhenItIsReplayed) {
  const Stream a = context_.stream, b = device_->open_stream();
  float *x = block(a), *y = block(a), *z = block(b);
  fill(a, x, 1);
  device_->begin_capture(a);
  copy(a, y, x);
  device_->wait(b, device_->record(a));
  copy(b, z, y);
  fill(a, x, 5);
  device_->wait(a, device_->record(b));
  const auto work = device_->end_capture(a);
  EXPECT_TRUE(std::isnan(read(a, y)));
  EXPECT_EQ(read(a, x), 1);
  const int64_t given = device_->given();
  device_->replay(a, *work);
  EXPECT_EQ(device_->given(), given + 1);
  EXPECT_EQ(read(a, z), 1);
  EXPECT_EQ(read(a, x), 5);
  fill(a, x, 2);
  device_->replay(a, *work);
  device_->replay(a, *work);
  EXPECT_EQ(read(a, z), 5);
}

// In a capture, a stream sees what another one wrote only if it waited.
TEST_F(RecordingDeviceTest, CapturedStreamsAreOrderedByEventsAlone) {
  const Stream a = context_.stream, b = device_->open_stream();
  float *x = block(a), *y = block(a);
  for (bool waits : {false, true}) {
    fill(a, x, 1);
    device_->begin_capture(a);
    device_->wait(b, device_->record(a));
    fill(b, x, 2);
    const Event done = device_->record(b);
    if (waits) device_->wait(a, done);
    copy(a, y, x);
    if (!waits) device_->wait(a, done);
    const auto work = device_->end_capture(a);
    device_->replay(a, *work);
    EXPECT_EQ(read(a, y), waits ? 2 : 1);
  }
}

TEST_F(RecordingDeviceTest, RulesOfCaptures) {
  const Stream a = context_.stream, b = device_->open_stream(),
               c = device_->open_stream();
  float *x = block(a), value = 0;
  const Event before = device_->record(c);
  device_->begin_capture(a);
  device_->begin_capture(b);
  const Event of_a = device_->record(a);
  EXPECT_EQ(told([&] { device_->to_host(a, &value, x, 4); }),
            "[cuda graph] a stream copies to the host while it is captured; do "
            "that before or after");
  EXPECT_NE(told([&] { device_->from_host(a, x, &value, 4); }), "");
  EXPECT_NE(told([&] { device_->synchronize(a); }), "");
  EXPECT_NE(told([&] { device_->begin_capture(a); }), "");
  EXPECT_NE(told([&] { device_->wait(a, before); }), "");
  EXPECT_NE(told([&] { device_->wait(b, of_a); }), "");
  device_->wait(c, of_a);
  fill(c, x, 1);
  EXPECT_EQ(told([&] { device_->end_capture(a); }),
            "[device] a stream was captured and not waited for in the end");
  EXPECT_NE(told([&] { device_->wait(c, of_a); }), "");
  EXPECT_NE(told([&] { device_->end_capture(a); }), "");
  device_->drop_capture(b);
  device_->synchronize(b);
  device_->synchronize(c);
}

// Memory that a captured stream allocates and releases belongs to the capture.
TEST_F(RecordingDeviceTest, MemoryOfACapture) {
  const Stream a = context_.stream;
  float* y = block(a);
  device_->begin_capture(a);
  float* x = block(a);
  copy(a, y, x);
  fill(a, x, 3);
  device_->release(x, 64, a);
  auto work = device_->end_capture(a);
  EXPECT_NE(block(a), x);
  for (int i = 0; i < 2; ++i) {
    device_->replay(a, *work);
    EXPECT_TRUE(std::isnan(read(a, y)));  // new in every replay
  }
  work = nullptr;
  EXPECT_EQ(block(a), x);
}

TEST_F(RecordingDeviceTest, WhatHasTheMemoryWhenThereIsNoMore) {
  const auto little = RecordingDevice::make(1 << 20);
  const auto allocator = Allocator::on(*little);
  const Stream s = little->open_stream();
  const auto get = [&](int64_t bytes, std::string_view tag) {
    return allocator->allocate(bytes, s, tag);
  };
  get(300 << 10, "matmul");
  get(64, "sum");
  get(256, "");
  for (int times = 0; times < 2; ++times)
    allocator->release(get(100 << 10, "gather"), 100 << 10, s);
  try {
    get(800 << 10, "softmax");
    FAIL();
  } catch (const Error& e) {
    // Blocks are of classes: 320 << 10 for the largest.
    EXPECT_STREQ(
        e.what(),
        "[allocate] 800.0 KiB for 'softmax' of rank 0 cannot be allocated: "
        "300.3 KiB are in use and 104.0 KiB were cached, and 599.7 KiB of 1.0 "
        "MiB are free on the device; the largest requests before: 300.0 KiB "
        "for 'matmul', 100.0 KiB for 'gather', 256 bytes for a tensor; use a "
        "smaller batch, split the tensors over more ranks (--mesh), or, in "
        "training, split the optimizer's state (ZeRO), or recompute or offload "
        "activations");
  }
  // The cached blocks have gone back to the device.
  little->synchronize(s);
  EXPECT_EQ(little->memory().free, (1 << 20) - (320 << 10) - 64 - 256);
}

TEST_F(RecordingDeviceTest, TheRunningOperatorIsKnown) {
  EXPECT_EQ(running_op(), "");
  {
    const Scoped<std::string_view> op(context_.op, "matmul");
    EXPECT_EQ(running_op(), "matmul");
  }
  EXPECT_EQ(running_op(), "");
  context_.op = "add";
  RankContext::set_current(nullptr);
  EXPECT_EQ(running_op(), "");
}

}  // namespace
}  // namespace dtensor
