#include "dtensor/runtime/device_choice.h"

#include <gtest/gtest.h>

#include "dtensor/placement/error.h"
#include "dtensor/runtime/device/cuda.h"

namespace dtensor {
namespace {

TEST(DeviceChoice, Reads) {
  EXPECT_FALSE(parse_device("cpu").cuda);
  EXPECT_TRUE(parse_device("cuda").cuda);
  EXPECT_EQ(parse_device("cuda").first, 0);
  EXPECT_EQ(parse_device("cuda:12").first, 12);
  for (const char* text : {"", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:1x",
                           "cuda: 1", "cuda:-1", "cuda:99999999999", "cuda1"})
    EXPECT_THROW(parse_device(text), Error) << text;
}

TEST(DeviceChoice, RanksTakeTurns) {
  const DeviceChoice c{.cuda = true, .first = 1, .ranks_per_gpu = 3};
  EXPECT_EQ(c.index(0), 1);
  EXPECT_EQ(c.index(2), 1);
  EXPECT_EQ(c.index(3), 2);
}

TEST(DeviceChoice, TheCpuNeedsNone) {
  EXPECT_FALSE(devices_for(parse_device("cpu"), 1000));
}

TEST(DeviceChoice, MoreThanThereAre) {
  DeviceChoice c = parse_device("cuda");
  int there = 0;
  try {
    there = cuda_devices();
  } catch (const Error& e) {
    EXPECT_THROW(devices_for(c, 1), Error);
    GTEST_SKIP() << "no GPU: " << e.what();
  }
  EXPECT_TRUE(devices_for(c, there));
  EXPECT_THROW(devices_for(c, there + 1), Error);
  c.ranks_per_gpu = 4;
  EXPECT_EQ(&devices_for(c, 4)(3), &cuda(0));
  c.first = there;
  EXPECT_THROW(devices_for(c, 1), Error);
}

}  // namespace
}  // namespace dtensor
