// SPDX-License-Identifier: Apache-2.0
// Training by processes that meet over TCP has the losses, bytes, samples and
// exit codes of training by thread ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "tests/faults/child.h"
#include "tests/programs/running.h"
#include "tests/programs/traced.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

const std::string kModel =
    " --layers 2 --hidden 22 --heads 11 --ffn 37 --seq 13 --batch 5 --lr 1e-3";

// The beginning of a command that so many processes run. Then codes() has their
// exit codes.
std::string tcprun(int64_t processes, const std::string& more = "") {
  return more + "TCPRUN_CODES=" + temporary("codes") + " tests/tcprun.sh " +
         std::to_string(processes) + " ";
}
std::string codes() { return read_file(temporary("codes")); }

struct Job {
  int64_t processes, ranks;  // in each
  std::string mesh, flags;
};
void PrintTo(const Job& j, std::ostream* out) {
  *out << j.processes << " x " << j.ranks << " " << j.mesh << j.flags;
}

std::string flags_of(const Job& job) {
  return kModel + " --dtype f64 --steps 4 --sample 12 --json - --mesh " +
         job.mesh + job.flags;
}
Ran by_processes(const Job& job, const std::string& flags = "",
                 const std::string& environment = "") {
  std::string all = flags_of(job) + flags;
  if (job.ranks > 1) all += " --ranks-per-process " + std::to_string(job.ranks);
  return run_program("train", all, tcprun(job.processes, environment));
}

void expect_same(const Ran& tcp, const Ran& threads) {
  ASSERT_EQ(tcp.code, 0) << tcp.err;
  ASSERT_EQ(threads.code, 0) << threads.err;
  const Json a = Json::parse(tcp.out), b = Json::parse(threads.out);
  EXPECT_GE(a["losses"].size(), 4u);
  for (const char* what :
       {"losses", "grad_norms", "sample", "collectives", "parameters"})
    EXPECT_EQ(a[what], b[what]) << what;
  EXPECT_NE(tcp.err.find("predicted and counted bytes agree"),
            std::string::npos)
      << tcp.err;
}

class TcpTrain : public ::testing::TestWithParam<Job> {};

TEST_P(TcpTrain, IsThatOfThreads) {
  const Job& job = GetParam();
  expect_same(by_processes(job), run_program("train", flags_of(job)));
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, TcpTrain,
    ::testing::Values(Job{4, 1, "dp=2,tp=2", ""},
                      Job{4, 1, "dp=2,tp=2", " --zero 3 --recompute block"},
                      Job{2, 2, "dp=2,tp=2", " --zero 1"},
                      Job{3, 1, "tp=3", ""}, Job{2, 1, "pp=2", ""}));

// Without an address in the environment, the processes meet by a file.
TEST(TcpProgram, MeetsByAFile) {
  const std::string path = temporary("meet");
  write_file("meet", "what another run has left");
  const Job job{4, 1, "dp=2,tp=2", ""};
  expect_same(by_processes(job, " --rendezvous " + path, "TCPRUN_BARE=1 "),
              run_program("train", flags_of(job)));
  EXPECT_FALSE(std::filesystem::exists(path));
}

// Threads on another mesh continue what processes have saved, and the other way
// round.
TEST(TcpProgram, CheckpointsAreForBoth) {
  const Job two{2, 1, "tp=2", ""}, three{3, 1, "dp=3", " --zero 3"};
  const Json whole =
      Json::parse(run_program("train", flags_of(two)).out)["losses"];
  for (const bool tcp_first : {true, false}) {
    const std::string dir = temporary("both");
    std::filesystem::remove_all(dir);
    const std::string keep = " --checkpoint " + dir + " --every 2 --resume";
    const Ran begun = tcp_first ? by_processes(two, keep)
                                : run_program("train", flags_of(two) + keep);
    ASSERT_EQ(begun.code, 0) << begun.err;
    // As if the run had been stopped after the second step.
    ASSERT_GT(std::filesystem::remove_all(dir + "/step-00000004"), 0u);
    const Ran ended = tcp_first ? run_program("train", flags_of(three) + keep)
                                : by_processes(three, keep);
    ASSERT_EQ(ended.code, 0) << ended.err;
    const Json rest = Json::parse(ended.out);
    EXPECT_EQ(rest["first_step"], 2);
    ASSERT_EQ(rest["losses"].size(), 2u);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_NEAR(rest["losses"][i].get<double>() / whole[i + 2].get<double>(),
                  1, 1e-10);
  }
}

