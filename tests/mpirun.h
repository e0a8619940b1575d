// SPDX-License-Identifier: Apache-2.0
// How tests start programs as several processes.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "dtensor/comm/mpi.h"

#ifdef __SANITIZE_THREAD__
// What the thread sanitizer finds in Open MPI's own start.
extern "C" [[gnu::used]] inline const char* __tsan_default_suppressions() {
  return "deadlock:mca_btl_tcp_add_procs\n";
}
#endif

namespace dtensor::testing {

// Why there are none: "" where there are.
inline std::string no_mpi() {
  if (!mpi_is_built()) return "no MPI: this is built without";
  if (std::system("command -v mpirun >/dev/null") != 0)
    return "no MPI: there is no mpirun";
  return "";
}

inline std::string temporary_output() {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder ? folder : "/tmp") + "/mpirun.log";
}

// Where Open MPI's jobs of this process have what their processes share. Its
// names of files are made of the number of mpirun's process, which in Bazel's
// sandboxes counts from 1: jobs of two tests at once would have the same ones.
// (Sockets have short names.)
inline const std::string& job_folder() {
  static const struct Folder {
    std::string path;
    const pid_t pid = getpid();
    Folder() {
      for (const char* base : {"/dev/shm", "/tmp"}) {
        std::string made = std::string(base) + "/dtensor_jobs.XXXXXX";
        if (!mkdtemp(made.data())) continue;
        path = made;
        return;
      }
      ADD_FAILURE() << "no folder in /dev/shm or /tmp";
    }
    ~Folder() {
      std::error_code ignored;
      if (getpid() == pid && !path.empty())
        std::filesystem::remove_all(path, ignored);
    }
  } folder;
  return folder.path;
}
// The variables that say so.
constexpr const char* kJobFolders[] = {"TMPDIR",
                                       "OMPI_MCA_btl_vader_backing_directory",
                                       "OMPI_MCA_osc_sm_backing_directory"};

// The address sanitizer's options for programs under mpirun. Leaks are not
// reported, because Open MPI itself leaks some 120 KB.
inline std::string asan_options() {
  const char* given = std::getenv("ASAN_OPTIONS");
  return std::string(given ? given : "") + ":detect_leaks=0";
}

// Of a test whose programs are started by FAULTS_LAUNCHER (tests/faults/ran.h):
// skips all of it where that is mpirun, and there is none.
class NeedsItsLauncher : public ::testing::Environment {
 public:
  void SetUp() override {
    const char* launcher = std::getenv("FAULTS_LAUNCHER");
    if (!launcher || std::string(launcher).find("mpirun") != 0) return;
    if (!no_mpi().empty()) GTEST_SKIP() << no_mpi();
    for (const char* name : kJobFolders) setenv(name, job_folder().c_str(), 1);
    setenv("ASAN_OPTIONS", asan_options().c_str(), 1);
  }
};

// What goes in front of a command that so many processes are to run; as many
// as a test likes, by whoever runs it. What Open MPI writes while it runs goes
// to `folder`.
inline std::string mpirun(int64_t processes,
                          const std::string& folder = job_folder()) {
  std::string folders;
  for (const char* name : kJobFolders)
    folders += std::string(name) + "=" + folder + " ";
  return folders + "ASAN_OPTIONS=" + asan_options() +
         " OMPI_ALLOW_RUN_AS_ROOT=1 "
         "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -q --oversubscribe "
         "--bind-to none -n " +
         std::to_string(processes) + " ";
}

// A test program some of whose tests, those that begin with "Mpi/", are run by
// the processes of a job, and the others by one process: its main(), and what
// those others call to have that job run so many ranks in each process: of one,
// which is what a run has by itself, nothing is said.
inline int main_with_mpi_tests(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (std::string& filter = ::testing::GTEST_FLAG(filter);
      mpi_backend().started())
    filter = "Mpi/*";
  else
    filter += filter.find('-') == filter.npos ? "-Mpi/*" : ":Mpi/*";
  return RUN_ALL_TESTS();
}
inline void run_mpi_tests(int64_t processes, int64_t ranks,
                          const std::string& environment = "") {
  if (!no_mpi().empty()) GTEST_SKIP() << no_mpi();
  char self[4096] = "";
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
  // (Of what Bazel says only one process may take notice.)
  const std::string command =
      mpirun(processes) +
      "env -u XML_OUTPUT_FILE -u TEST_PREMATURE_EXIT_FILE "
      "-u TEST_TOTAL_SHARDS -u TEST_SHARD_INDEX " +
      (ranks == 1 ? "-u DTENSOR_RANKS_PER_PROCESS "
                  : "DTENSOR_RANKS_PER_PROCESS=" + std::to_string(ranks)) +
      " " + environment + " " + self + " >" + temporary_output() + " 2>&1";
  const int status = std::system(command.c_str());
  std::ifstream file(temporary_output());
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(status, 0) << text;
  EXPECT_NE(text.find("[  PASSED  ] "), text.npos) << text;
  EXPECT_EQ(text.find("[  PASSED  ] 0 tests"), text.npos) << text;
}

}  // namespace dtensor::testing
