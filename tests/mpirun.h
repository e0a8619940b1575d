// SPDX-License-Identifier: Apache-2.0
// Starts programs as several processes with mpirun, for tests.
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
// Hides a deadlock that the thread sanitizer reports in Open MPI's own start.
extern "C" [[gnu::used]] inline const char* __tsan_default_suppressions() {
  return "deadlock:mca_btl_tcp_add_procs\n";
}
#endif

namespace dtensor::testing {

// Why tests cannot use MPI; "" if they can.
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

// A temporary folder for the files that the processes of an Open MPI job share.
// Open MPI names these files after mpirun's process number, which counts from 1
// in each of Bazel's sandboxes, so jobs of two tests would use the same names.
// The folder's name is short, since names of sockets must be.
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
// Environment variables that tell Open MPI to use that folder.
constexpr const char* kJobFolders[] = {"TMPDIR",
                                       "OMPI_MCA_btl_vader_backing_directory",
                                       "OMPI_MCA_osc_sm_backing_directory"};

// The address sanitizer's options for programs under mpirun. Leaks are not
// reported, because Open MPI itself leaks some 120 KB.
inline std::string asan_options() {
  const char* given = std::getenv("ASAN_OPTIONS");
  return std::string(given ? given : "") + ":detect_leaks=0";
}

// For a test that starts its programs with FAULTS_LAUNCHER
// (tests/faults/ran.h): skips the whole test if the launcher is mpirun and
// there is no MPI. Sets the environment for mpirun.
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

// The beginning of a command line that runs a program in so many processes,
// also more than there are cores, and also as root. Open MPI's files go to
// `folder`.
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

// main() of a test program whose tests "Mpi/..." run in the processes of an MPI
// job, and whose other tests run in one process. Another test calls
// run_mpi_tests(), which starts this program again as the job, with `ranks`
// ranks in each process. One rank is the default, which is tested by leaving
// DTENSOR_RANKS_PER_PROCESS unset.
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
  // (Bazel's variables are for one process only.)
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