// torchrun's own store listens at the port that it names.
TEST(TcpProgram, LeavesThePortToTorchrun) {
  const Ran r = run_program(
      "01_mesh", "--mesh dp=2",
      tcprun(2, "TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=x "));
  EXPECT_EQ(r.code, 0) << r.err;
}

// One process prints for all.
TEST(TcpProgram, SaysEverythingOnce) {
  EXPECT_EQ(run_program("train", "--help", tcprun(3)).out,
            run_program("train", "--help").out);
  const std::string mesh = "--mesh dp=2,tp=2";
  for (const char* more : {"", " --dry-run"})
    EXPECT_EQ(run_program("01_mesh", mesh + more, tcprun(4)).out,
              run_program("01_mesh", mesh + more).out);
  // With --backend threads, each process runs by itself and prints the same.
  const Ran alone = run_program("01_mesh", mesh + " --backend threads");
  EXPECT_EQ(run_program("01_mesh", mesh + " --backend threads", tcprun(2)).out,
            alone.out + alone.out);
  // A single process is no job of several.
  EXPECT_EQ(run_program("01_mesh", mesh, tcprun(1)).out, alone.out);
}

// The error of bad input is printed once, and all end with the exit code of a
// single process.
TEST(TcpProgram, RefusesBadInputOnce) {
  struct Bad {
    int64_t processes;
    std::string environment, flags, says;
  };
  const Bad all[] = {
      {3, "", "--mesh dp=2,tp=2",
       "01_mesh: [--mesh] dp=2,tp=2 has 4 ranks, but this run has 3 "
       "(processes: 3, ranks in each: 1); write torchrun --nproc-per-node 4 "
       "(WORLD_SIZE=4), or another --mesh or --ranks-per-process\n"},
      {2, "", "--mesh dp=2 --no-such-flag", "there is no flag --no-such-flag"},
      {2, "", "--mesh dp=2 --json /no/such/folder/x.json",
       "cannot write /no/such/folder/x.json"},
      {2, "", "--mesh dp=2 --device cuda --ranks-per-gpu 2",
       "[--backend] nccl, which this run uses, takes one rank per GPU, not 2; "
       "write --ranks-per-gpu 1, or --backend threads in one process\n"},
      {2, "", "--mesh dp=2 --backend nccl",
       "[--backend] nccl is for --device cuda, but this is --device cpu; add "
       "--device cuda\n"},
      {2, "DTENSOR_JOIN_TIMEOUT=soon ", "--mesh dp=2",
       "[run] DTENSOR_JOIN_TIMEOUT is 'soon'; write seconds"},
      {2, "MASTER_ADDR=192.0.2.1 MASTER_PORT=12345 DTENSOR_JOIN_TIMEOUT=0.2 ",
       "--mesh dp=2",
       "01_mesh: [tcp] RANK 0 cannot listen at 192.0.2.1:12345: "},
      {2, "TCPRUN_BARE=1 ", "--mesh dp=2",
       "01_mesh: [--backend] the environment has RANK, WORLD_SIZE, but not "
       "MASTER_ADDR, MASTER_PORT; set all four"},
  };
  for (const Bad& bad : all) {
    const Ran r = run_program("01_mesh", bad.flags,
                              tcprun(bad.processes, bad.environment));
    EXPECT_EQ(r.code, 2) << bad.flags << "\n" << r.err;
    EXPECT_EQ(codes(), bad.processes == 3 ? "2 2 2\n" : "2 2\n") << r.err;
    const size_t at = r.err.find(bad.says);
    ASSERT_NE(at, std::string::npos) << bad.flags << "\n" << r.err;
    EXPECT_EQ(r.err.find(bad.says, at + 1), std::string::npos) << r.err;
  }
}

