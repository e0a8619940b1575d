// SPDX-License-Identifier: Apache-2.0
// Makes one rank go wrong in each way that a run has to survive or report, and
// checks what every rank hears of it, in time. faulty.cc has the cases. Ranks
// are threads, or processes if FAULTS_LAUNCHER is set (ran.h).
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "tests/faults/child.h"
#include "tests/faults/ran.h"
#include "tests/mpirun.h"
#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

[[maybe_unused]] const ::testing::Environment* const kLauncher =
    ::testing::AddGlobalTestEnvironment(new NeedsItsLauncher);

struct Fault {
  std::string name;  // the number of the fault's kind, and a description
  std::string flags;
  int64_t ranks;
  int code;
  // Texts that the program's error message contains.
  std::vector<std::string> says;
  // The beginnings of the text with which each rank ends (Ending): the other
  // ranks, and the odd one.
  std::string others, odd;
  double within;  // the seconds from the fault until all ranks have ended
  int64_t odd_rank = 1;
};
void PrintTo(const Fault& f, std::ostream* out) { *out << f.name; }

const Fault kFaults[] = {
    {"1: a type",
     "--case dtype",
     4,
     1,
     {"ranks 0 and 1 disagree about collective #2 of ranks 0,1,2,3",
      "rank 0 calls all-reduce #2 (sum, f32, 4 elements) for matmul",
      "rank 1 calls all-reduce #2 (sum, i32, 4 elements) for matmul"},
     "threw [all-reduce] ranks 0 and 1 disagree",
     "threw [all-reduce] ranks 0 and 1 disagree",
     0.1},
    {"2: a count",
     "--case count --odd 2",
     4,
     1,
     {"rank 0 calls all-reduce #2 (sum, f32, 4 elements)",
      "rank 2 calls all-reduce #2 (sum, f32, 8 elements)"},
     "threw [all-reduce] ranks 0 and 2 disagree",
     "threw [all-reduce] ranks 0 and 2 disagree",
     0.1,
     2},
    {"2: a shape",
     "--case shape --odd 3",
     4,
     1,
     {"rank 0 calls all-gather #2 (f32) for redistribute: f32[8](S0) -> ",
      "rank 3 calls all-gather #2 (f32) for redistribute: f32[12](S0) -> "},
     "threw [all-gather] ranks 0 and 3 disagree",
     "threw [all-gather] ranks 0 and 3 disagree",
     0.1,
     3},
    {"2: another operator",
     "--case value",
     4,
     1,
     {"rank 0 calls all-gather #2 (f32) for redistribute: ",
      "made by neg, operator 0 of model.head; rank 1 calls ",
      "made by exp, operator 0 of model.head"},
     "threw [all-gather] ranks 0 and 1 disagree",
     "threw [all-gather] ranks 0 and 1 disagree",
     0.1},
    {"2: a value that one rank reads alone",
     "--case more --odd 2",
     4,
     1,
     {"made by neg, operator 1 of model.head; rank 2 calls ",
      "made by exp, operator 0 of model.head"},
     "threw [all-gather] ranks 0 and 2 disagree",
     "threw [all-gather] ranks 0 and 2 disagree",
     0.1,
     2},
    {"3: a reduction",
     "--case op",
     2,
     1,
     {"rank 0 calls all-reduce #2 (sum, f32, 4 elements)",
      "rank 1 calls all-reduce #2 (max, f32, 4 elements)"},
     "threw [all-reduce] ranks 0 and 1 disagree",
     "threw [all-reduce] ranks 0 and 1 disagree",
     0.1},
    {"4: another collective",
     "--case kind --odd 0",
     4,
     1,
     {"rank 0 calls all-gather #2 (f32) for matmul",
      "rank 1 calls all-reduce #2 (sum, f32, 4 elements) for matmul"},
     "threw [all-gather] ranks 0 and 1 disagree",
     "threw [all-gather] ranks 0 and 1 disagree",
     0.1,
     0},
    {"5: two in another order",
     "--case swapped",
     4,
     1,
     {"rank 0 calls all-reduce #2 (sum, f32, 4 elements) for first",
      "rank 1 calls all-reduce #2 (sum, f32, 4 elements) for second"},
     "threw [all-reduce] ranks 0 and 1 disagree",
     "threw [all-reduce] ranks 0 and 1 disagree",
     0.1},
    {"6: groups in a circle",
     "--case circle",
     3,
     1,
     {"every rank waits for another one: rank 0 in barrier #1 for circle of "
      "ranks 0,1; rank 1 in barrier #1 for circle of ranks 1,2; rank 2 in "
      "barrier #1 for circle of ranks 0,2"},
     "threw [barrier] every rank waits for another one",
     "threw [barrier] every rank waits for another one",
     1},
    {"7: a collective is skipped, and the next one called",
     "--case skips",
     4,
     1,
     {"rank 0 calls barrier #2 for skipped; rank 1 calls barrier #2 for next"},
     "threw [barrier] ranks 0 and 1 disagree",
     "threw [barrier] ranks 0 and 1 disagree",
     0.1},
    {"7: a rank that does not come",
     "--case late --timeout 1",
     4,
     1,
     {"ranks 0,2,3 waited for 1 s in barrier #2 for late of ranks 0,1,2,3, and "
      "these did not come: rank 1 (its last collective was barrier #1 for "
      "start of ranks 0,1,2,3); find out what delays them, or let the others "
      "wait longer with --timeout SECONDS (RunOptions::timeout)"},
     "threw [barrier] ranks 0,2,3 waited for 1 s",
     "threw [barrier] ranks 0,2,3 waited for 1 s",
     3},
    {"7: a rank that leaves",
     "--case leaves",
     4,
     1,
     {"rank 1 has left the program while rank "},
     "PeerFailed ",
     "done",
     1},
    {"8: a rank that throws",
     "--case throws",
     4,
     1,
     {"faulty: [run] rank 1 threw: no luck\n"},
     "PeerFailed 1: [barrier] rank 1 failed: [run] rank 1 threw: no luck (its "
     "last collective was barrier #1 for start)",
     "threw no luck",
     1},
    {"10: a straggler", "--case straggler", 4, 0, {}, "done", "done", 3},
    {"11: four ranks on two cores", "--case many", 4, 0, {}, "done", "done", 9},
    {"11: eight ranks", "--case many", 8, 0, {}, "done", "done", 9},
    {"12: two threads", "--case two-threads", 2, 0, {}, "done", "done", 9},
    {"13: freed, or written", "--case freed", 2, 0, {}, "done", "done", 9},
    {"14: dropped",
     "--case dropped",
     2,
     1,
     {"faulty: [run] rank 1 threw: no luck\n"},
     "done",  // it hears of the fault only in run(), after it has ended
     "threw no luck",
     1},
    {"17: other placements",
     "--case placements",
     2,
     1,
     {"f32[8, 4](S0)", "f32[4, 8](S1)"},
     "threw [all-gather] ranks 0 and 1 disagree",
     "threw [all-gather] ranks 0 and 1 disagree",
     0.1},
    {"17: other meshes",
     "--case meshes",
     2,
     1,
     {"rank 0 calls all-gather #2 (f32) for redistribute: f32[8, 4](S0) -> "
      "f32[8, 4](R) on y=2; rank 1 calls all-gather #2 (f32) for "
      "redistribute: f32[8, 4](S0) -> f32[8, 4](R) on x=2"},
     "threw [all-gather] ranks 0 and 1 disagree",
     "threw [all-gather] ranks 0 and 1 disagree",
     0.1},
    {"18: two meshes in one operator",
     "--case two-meshes",
     2,
     1,
     {"[add] ", "x=2", "y=2"},
     "threw [add] ",
     "threw [add] ",
     0.1},
    {"20: no memory on one rank",
     "--case memory",
     4,
     1,
     {"[allocate] "},
     "PeerFailed 1: [all-gather] rank 1 failed: [allocate] ",
     "threw [allocate] ",
     1},
    {"22: a bit of a replica",
     "--case replica --odd 2",
     4,
     1,
     {"copies of weight f32[5, 2](R) differ: rank 2 ", "against ranks 0,1,3 "},
     "threw [check_replicas] ",
     "threw [check_replicas] ",
     1,
     2},
};

