// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/cuda_plugin/failure.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/placement/error.h"

namespace dtensor::cuda {
namespace {

using Names = std::vector<std::string>;

TEST(GivenTest, OperatorsInOrderAndOnce) {
  Given given;
  EXPECT_EQ(given.names(), Names());
  for (const char* op : {"matmul", "matmul", "", "add", "matmul", "softmax"})
    given.note(op);
  EXPECT_EQ(given.names(), (Names{"matmul", "add", "softmax"}));
  given.clear();
  EXPECT_EQ(given.names(), Names());
}

TEST(GivenTest, NamesAreCopies) {
  Given given;
  std::string name = "relu";
  given.note(name);
  name = "gelu";
  given.note(name);
  name = "none";
  EXPECT_EQ(given.names(), (Names{"relu", "gelu"}));
  const std::string longest(31, 'x');
  given.note(longest + "cut");
  given.note(longest);
  EXPECT_EQ(given.names(), (Names{"relu", "gelu", longest}));
}

TEST(GivenTest, TheLastOfMany) {
  Given given;
  for (int i = 0; i < 100; ++i) given.note("op" + std::to_string(i));
  const Names names = given.names();
  ASSERT_EQ(names.size(), 32u);
  EXPECT_EQ(names.front(), "op68");
  EXPECT_EQ(names.back(), "op99");
}

std::string message(void (*fn)()) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing";
}

TEST(FailureTest, SaysWhatCudaSays) {
  EXPECT_EQ(message([] {
              refused({"cudaErrorInvalidValue", "invalid argument", 1, "launch",
                       "matmul"});
            }),
            "[cuda] launch failed on cuda:1 for 'matmul': CUDA says "
            "cudaErrorInvalidValue (invalid argument); look up this code in "
            "CUDA's manual");
  EXPECT_EQ(
      message([] {
        refused({"cudaErrorInvalidValue", "invalid argument", 0, "copy", ""});
      }),
      "[cuda] copy failed on cuda:0: CUDA says cudaErrorInvalidValue (invalid "
      "argument); look up this code in CUDA's manual");
  EXPECT_EQ(message([] {
              refused({"cudaErrorNoKernelImageForDevice", "no kernel image", 0,
                       "launch", "randn"});
            }),
            "[cuda] launch failed on cuda:0 for 'randn': CUDA says "
            "cudaErrorNoKernelImageForDevice (no kernel image); build "
            "libdtensor_cuda.so for this GPU too: DTENSOR_CUDA_ARCHS="
            "86-real,90 covers compute capability 8.6, and 9.0 and later");
  EXPECT_EQ(
      message([] {
        failed_later({"cudaErrorIllegalAddress",
                      "an illegal memory access was encountered", 0,
                      "copy to the host", "loss"},
                     {"matmul", "add"});
      }),
      "[cuda] earlier work of cuda:0 has failed: CUDA says "
      "cudaErrorIllegalAddress (an illegal memory access was encountered) in "
      "reply to 'copy to the host' for 'loss'; the work since the last wait is "
      "from matmul, add; run with CUDA_LAUNCH_BLOCKING=1 to see which work "
      "failed, and restart, because the device accepts no more work from this "
      "program");
  EXPECT_EQ(
      message([] {
        failed_later(
            {"cudaErrorAssert", "device-side assert triggered", 2, "wait", ""},
            {});
      }),
      "[cuda] earlier work of cuda:2 has failed: CUDA says "
      "cudaErrorAssert (device-side assert triggered) in reply to 'wait'; "
      "run with CUDA_LAUNCH_BLOCKING=1 to see which work failed, and "
      "restart, because the device accepts no more work from this program");
}

}  // namespace
}  // namespace dtensor::cuda