// The beginning of a command that process 1 runs with other words or in another
// environment.
std::string odd_one(const std::string& words, const std::string& others = "",
                    const std::string& environment = "") {
  return "sh -c 'if [ $RANK = 1 ]; then exec env " + environment + " \"$@\" " +
         words + "; else exec \"$@\" " + others + "; fi' sh ";
}

// If a flag differs, the error has its name and both values. It comes before
// anything is computed, and all processes end with the code of bad input.
TEST(TcpProgram, RefusesFlagsThatDiffer) {
  struct Differs {
    std::string job, command, says;
  };
  const std::string token = "DTENSOR_JOB_TOKEN=here ";
  const Differs all[] = {
      {token, odd_one("--lr 0.5", "--lr 0.25"),
       "train: [--lr] process 1 was started with --lr 0.5, and process 0 with "
       "--lr 0.25; start all processes with the same program, flags and "
       "environment\n"},
      {token, odd_one("--seed 3"),
       "train: [--seed] process 1 was started with --seed 3, and process 0 "
       "with "
       "no --seed; "},
      {token, odd_one("", "", "DTENSOR_OF_MINE=7"),
       "train: [DTENSOR_OF_MINE] process 1 was started with DTENSOR_OF_MINE=7, "
       "and process 0 with no DTENSOR_OF_MINE; "},
      // Without a token, process 1 may be one of another job; but the right
      // process never comes.
      {"", odd_one("--lr 0.5", "--lr 0.25"),
       "train: [--lr] process 1 was started with --lr 0.5, and process 0 with "
       "--lr 0.25; "},
  };
  for (const Differs& d : all) {
    const auto start = std::chrono::steady_clock::now();
    const Ran r = run_program("train", "--mesh dp=3 --steps 1",
                              tcprun(3, d.job) + d.command);
    EXPECT_EQ(r.code, 2) << r.err;
    EXPECT_EQ(codes(), "2 2 2\n") << r.err;
    EXPECT_EQ(r.err.find(d.says), 0u) << r.err;
    EXPECT_EQ(r.err.find("process 1 was started", d.says.size()), r.err.npos)
        << r.err;
    EXPECT_LT(std::chrono::steady_clock::now() - start,
              std::chrono::seconds(10));
  }
  // Flags that name a process's own files may differ.
  const Ran r =
      run_program("01_mesh", "--mesh dp=2",
                  tcprun(2) + odd_one("--flight " + temporary("odd"),
                                      "--flight " + temporary("first")));
  EXPECT_EQ(r.code, 0) << r.err;
}

// The program is started without a launcher.
TEST(TcpProgram, SaysWhatIsMissing) {
  const auto says = [](const std::string& environment, const std::string& flags,
                       const std::string& text) {
    const Ran r = run_program("01_mesh", flags, environment);
    EXPECT_EQ(r.code, 2) << r.err;
    EXPECT_NE(r.err.find(text), std::string::npos) << r.err;
  };
  says("", "--backend tcp",
       "01_mesh: [--backend] for tcp the environment has to set RANK, "
       "WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as torchrun does, but RANK, "
       "WORLD_SIZE, MASTER_ADDR, MASTER_PORT are missing; start the program "
       "with torchrun, set what is missing, or write --backend threads "
       "(RunOptions::backend)\n");
  says("", "--rendezvous meet",
       "for tcp the environment has to set RANK, WORLD_SIZE, as torchrun does");
  says("", "--backend threads --rendezvous meet",
       "[--rendezvous] it is for --backend tcp, but this is --backend threads; "
       "leave it out");
  says("RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost", "--mesh dp=2",
       "but not MASTER_PORT; set all four");
  EXPECT_EQ(run_program("01_mesh", "--mesh dp=2 --backend threads",
                        "RANK=0 WORLD_SIZE=2")
                .code,
            0);
}

