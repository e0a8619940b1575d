// SPDX-License-Identifier: Apache-2.0
// Training by processes that have a GPU each, on machines without GPUs: the
// GPUs are devices whose work runs later, and NCCL exchanges files
// (tests/dtensor/fake_gpus.cc). Losses and bytes are those of thread ranks on
// the CPU.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "tests/faults/child.h"
#include "tests/mpirun.h"
#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

const std::string kProgram = "tests/programs/train_on_fake_gpus",
                  kFlags =
                      " --layers 2 --hidden 22 --heads 11 --ffn 37 --seq 13 "
                      "--batch 4 --lr 1e-3 --dtype f64 --steps 3 --sample 9";

struct Starter {
  std::string name, command, flags;
};
void PrintTo(const Starter& s, std::ostream* out) { *out << s.name; }

class NcclTrain : public ::testing::TestWithParam<Starter> {
 protected:
  void SetUp() override {
    if (GetParam().name.starts_with("mpi") && !no_mpi().empty())
      GTEST_SKIP() << no_mpi();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  // The command that starts the processes, with these flags.
  std::string command(const std::string& flags,
                      const std::string& environment = "") const {
    return "env FILE_NCCL=" + folder_ + " " + environment + " " +
           GetParam().command + kProgram + kFlags + GetParam().flags + flags;
  }

  const std::string folder_ = temporary("nccl");
};

// Sets what a launcher sets for four processes on two machines with two
// processes each.
const std::string kTwoMachines =
    "tests/tcprun.sh 4 sh -c 'LOCAL_RANK=$((RANK % 2)) LOCAL_WORLD_SIZE=2 "
    "FAKE_HOST=$((RANK / 2)) FAKE_GPUS=${FAKE_GPUS-2} exec $0 \"$@\"' ";

INSTANTIATE_TEST_SUITE_P(
    Starters, NcclTrain,
    ::testing::Values(Starter{"tcp", "tests/tcprun.sh 4 ", ""},
                      Starter{"two_machines", kTwoMachines, ""},
                      Starter{"tcp_of_2", "tests/tcprun.sh 2 ",
                              " --ranks-per-process 2"},
                      Starter{"mpi", mpirun(4), ""},
                      Starter{"mpi_of_2", mpirun(2),
                              " --ranks-per-process 2 --backend nccl"}),
    [](const auto& info) { return info.param.name; });

TEST_P(NcclTrain, AsThreadsDo) {
  const std::string mesh = " --json - --mesh dp=2,tp=2";
  Child threads(kProgram + kFlags + mesh);
  Child gpus(command(mesh + " --device cuda"));
  ASSERT_EQ(threads.wait(60), 0) << threads.err();
  ASSERT_EQ(gpus.wait(60), 0) << gpus.err();
  EXPECT_FALSE(std::filesystem::is_empty(folder_));
  const Json a = Json::parse(gpus.out()), b = Json::parse(threads.out());
  EXPECT_EQ(a["losses"].size(), 3u);
  for (const char* what : {"losses", "grad_norms", "sample", "collectives"})
    EXPECT_EQ(a[what], b[what]) << what;
}

TEST_P(NcclTrain, TooFewGpus) {
  const bool pair = GetParam().name == "two_machines";
  Child child(command(" --mesh dp=2,tp=2 --device cuda",
                      pair ? "FAKE_GPUS=1" : "FAKE_GPUS=3"));
  EXPECT_EQ(child.wait(20), 2) << child.err();
  const std::string ranks = pair ? "2" : "4", there = pair ? "1" : "3";
  for (const std::string& text :
       {"[--device] " + ranks + " of the run's ranks are on this machine, ",
        "need " + ranks + " GPUs from cuda:0 on, but this process sees only " +
            there + " of these"})
    EXPECT_NE(child.err().find(text), std::string::npos) << child.err();
}

// Each process is shown as many GPUs as it needs, but they are the same ones.
TEST_P(NcclTrain, OneGpuForTwo) {
  const bool pairs = GetParam().name.ends_with("_of_2");
  Child child(
      command(" --mesh dp=2,tp=2 --device cuda",
              pairs ? "CUDA_VISIBLE_DEVICES=3,1" : "CUDA_VISIBLE_DEVICES=2"));
  EXPECT_EQ(child.wait(20), 1) << child.err();
  EXPECT_NE(child.err().find("[nccl] NCCL takes one rank per GPU, but ranks "),
            std::string::npos)
      << child.err();
}

// A process is killed in a call of NCCL, in which the others wait for it.
TEST_P(NcclTrain, OneIsKilled) {
  const auto begun = std::chrono::steady_clock::now();
  Child child(command(" --mesh dp=4 --device cuda", "FILE_NCCL_KILL='3 2'"));
  EXPECT_NE(child.wait(20), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(15))
      << "nobody has noticed\n"
      << child.err();
  if (GetParam().name.starts_with("mpi")) return;  // mpirun has its own words
  // Its connections end with it, and the other processes know only that.
  EXPECT_NE(child.err().find(!GetParam().name.ends_with("_of_2")
                                 ? "rank 3 failed: the connection to its "
                                 : "rank 2 failed: the connection to its "),
            std::string::npos)
      << child.err();
}

}  // namespace
}  // namespace dtensor::testing