// If ranks are processes, SIGTERM ends a rank that does not come in time. The
// rank waits for the signal for long, since it may be late on a busy machine.
Fault where_it_runs(Fault f) {
  if (ranks_are_processes() && f.name == "7: a rank that does not come") {
    f.flags = "--case later --timeout 1";
    f.odd = "threw [run] interrupted by SIGTERM";
  }
  return f;
}

class FaultsTest : public ::testing::TestWithParam<Fault> {};

TEST_P(FaultsTest, EndsAsItShould) {
  const Fault fault = where_it_runs(GetParam());
  const FaultyRun run = run_faulty(fault.flags, fault.ranks);
  EXPECT_EQ(run.code, fault.code) << run.all;
  for (const std::string& text : fault.says)
    EXPECT_NE(run.sentence.find(text), std::string::npos) << text << "\n"
                                                          << run.all;
  // A failed run prints one sentence, once. So does a run that is slow because
  // the machine is busy: it says why stragglers are not named.
  const bool crowded = fault.code == 0 &&
                       run.sentence.find(" ranks share ") != std::string::npos;
  EXPECT_EQ(std::count(run.sentence.begin(), run.sentence.end(), '\n'),
            crowded || fault.code != 0 || fault.flags == "--case straggler")
      << run.all;
  EXPECT_EQ(run.ends.size(), static_cast<size_t>(fault.ranks)) << run.all;
  for (const auto& [rank, end] : run.ends) {
    const std::string& want = rank == fault.odd_rank ? fault.odd : fault.others;
    EXPECT_EQ(end.text.find(want), 0u) << "rank " << rank << "\n" << run.all;
  }
  for (const auto& [rank, said] : run.said)
    for (const std::string& text : said) EXPECT_NE(text, "touched") << rank;
  // The limit may be missed if the machine is busy, so try up to three times.
  double after = run.told_after();
  for (int again = 0; again < 2 && after > fault.within; ++again)
    after = run_faulty(fault.flags, fault.ranks).told_after();
  EXPECT_LE(after, fault.within) << run.all;
}

