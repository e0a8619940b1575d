// SPDX-License-Identifier: Apache-2.0
// Training by processes of MPI has the losses, bytes, samples, files and exit
// codes of training by thread ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/mpirun.h"
#include "tests/programs/running.h"
#include "tests/programs/traced.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

const std::string kModel =
    " --layers 2 --hidden 22 --heads 11 --ffn 37 --seq 13 --batch 5 --lr 1e-3";

struct Job {
  int64_t processes, ranks;  // in each
  std::string mesh, flags, environment = "";
};
void PrintTo(const Job& j, std::ostream* out) {
  *out << j.processes << " x " << j.ranks << " " << j.mesh << j.flags;
}

Ran train(const Job& job, const std::string& flags, bool threads = false) {
  std::string all = kModel + " --mesh " + job.mesh + job.flags + flags;
  if (threads) return run_program("train", all);
  if (job.ranks > 1) all += " --ranks-per-process " + std::to_string(job.ranks);
  return run_program("train", all, job.environment + mpirun(job.processes));
}

void expect_near(const Json& a, const Json& b, double most) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_FALSE(a.empty());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_LE(std::abs(a[i].get<double>() / b[i].get<double>() - 1), most) << i;
}

class MpiTrain : public ::testing::TestWithParam<Job> {
 protected:
  void SetUp() override {
    if (!no_mpi().empty()) GTEST_SKIP() << no_mpi();
  }
};

// The sums have the order of thread ranks, so they are equal. On one rank they
// are near.
TEST_P(MpiTrain, IsThatOfThreads) {
  const Job& job = GetParam();
  const std::string flags = " --dtype f64 --steps 5 --sample 12 --json -";
  const Ran mpi = train(job, flags), threads = train(job, flags, true);
  const Ran one = train({1, 1, "dp=1", ""}, flags, true);
  ASSERT_EQ(mpi.code, 0) << mpi.err;
  ASSERT_EQ(threads.code, 0) << threads.err;
  const Json a = Json::parse(mpi.out), b = Json::parse(threads.out);
  EXPECT_EQ(a["losses"], b["losses"]);
  EXPECT_EQ(a["grad_norms"], b["grad_norms"]);
  EXPECT_EQ(a["sample"], b["sample"]);
  // Counted bytes and measured memory.
  EXPECT_EQ(a["collectives"], b["collectives"]);
  EXPECT_EQ(a["parameters"], b["parameters"]);
  EXPECT_NE(mpi.err.find("predicted and counted bytes agree"),
            std::string::npos)
      << mpi.err;
  const Json c = Json::parse(one.out);
  expect_near(a["losses"], c["losses"], 1e-11);
  expect_near(a["grad_norms"], c["grad_norms"], 1e-10);
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, MpiTrain,
    ::testing::Values(
        Job{1, 1, "dp=1", ""}, Job{2, 1, "tp=2", ""},
        Job{2, 1, "dp=2", " --zero 3"}, Job{3, 1, "tp=3", ""},
        Job{4, 1, "dp=2,tp=2", " --zero 1"},
        Job{4, 1, "dp=2,tp=2", " --zero 3 --recompute block"},
        Job{5, 1, "dp=5", " --zero 2 --accumulate 2"},
        Job{6, 1, "dp=3,tp=2", ""}, Job{1, 4, "dp=2,tp=2", ""},
        Job{2, 2, "dp=2,tp=2", ""}, Job{2, 2, "tp=2,dp=2", " --zero 3"},
        Job{2, 1, "pp=2", " --schedule zb-h2"},
        Job{2, 2, "pp=2,dp=2", " --zero 1 --micro-batches 3"},
        Job{4, 1, "tp=2,pp=2", " --schedule gpipe"},
        Job{2, 3, "dp=2,tp=3", " --zero 1"}, Job{2, 3, "dp=6", " --zero 3"},
        Job{4, 1, "dp=2,tp=2", " --zero 3", "DTENSOR_MPI_SHARED_MEMORY=0 "},
        Job{2, 2, "dp=2,tp=2", "", "DTENSOR_MPI_SHARED_MEMORY=0 "},
        // Messages in pieces, as if they had more than 2^30 bytes.
        Job{4, 1, "dp=2,tp=2", " --zero 1",
            "DTENSOR_MPI_SHARED_MEMORY=0 DTENSOR_MPI_PIECE=4096 "},
        Job{2, 2, "dp=2,tp=2", "",
            "DTENSOR_MPI_SHARED_MEMORY=0 DTENSOR_MPI_PIECE=5000 "}));

class MpiProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!no_mpi().empty()) GTEST_SKIP() << no_mpi();
  }
};

// Threads on another mesh continue what processes have saved, and the other way
// round.
TEST_F(MpiProgram, CheckpointsAreForBoth) {
  const std::string flags = " --dtype f64 --steps 6 --sample 0 --json -";
  const Ran whole = train({1, 1, "dp=1", ""}, flags, true);
  const Json losses = Json::parse(whole.out)["losses"];
  const Job jobs[] = {{2, 1, "tp=2", " --zero 0"},
                      {4, 1, "dp=2,tp=2", " --zero 3"},
                      {2, 2, "dp=4", " --zero 1"}};
  for (const Job& job : jobs)
    for (const bool first_threads : {false, true}) {
      const std::string dir = temporary("both");
      std::filesystem::remove_all(dir);
      const std::string keep = " --checkpoint " + dir + " --every 3 --resume";
      const Job other{3, 1, "dp=3", " --zero 2"};
      const Ran begun = train(job, flags + keep, first_threads);
      ASSERT_EQ(begun.code, 0) << begun.err;
      // As if the run had been stopped after the third step.
      int64_t removed = 0;
      for (const auto& f : std::filesystem::directory_iterator(dir))
        if (f.path().filename().string().ends_with("6"))
          removed += std::filesystem::remove_all(f.path()) > 0;
      ASSERT_EQ(removed, 1);
      const Ran ended = train(other, flags + keep, !first_threads);
      ASSERT_EQ(ended.code, 0) << ended.err;
      const Json rest = Json::parse(ended.out);
      EXPECT_EQ(rest["first_step"], 3);
      expect_near(rest["losses"], Json(losses.begin() + 3, losses.end()),
                  1e-10);
    }
}

TEST_F(MpiProgram, WritesOneTrace) {
  const std::string path = temporary("trace.json");
  const Job jobs[] = {{4, 1, "dp=2,tp=2", ""}, {2, 2, "dp=2,tp=2", ""}};
  for (const Job& job : jobs) {
    const Ran r = train(job, " --steps 4 --sample 0 --json - --trace " + path);
    ASSERT_EQ(r.code, 0) << r.err;
    expect_one_trace(path, 4, job.ranks, Json::parse(r.out));
  }
}

int64_t lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

// One process prints for all.
TEST_F(MpiProgram, SaysEverythingOnce) {
  const Ran help = run_program("train", "--help", mpirun(3));
  EXPECT_EQ(help.code, 0) << help.err;
  EXPECT_EQ(help.out, run_program("train", "--help").out);
  const Ran dry =
      run_program("01_mesh", "--mesh dp=2,tp=2 --dry-run", mpirun(2));
  EXPECT_EQ(dry.out, run_program("01_mesh", "--mesh dp=2,tp=2 --dry-run").out);
  for (const char* name :
       {"01_mesh", "02_placements", "03_tp_mlp", "04_dp_tp_train", "05_fsdp"}) {
    const std::string mesh = std::string(name) == "02_placements" ? "a=2,b=2"
                             : std::string(name) == "03_tp_mlp"   ? "tp=4"
                             : std::string(name) == "05_fsdp"     ? "dp=4"
                                                                  : "dp=2,tp=2";
    const Ran alone = run_program(name, "--mesh " + mesh);
    const Ran job = run_program(name, "--mesh " + mesh, mpirun(4));
    EXPECT_EQ(job.code, 0) << job.err;
    EXPECT_EQ(job.out, alone.out);
  }
  const Ran checkpoint = run_program("06_checkpoint", "", mpirun(4));
  EXPECT_EQ(checkpoint.code, 0) << checkpoint.err;
  EXPECT_EQ(lines(checkpoint.out), 2) << checkpoint.out;
}