// A process that comes says which ones do not.
TEST(TcpProgram, SaysWhoDoesNotCome) {
  const std::string both =
      "DTENSOR_JOIN_TIMEOUT=0.5 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 "
      "MASTER_PORT=11999 ";
  const auto start = std::chrono::steady_clock::now();
  const Ran first = run_program("01_mesh", "--mesh dp=3", both + "RANK=0");
  EXPECT_EQ(first.code, 2) << first.err;
  EXPECT_NE(first.err.find("01_mesh: [tcp] RANK 1,2 of WORLD_SIZE 3 did not "
                           "come to 127.0.0.1:11999 in 0.5 s"),
            std::string::npos)
      << first.err;
  const Ran other = run_program("01_mesh", "--mesh dp=3", both + "RANK=2");
  EXPECT_EQ(other.code, 2) << other.err;
  EXPECT_NE(other.err.find("01_mesh: [tcp] RANK 2 of WORLD_SIZE 3 has waited "
                           "0.5 s for RANK 0 at 127.0.0.1:11999"),
            std::string::npos)
      << other.err;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

// Without anything that tells tasks of srun where the others are, each would be
// a run of its own. One of them says that they are no job.
TEST(TcpProgram, SrunAloneIsNoJob) {
  const std::string two = "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=";
  const Ran first = run_program("01_mesh", "--mesh dp=2", two + "0");
  EXPECT_EQ(first.code, 2) << first.err;
  EXPECT_EQ(first.err.find("01_mesh: [--backend] srun has started 2 tasks "
                           "of this program, but nothing tells them how to "
                           "reach each other; write srun --mpi=pmix"),
            0u)
      << first.err;
  const Ran second = run_program("01_mesh", "--mesh dp=2", two + "1");
  EXPECT_EQ(second.code, 2);
  EXPECT_EQ(second.err, "");
  for (const char* fine : {"SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0",
                           "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1"})
    EXPECT_EQ(run_program("01_mesh", "--mesh dp=2", fine).code, 0) << fine;
  for (const char* flags : {"--backend threads", "--dry-run"})
    EXPECT_EQ(
        run_program("01_mesh", std::string("--mesh dp=2 ") + flags, two + "1")
            .code,
        0)
        << flags;
}

TEST(TcpProgram, WritesOneTrace) {
  const std::string path = temporary("trace.json");
  const Job jobs[] = {{4, 1, "dp=2,tp=2", ""}, {2, 2, "dp=2,tp=2", ""}};
  for (const Job& job : jobs) {
    const Ran r = by_processes(job, " --trace " + path);
    ASSERT_EQ(r.code, 0) << r.err;
    expect_one_trace(path, 4, job.ranks, Json::parse(r.out));
  }
}

// All processes end with the code of the one that fails.
TEST(TcpProgram, AFailedRunHasOneCode) {
  const std::string path = temporary("trace.json");
  const Ran r = run_program("train",
                            kModel +
                                " --mesh dp=3 --steps 20 --lr 1e300 "
                                "--trace " +
                                path,
                            tcprun(3));
  expect_own_traces(path, 3);
  EXPECT_EQ(r.code, 1) << r.err;
  EXPECT_EQ(codes(), "1 1 1\n");
  EXPECT_NE(r.err.find("train: "), std::string::npos) << r.err;
}

TEST(TcpProgram, ASignalEndsAll) {
  for (const auto& [signal, code] :
       {std::pair(SIGINT, "130"), {SIGTERM, "143"}}) {
    Child child("env " + tcprun(3) +
                "programs/train --mesh dp=3 --steps 100000");
    ASSERT_TRUE(child.says("step")) << child.err() << child.out();
    child.send(signal);
    EXPECT_EQ(child.wait(10), std::stoi(code)) << child.err();
    EXPECT_EQ(codes(), std::string(code) + " " + code + " " + code + "\n")
        << child.err();
    const std::string err = child.err(), says = "train: [run] interrupted by";
    const size_t at = err.find(says);
    ASSERT_NE(at, err.npos) << err;
    EXPECT_EQ(err.find(says, at + 1), err.npos) << err;
  }
}

}  // namespace
}  // namespace dtensor::testing