INSTANTIATE_TEST_SUITE_P(Cases, FaultsTest, ::testing::ValuesIn(kFaults),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c)))
                               c = '_';
                           return "Case" + name;
                         });

// While an object exists, this process and those that it starts may use `count`
// cores.
class OnCores {
 public:
  explicit OnCores(int count) {
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t some;
    CPU_ZERO(&some);
    for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&some) < count; ++c)
      if (CPU_ISSET(c, &before_)) CPU_SET(c, &some);
    has_ = CPU_COUNT(&some) == count;
    sched_setaffinity(0, sizeof(some), &some);
  }
  ~OnCores() { sched_setaffinity(0, sizeof(before_), &before_); }
  bool has() const { return has_; }  // whether there are so many cores

 private:
  cpu_set_t before_;
  bool has_;
};

TEST(StragglerTest, IsNamedInTheEnd) {
  const OnCores two(2);
  if (!two.has()) GTEST_SKIP() << "two ranks need a core each";
  Child child(faulty("--case straggler --json", 2));
  EXPECT_EQ(child.wait(20), 0);
  const std::string err = child.err(), out = child.out();
  const size_t at = err.find("faulty: rank 1 was waited for 1.");
  ASSERT_NE(at, err.npos) << err;
  EXPECT_NE(err.find(" %)", at), err.npos) << err;
  EXPECT_EQ(err.find("rank 0 was"), err.npos) << err;
  EXPECT_NE(out.find("\"stragglers\""), out.npos) << out;
  EXPECT_NE(out.find("\"rank\": 1"), out.npos) << out;
}