// The error of bad input is printed once, with the exit code of a single
// process.
TEST_F(MpiProgram, RefusesBadInputOnce) {
  struct Bad {
    int64_t processes;
    std::string flags, says;
  };
  const Bad all[] = {
      {3, "--mesh dp=2,tp=2",
       "01_mesh: [--mesh] dp=2,tp=2 has 4 ranks, but this run has 3 "
       "(processes: "
       "3, ranks in each: 1); write mpirun -n 4, or another --mesh or "
       "--ranks-per-process"},
      {2, "--mesh dp=3 --ranks-per-process 2",
       "dp=3 has 3 ranks, but this run has 4 (processes: 2, ranks in each: "
       "2); write another --mesh or --ranks-per-process"},
      {2, "--mesh dp=2 --no-such-flag", "there is no flag --no-such-flag"},
      {2, "--mesh dp=2 --ranks-per-process 0", "0 is too small"},
      {2, "--mesh dp=2 --backend threads --ranks-per-process 2",
       "[--ranks-per-process] it is for a run of several processes (--backend "
       "mpi or tcp), but this run, with --backend threads, is in one process; "
       "leave it out, or "},
      {2, "--mesh dp=2 --json /no/such/folder/x.json",
       "cannot write /no/such/folder/x.json"},
  };
  for (const Bad& bad : all) {
    const Ran r = run_program("01_mesh", bad.flags, mpirun(bad.processes));
    EXPECT_EQ(r.code, 2) << bad.flags << "\n" << r.err;
    const size_t at = r.err.find(bad.says);
    ASSERT_NE(at, std::string::npos) << bad.flags << "\n" << r.err;
    if (bad.flags.find("--backend threads") == std::string::npos) {
      EXPECT_EQ(r.err.find(bad.says, at + 1), std::string::npos) << r.err;
    }
  }
  const Ran alone = run_program("01_mesh", "--mesh dp=2,tp=2 --backend mpi",
                                "ASAN_OPTIONS=" + asan_options() + " ");
  EXPECT_EQ(alone.code, 2) << alone.err;
  EXPECT_NE(alone.err.find("this run has 1 (processes: 1, ranks in each: 1); "
                           "write mpirun -n 4"),
            std::string::npos)
      << alone.err;
}

// No file is left behind, whether the run went well or not.
TEST_F(MpiProgram, LeavesNothing) {
  const auto shared = [] {
    std::set<std::string> names;
    for (const auto& f : std::filesystem::directory_iterator("/dev/shm"))
      names.insert(f.path().filename().string());
    std::erase_if(names, [](const auto& name) {
      return name.starts_with("dtensor_jobs.");  // other tests'
    });
    return names;
  };
  const std::set<std::string> before = shared();
  char folder[] = "/tmp/dtensor.XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  EXPECT_EQ(run_program("01_mesh", "--mesh dp=2", mpirun(2, folder)).code, 0);
  EXPECT_EQ(run_program("train", kModel + " --mesh dp=2 --steps 20 --lr 1e300",
                        mpirun(2, folder))
                .code,
            1);
  // Other programs' files that came meanwhile go when those programs end.
  std::set<std::string> left = shared();
  std::erase_if(left, [&](const auto& name) { return before.count(name); });
  for (int i = 0; i < 300 && !left.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::erase_if(
        left, [now = shared()](const auto& name) { return !now.count(name); });
  }
  EXPECT_TRUE(left.empty()) << *left.begin();
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << folder;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace dtensor::testing
