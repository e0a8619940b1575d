// SPDX-License-Identifier: Apache-2.0
// Guards a fix: a save in the background waited for ever when somebody else
// removed what its ranks had written, and a second job could save to the same
// folder.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "dtensor/dtensor.h"
#include "tests/dtensor/io/checkpoint_testing.h"

namespace dtensor {
namespace {

using testing::Folder;

void save_on_two_ranks(const std::string& dir, bool background) {
  run(2, [&](Runtime&) {
    const DistTensor x = arange(0, 8, 1, Mesh::parse("a=2"), "S0");
    save_checkpoint(dir, 1, {{"x", x}}, {}, {.background = background});
    finish_saves();
  });
}

// Removes files of rank 1 as soon as they are there, until it is told to stop.
TEST(RemovedWhileSaved, EndsTheRunWithASentence) {
  std::string said;
  // A removal may come too late, and does so often while cores are busy.
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (said.empty() && std::chrono::steady_clock::now() < deadline) {
    const Folder folder("removed");
    const std::string sums = folder / "step-00000001.tmp/rank-00001.sums";
    std::atomic<bool> ends{false};
    std::thread removes([&] {
      while (!ends) ::unlink(sums.c_str());
    });
    try {
      save_on_two_ranks(folder.path(), true);
    } catch (const Error& e) {
      said = e.what();
    }
    ends = true;
    removes.join();
    if (said.empty()) continue;
    EXPECT_TRUE(list_checkpoints(folder.path()).empty());
    EXPECT_TRUE(unfinished_checkpoints(folder.path()).empty());
  }
  EXPECT_NE(said.find("step-00000001.tmp lacks files of some ranks"),
            std::string::npos)
      << said;
}

// True if another process is refused when it saves to the folder.
bool another_job_is_refused(const std::string& dir) {
  const pid_t child = fork();
  if (child == 0) {
    // exec() closes the parent's files, so the child holds no lock of it.
    const std::string flag = "--save=" + dir;
    execl("/proc/self/exe", "another_job", flag.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_TRUE(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3)
      << WEXITSTATUS(status);
  return WEXITSTATUS(status) == 3;
}

TEST(FolderOfCheckpoints, IsOneJobs) {
  const Folder own("own"), other("other");
  EXPECT_FALSE(another_job_is_refused(other.path()));
  run(2, [&](Runtime&) { claim_checkpoints(own.path()); });
  EXPECT_TRUE(another_job_is_refused(own.path()));
  EXPECT_TRUE(list_checkpoints(own.path()).empty());
  // The folder is still this job's, and a save does not claim it again.
  save_on_two_ranks(own.path(), false);
  save_on_two_ranks(other / "below", true);
  EXPECT_TRUE(another_job_is_refused(other / "below"));
}

}  // namespace
}  // namespace dtensor

int main(int argc, char** argv) {
  const std::string flag = "--save=";
  if (argc == 2 && std::string(argv[1]).starts_with(flag)) try {
      dtensor::save_on_two_ranks(argv[1] + flag.size(), false);
      return 0;
    } catch (const dtensor::Error& e) {
      return std::string(e.what()).find("another job saves to") !=
                     std::string::npos
                 ? 3
                 : 1;
    }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