// Expects that no straggler is named among 3 ranks on one core.
void expect_nobody_named(const std::string& err, const std::string& out) {
  EXPECT_NE(err.find("faulty: 3 ranks share 1 core, so waiting for a rank "
                     "cannot be told from waiting for a core\n"),
            err.npos)
      << err;
  EXPECT_EQ(err.find("was waited for"), err.npos) << err;
  EXPECT_EQ(out.find("\"stragglers\""), out.npos) << out;
}

// The straggler is named, since it sleeps, and does not wait for a core.
TEST(StragglerTest, IsNamedWhereRanksShareCores) {
  const OnCores one(1);
  Child child(faulty("--case straggler --odd 2 --json", 3));
  EXPECT_EQ(child.wait(60), 0);
  const std::string err = child.err(), out = child.out();
  // How long ranks of other processes wait for a core is not known.
  if (ranks_are_processes()) return expect_nobody_named(err, out);
  EXPECT_NE(err.find("faulty: rank 2 was waited for 1."), err.npos) << err;
  EXPECT_EQ(err.find("rank 0 was"), err.npos) << err;
  EXPECT_NE(out.find("\"stragglers\""), out.npos) << out;
  EXPECT_NE(out.find("\"rank\": 2"), out.npos) << out;
}

// A rank that waits for a core is late, but not by its own fault.
TEST(StragglerTest, IsNotNamedForWaitingForACore) {
  const OnCores one(1);
  Child child(faulty("--case crowded --odd 2 --json", 3));
  EXPECT_EQ(child.wait(120), 0);
  expect_nobody_named(child.err(), child.out());
}

