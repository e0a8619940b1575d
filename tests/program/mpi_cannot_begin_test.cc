// SPDX-License-Identifier: Apache-2.0
// A program that cannot use its MPI says why and ends with 2. It once used that
// MPI to ask the other processes how they fared, and was terminated.
#include <gtest/gtest.h>

#include <cstdlib>

#include "dtensor/program/program.h"
#include "tests/mpirun.h"

#if __has_include(<mpi.h>)
#define OMPI_SKIP_MPICXX  // the C interface will do
#include <mpi.h>

namespace dtensor {
namespace {

int run_program() {
  char name[] = "program", flag[] = "--backend", value[] = "mpi";
  char* argv[] = {name, flag, value, nullptr};
  Program program({.about = "Does nothing."});
  return program.main(3, argv, {}, [] {});
}

// Each test begins MPI in a child process.
class MpiCannotBegin : public ::testing::Test {
 protected:
  void SetUp() override {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    for (const char* name : testing::kJobFolders)
      setenv(name, testing::job_folder().c_str(), 1);
    unsetenv("OMPI_MPI_THREAD_LEVEL");
  }
};

TEST_F(MpiCannotBegin, WithoutThreads) {
  EXPECT_EXIT(
      {
        MPI_Init(nullptr, nullptr);
        const int code = run_program();
        MPI_Finalize();
        std::exit(code);
      },
      ::testing::ExitedWithCode(2),
      "^program: \\[mpi\\] MPI was initialized without MPI_THREAD_MULTIPLE, "
      "but ranks have several threads; request it from MPI_Init_thread\n$");
}

TEST_F(MpiCannotBegin, AfterItsEnd) {
  EXPECT_EXIT(
      {
        int threads = 0;
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads);
        MPI_Finalize();
        std::exit(run_program());
      },
      ::testing::ExitedWithCode(2),
      "^program: \\[mpi\\] MPI cannot be initialized again after MPI_Finalize; "
      "call MPI_Finalize after the last run\\(\\)\n$");
}

}  // namespace
}  // namespace dtensor
#else
TEST(MpiCannotBegin, Skipped) { GTEST_SKIP() << "no MPI: built without"; }
#endif
