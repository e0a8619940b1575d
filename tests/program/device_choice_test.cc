// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/device_choice.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "dtensor/device/cuda.h"
#include "dtensor/placement/error.h"
#include "tests/testing.h"

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

// The GPUs of processes on two machines with four GPUs each.
TEST(DeviceChoice, ProcessesTakeTheirMachinesTurns) {
  const DeviceChoice all = parse_device("cuda");
  EXPECT_EQ(gpu_of_first(all, {{0, 4}, 4, 1}, 4, false), 0);
  EXPECT_EQ(gpu_of_first(all, {{3, 4}, 7, 1}, 4, false), 3);
  // With two ranks per process; with an unknown number of processes; and
  // beginning with another GPU.
  EXPECT_EQ(gpu_of_first(all, {{1, 2}, 6, 2}, 4, false), 2);
  EXPECT_EQ(gpu_of_first(all, {{3, 0}, 3, 1}, 4, false), 3);
  EXPECT_EQ(gpu_of_first(parse_device("cuda:1"), {{1, 3}, 1, 1}, 4, false), 2);
  // GPUs that were chosen for one process are all its own.
  EXPECT_EQ(gpu_of_first(all, {{3, 4}, 3, 1}, 1, true), 0);
  EXPECT_EQ(gpu_of_first(all, {{1, 2}, 2, 2}, 2, true), 0);
  EXPECT_EQ(gpu_of_first(all, {{1, 2}, 2, 2}, 4, true), 2);
}

TEST(DeviceChoice, MoreProcessesThanGpus) {
  const auto error = [](const char* device, const ProcessRanks& ranks,
                        int64_t there, bool chosen = false) -> std::string {
    try {
      gpu_of_first(parse_device(device), ranks, there, chosen);
      return "no error";
    } catch (const Error& e) {
      return e.what();
    }
  };
  // Processes that have a GPU say it too.
  EXPECT_EQ(error("cuda", {{0, 4}, 0, 1}, 3),
            "[--device] 4 of the run's ranks are on this machine, 1 per "
            "process, and need 4 GPUs from cuda:0 on, but this process sees "
            "only 3 of these; start fewer processes here");
  EXPECT_EQ(error("cuda:2", {{2, 0}, 4, 2}, 7),
            "[--device] at least 6 of the run's ranks are on this machine, 2 "
            "per process, and need 6 GPUs from cuda:2 on, but this process "
            "sees only 5 of these; start fewer processes here, or write a "
            "smaller --ranks-per-process");
  EXPECT_NE(error("cuda", {{0, 4}, 0, 1}, 1), "no error");
  EXPECT_NE(error("cuda", {{0, 4}, 0, 1}, 2, true), "no error");
  EXPECT_EQ(error("cuda", {{0, 4}, 0, 1}, 1, true), "no error");
}

TEST(DeviceChoice, ProcessesBeginWithAGpuThatExists) {
  EXPECT_EQ(testing::error_of([] {
              gpu_of_first(parse_device("cuda:3"), {{0, 2}, 0, 1}, 3, true);
            }),
            "[--device] cuda:3 does not exist, because this process sees 3 "
            "GPUs in all; write --device cuda, which begins with cuda:0");
}

// A process must make only its own GPUs: a context of each process would take
// memory of the first GPU. The fake library has two GPUs, and throws when it
// makes one. (The program is started again, since it loads the library once.)
TEST(DeviceChoiceDeathTest, AProcessMakesItsOwnGpusAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("DTENSOR_CUDA_LIBRARY", "tests/dtensor/device/libfake_cuda.so",
               1);
        std::fputs(testing::error_of([] {
                     devices_for(parse_device("cuda"), {{1, 2}, 1, 1})(1);
                   }).c_str(),
                   stderr);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^.fake. cuda:1 of ");
}

// The launcher tells a process which one of its machine's processes it is.
class LocalProcessTest : public ::testing::Test {
 protected:
  LocalProcessTest() { clear(); }
  ~LocalProcessTest() override { clear(); }
  static void clear() {
    for (const char* name :
         {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
          "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
          "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"})
      unsetenv(name);
  }
  static void expect(const char* backend, int64_t index, int64_t count) {
    const LocalProcess here = local_process(*process_backend(backend));
    EXPECT_EQ(here.index, index);
    EXPECT_EQ(here.count, count);
  }
};

TEST_F(LocalProcessTest, AsEachStarterSays) {
  EXPECT_THROW(local_process(*process_backend("mpi")), Error);
  setenv("SLURM_LOCALID", "1", 1);
  expect("mpi", 1, 0);
  for (const auto& [text, count] :
       std::map<const char*, int64_t>{{"4", 4},
                                      {"4(x2)", 4},
                                      {"4(x2),3", 0},
                                      {"4,3", 0},
                                      {"4(x)", 0},
                                      {"(x2)", 0}}) {
    setenv("SLURM_STEP_TASKS_PER_NODE", text, 1);
    expect("mpi", 1, count);
  }
  setenv("MPI_LOCALRANKID", "2", 1);
  setenv("MPI_LOCALNRANKS", "8", 1);
  expect("mpi", 2, 8);
  setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3", 1);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "5", 1);
  expect("mpi", 3, 5);
  expect("tcp", 3, 5);
  // torchrun's variables win for tcp, since one of these may have started
  // torchrun.
  setenv("LOCAL_RANK", "0", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  expect("mpi", 3, 5);
  expect("tcp", 0, 2);
}

TEST_F(LocalProcessTest, WhatIsNoNumber) {
  for (const char* text : {"one", "-1", "1x", "1.5"}) {
    setenv("LOCAL_RANK", text, 1);
    EXPECT_THROW(local_process(*process_backend("tcp")), Error) << text;
  }
  setenv("LOCAL_RANK", "", 1);
  setenv("MPI_LOCALRANKID", "2", 1);
  expect("tcp", 2, 0);
}

}  // namespace
}  // namespace dtensor