// Case 10: a process is stopped for three seconds, and then goes on. Time in
// which it is stopped does not count as waiting for another rank.
TEST(StragglerTest, AProcessThatIsStoppedGoesOn) {
  for (const char* flags :
       {"--case stopped", "--case stopped-waiting --timeout 2"}) {
    Child child(faulty(flags, 3));
    ASSERT_TRUE(child.says("fault")) << child.err();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    child.send(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    child.send(SIGCONT);
    EXPECT_EQ(child.wait(20), 0) << flags << "\n" << child.err();
  }
}

// Case 9: the rank whose process was killed is named even if no rank waits for
// it any more.
TEST(KilledTest, IsNamedByThoseThatAreDone) {
  if (!ranks_are_processes())
    GTEST_SKIP() << "ranks are threads; set FAULTS_LAUNCHER";
  for (const int64_t odd : {0, 1, 3}) {
    const std::string rank = std::to_string(odd);
    const FaultyRun run = run_faulty("--case dies --odd " + rank, 4);
    EXPECT_NE(run.code, 0) << run.all;
    EXPECT_NE(run.sentence.find("faulty: [run] rank " + rank + " failed: "),
              std::string::npos)
        << run.all;
    EXPECT_NE(run.sentence.find("its process has ended in the middle of the "
                                "run; look for the error in its output"),
              std::string::npos)
        << run.all;
    EXPECT_EQ(run.ends.size(), 3u) << run.all;
    for (const auto& [other, end] : run.ends)
      EXPECT_EQ(end.text, "done") << other;
  }
}

// When one process is killed, mpirun ends the others: by SIGTERM, and a second
// later by SIGKILL. By then, the first rank that is left has printed whose
// process died.
TEST(KilledTest, IsNamedBeforeTheLauncherEndsTheOthers) {
  const char* backend = std::getenv("FAULTS_BACKEND");
  if (!backend || std::string(backend) != "mpi")
    GTEST_SKIP() << "only mpirun ends the other processes";
  for (const std::string others : {"compute", "sleep"})
    for (const int64_t odd : {0, 2}) {
      const std::string rank = std::to_string(odd);
      const FaultyRun run = run_faulty(
          "--case dies-while-others-" + others + " --odd " + rank, 4);
      EXPECT_NE(run.code, 0) << run.all;
      EXPECT_EQ(run.sentence.find("faulty: [run] rank " + rank +
                                  " failed: its process has ended in the "
                                  "middle of the run; look for the error in "
                                  "its output, or for a signal that killed it"),
                0u)
          << others << "\n"
          << run.all;
      EXPECT_EQ(std::count(run.sentence.begin(), run.sentence.end(), '\n'), 1)
          << run.all;
    }
}

// A failed rank must free its requests only once: MPI ends a job that frees a
// request twice, and then no error is printed.
TEST(GivenUpTest, TheErrorIsSaidWhereMpiHasTheMessages) {
  const char* backend = std::getenv("FAULTS_BACKEND");
  if (!backend || std::string(backend) != "mpi")
    GTEST_SKIP() << "only MPI has requests";
  const FaultyRun run =
      run_faulty("--case throws", 4, "DTENSOR_MPI_SHARED_MEMORY=0");
  EXPECT_EQ(run.code, 1) << run.all;
  EXPECT_EQ(run.sentence, "faulty: [run] rank 1 threw: no luck\n") << run.all;
}

// If a connection between two processes breaks and both live on, every rank
// hears of it at once, and no error says that a process is dead.
TEST(CutTest, IsToldAsWhatItIs) {
  const char* backend = std::getenv("FAULTS_BACKEND");
  if (!backend || std::string(backend) != "tcp")
    GTEST_SKIP() << "only over TCP are there connections";
  for (const int64_t odd : {1, 2, 3}) {
    const FaultyRun run =
        run_faulty("--case cut --odd " + std::to_string(odd), 4);
    EXPECT_EQ(run.code, 1) << run.all;
    EXPECT_EQ(run.ends.size(), 4u) << run.all;
    EXPECT_LT(run.told_after(), 1) << run.all;
    EXPECT_LT(run.seconds, 4) << run.all;
    EXPECT_NE(run.sentence.find(" failed: the connection to its process has "
                                "ended in the middle of the run"),
              std::string::npos)
        << run.all;
  }
}

// Case 11: if there are more ranks than cores, ranks that wait sleep at once.
TEST(ManyRanksTest, ABarrierIsShort) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr double kMost = 500;
#else
  // (Processes poll in turn and send messages; over TCP with system calls.)
  const char* backend = std::getenv("FAULTS_BACKEND");
  const bool tcp = backend && std::string(backend) == "tcp";
  const double kMost = tcp ? 1500 : ranks_are_processes() ? 500 : 50;
#endif
  for (const int64_t ranks : {4, 8}) {
    // The best of three runs: other programs may use the cores for a while.
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 3 && best > kMost; ++i) {
      const FaultyRun run = run_faulty("--case many", ranks);
      ASSERT_EQ(run.said.count(0), 1u) << run.all;
      double us = 0;
      ASSERT_EQ(std::sscanf(run.said.at(0)[0].c_str(), "barrier %lf us", &us),
                1)
          << run.all;
      best = std::min(best, us);
    }
    EXPECT_LE(best, kMost) << ranks << " ranks";
  }
}

// Case 12: only one thread at a time may use a communicator, and only a rank's.
TEST(ThreadsTest, ACommunicatorIsForOneAtATime) {
  const FaultyRun run = run_faulty("--case two-threads", 2);
  ASSERT_EQ(run.said.size(), 2u) << run.all;
  const std::vector<std::string>&own = run.said.at(0), &odd = run.said.at(1);
  ASSERT_GE(own.size(), 2u) << run.all;
  EXPECT_EQ(own[0],
            "[barrier] this communicator is used by another thread; let one "
            "thread of a rank make its collectives, one after the other");
  EXPECT_EQ(own[1].find("[run] this thread is not a rank"), 0u) << run.all;
  EXPECT_EQ(odd[0].find("[run] this thread is not a rank"), 0u) << run.all;
}

