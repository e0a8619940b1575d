// SPDX-License-Identifier: Apache-2.0
#include "dtensor/device/device.h"

#include <gtest/gtest.h>

#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/placement/shape.h"

namespace dtensor {
namespace {

TEST(DeviceTest, TheCpuWorksAtOnce) {
  Device& d = cpu();
  EXPECT_EQ(d.kind(), Device::Kind::kCpu);
  const Stream s = d.open_stream();
  EXPECT_EQ(s, Stream{});
  void* block = d.allocate(100, s);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
  const float values[] = {1, 2, 3, 4, 5, 6};
  d.from_host(s, block, values, sizeof(values));
  float back[6] = {};
  d.to_host(s, back, block, sizeof(back));
  EXPECT_EQ(back[5], 6);
  EXPECT_EQ(d.copy(s, 4, Shape{3, 2}, back, Shape{2, 1}, block, Shape{1, 3}),
            24);
  EXPECT_EQ(back[1], 4);
  int64_t whole[6];
  d.cast(s, Shape{6}, DType::kI64, whole, Shape{1}, DType::kF32, back,
         Shape{1});
  EXPECT_EQ(whole[1], 4);
  d.fill(s, DType::kI64, Shape{3}, whole, Shape{2}, -1);
  EXPECT_EQ(std::vector<int64_t>(whole, whole + 4),
            (std::vector<int64_t>{-1, 4, -1, 5}));
  const int64_t unit[] = {1};
  const Operand both[] = {{back, unit}, {values, unit}};
  EXPECT_EQ(d.reduce(s, ReduceOp::kAvg, DType::kF32, Shape{6}, back, Shape{1},
                     both, 2),
            24);
  EXPECT_EQ(back[1], 3);
  d.divide(s, DType::kF32, 6, back, back, values);
  EXPECT_EQ(back[1], 1.5f);
  d.wait(s, d.record(s));
  d.synchronize(s);
  d.release(block, 100, s);
}

TEST(DeviceTest, OnlyFloatsAreDivided) {
  int64_t x[] = {4}, y[] = {2};
  EXPECT_THROW(cpu().divide({}, DType::kI64, 1, x, x, y), Error);
}

TEST(DeviceTest, NoDeviceHasSizesAlone) {
  Device& d = no_device();
  EXPECT_EQ(d.kind(), Device::Kind::kNone);
  const Stream s = d.open_stream();
  EXPECT_EQ(d.allocate(int64_t{1} << 50, s), nullptr);
  EXPECT_EQ(d.copy(s, 4, Shape{6}, nullptr, Shape{1}, nullptr, Shape{1}), 0);
  d.fill(s, DType::kF32, Shape{6}, nullptr, Shape{1}, 3);
  float values[] = {5, 6};
  d.from_host(s, nullptr, values, 8);
  d.to_host(s, values, nullptr, 8);
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(values[1], 0);
  d.release(nullptr, int64_t{1} << 50, s);
}

}  // namespace
}  // namespace dtensor