// Case 23: results have the same bits, whichever rank waits for which, and in
// whatever buckets gradients are sent.
TEST(BitsTest, AreTheSame) {
  std::string bits;
  for (const char* flags : {"--case step3", "--case step3",
                            "--case step3-buckets", "--case step3-buckets"}) {
    const FaultyRun run =
        run_faulty(std::string(flags) + " --mesh dp=2,tp=2", 4);
    ASSERT_EQ(run.code, 0) << run.all;
    ASSERT_EQ(run.said.size(), 4u) << run.all;
    for (const auto& [rank, said] : run.said) {
      const auto hash = std::find_if(
          said.begin(), said.end(),
          [](const std::string& s) { return s.find("bits ") == 0; });
      ASSERT_NE(hash, said.end()) << run.all;
      if (bits.empty()) bits = *hash;
      EXPECT_EQ(*hash, bits) << flags;
    }
  }
}

// Case 29: processes that meet at a file.
class MeetTest : public ::testing::Test {
 protected:
  MeetTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  std::string join(int64_t rank, int64_t world) const {
    return "env MEET=" + path() + " MEET_WORLD=" + std::to_string(world) +
           " tests/faults/faulty --case meet --odd " + std::to_string(rank);
  }
  std::string path() const { return folder_ + "/meet"; }
  void leave(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }
  const std::string folder_ = temporary("meet");
};

TEST_F(MeetTest, GarbageHasNoEffect) {
  // The second text is as long as the text that the first process writes.
  for (const size_t bytes : {26, 32}) {
    leave("meet",
          std::string("\0\xff\n\n9223372036854775808 -1......16 more", bytes));
    Child first(join(0, 2)), second(join(1, 2));
    EXPECT_EQ(first.wait(10), 0) << first.err();
    EXPECT_EQ(second.wait(10), 0) << second.err();
    EXPECT_EQ(second.out(), "met\n");
  }
}

TEST_F(MeetTest, ARankThatIsThereTwice) {
  Child a(join(0, 3)), b(join(1, 3)), c(join(1, 3));
  for (Child* child : {&a, &b, &c}) {
    EXPECT_EQ(child->wait(10), 1);
    EXPECT_NE(child->err().find("two processes say that they are RANK 1 of "
                                "WORLD_SIZE 3"),
              std::string::npos)
        << child->err();
  }
}

TEST_F(MeetTest, AnotherWorldAndARankThatIsNone) {
  for (const bool none : {false, true}) {
    Child a(join(0, 3)), b(none ? join(5, 3) : join(1, 2)), c(join(2, 3));
    for (Child* child : {&a, &b, &c}) {
      EXPECT_EQ(child->wait(10), 1);
      EXPECT_NE(
          child->err().find(
              none ? "a process says that it is RANK 5 of WORLD_SIZE 3"
                   : "RANK 1 says that WORLD_SIZE is 2, and RANK 0 that it "
                     "is 3"),
          std::string::npos)
          << child->err();
    }
  }
}

// Case 30: errors of the environment and of flags. All but the last are printed
// before any rank starts.
TEST(EnvironmentTest, WhatIsMissing) {
  struct Missing {
    std::string flags;
    int code;
    const char* says;
  };
  for (const Missing& m : {
           Missing{"--case many --device cuda:63", 2, "faulty: [cuda] "},
           Missing{"--case many --backend nccl", 2, "faulty: [--backend] nccl"},
           Missing{"--case many --json /no/such/folder/x.json", 2,
                   "faulty: [--json] cannot write /no/such/folder/x.json"},
           Missing{"--case many --timeout -1", 2, "--timeout"},
           Missing{"--case many --timeout 1e300", 2,
                   "[--timeout] 1e300 is too large"},
           Missing{"--case many --timeout soon", 2, "--timeout"},
           Missing{
               "--case many --mesh ranks=2 --json >/dev/full", 1,
               "faulty: [--json] standard output cannot be written: No space"},
       }) {
    Child child("tests/faults/faulty " + m.flags);
    EXPECT_EQ(child.wait(20), m.code) << m.flags << "\n" << child.err();
    EXPECT_NE(child.err().find(m.says), std::string::npos) << m.flags << "\n"
                                                           << child.err();
    if (m.code == 2) {
      EXPECT_EQ(child.err().find("@ "), std::string::npos) << child.err();
    }
  }
}

}  // namespace
}  // namespace dtensor::testing
