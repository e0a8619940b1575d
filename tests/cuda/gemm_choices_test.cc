// SPDX-License-Identifier: Apache-2.0
// GemmChoices: choices that processes keep for each other, and damaged files.
#include "dtensor/ops/kernels/cuda/gemm_choices.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace dtensor::kernels::cuda {
namespace {

class GemmChoicesTest : public testing::Test {
 protected:
  GemmChoicesTest() {
    folder_ = testing::TempDir() + "/choices.XXXXXX";
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    file_ = folder_ + "/gemm_choices.txt";
  }
  ~GemmChoicesTest() override { std::filesystem::remove_all(folder_); }

  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(file_).rdbuf();
    return all.str();
  }
  void write(const std::string& text) const { std::ofstream(file_) << text; }
  // The choice that a new process finds. `said` gets its standard error.
  std::optional<int> found(const std::string& product, std::string* said) {
    testing::internal::CaptureStderr();
    const auto choice = GemmChoices(folder_).find(product, 8);
    *said = testing::internal::GetCapturedStderr();
    return choice;
  }

  std::string folder_, file_;
};

TEST_F(GemmChoicesTest, AreKeptForLaterProcesses) {
  const std::string below = folder_ + "/a/b";
  EXPECT_EQ(GemmChoices(below).find("bf16 [3, 4]", 8), std::nullopt);
  EXPECT_FALSE(std::filesystem::exists(below));
  EXPECT_EQ(GemmChoices(below).keep("bf16 [3, 4]", 5, 8), 5);
  EXPECT_EQ(GemmChoices(below).keep("f32 [3, 4]", 0, 2), 0);
  GemmChoices later(below);
  EXPECT_EQ(later.find("bf16 [3, 4]", 8), 5);
  EXPECT_EQ(later.find("f32 [3, 4]", 2), 0);
  EXPECT_EQ(later.find("bf16 [3, 4]", 7), std::nullopt) << "other proposals";
  EXPECT_EQ(later.find("bf16 [3, 5]", 8), std::nullopt);
}

TEST_F(GemmChoicesTest, TheFirstIsForAll) {
  GemmChoices one(folder_), other(folder_);
  EXPECT_EQ(one.find("p", 8), std::nullopt);
  EXPECT_EQ(other.find("p", 8), std::nullopt);
  EXPECT_EQ(one.keep("p", 1, 8), 1);
  EXPECT_EQ(other.keep("p", 3, 8), 1);
  EXPECT_EQ(one.keep("p", 2, 8), 1);
  EXPECT_EQ(other.find("p", 8), 1);
}

TEST_F(GemmChoicesTest, WithoutAFolderTheProcessKeepsThem) {
  GemmChoices choices("");
  EXPECT_EQ(choices.find("p", 8), std::nullopt);
  EXPECT_EQ(choices.keep("p", 4, 8), 4);
  EXPECT_EQ(choices.keep("p", 5, 8), 4);
  EXPECT_EQ(choices.find("p", 8), 4);
}

// Each process keeps products of its own, and a different choice of a common
// one.
TEST_F(GemmChoicesTest, ProcessesAgreeAndLoseNothing) {
  constexpr int kProcesses = 6, kProducts = 20;
  const auto own = [](int process, int i) {
    return "process " + std::to_string(process) + ", " + std::to_string(i);
  };
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      GemmChoices choices(folder_);
      for (int i = 0; i < kProducts; ++i) choices.keep(own(p, i), p, 8);
      _exit(choices.keep("common", p, 8));
    }
    children.push_back(child);
  }
  const int common = [&] {
    int last = -1;
    for (const pid_t child : children) {
      int status = 0;
      EXPECT_EQ(waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), last >= 0 ? last : WEXITSTATUS(status));
      last = WEXITSTATUS(status);
    }
    return last;
  }();
  GemmChoices later(folder_);
  EXPECT_EQ(later.find("common", 8), common);
  for (int p = 0; p < kProcesses; ++p)
    for (int i = 0; i < kProducts; ++i)
      EXPECT_EQ(later.find(own(p, i), 8), p) << own(p, i);
  for (const auto& left : std::filesystem::directory_iterator(folder_))
    EXPECT_EQ(left.path(), file_);
}

// Wherever the damage is, no choice is found, and an error says why.
TEST_F(GemmChoicesTest, ADamagedFileIsReportedAndReplaced) {
  GemmChoices first(folder_);
  first.keep("bf16 [3, 4]", 5, 8);
  first.keep("f32 [3, 4]", 2, 8);
  const std::string whole = text();
  std::string said;
  ASSERT_EQ(found("f32 [3, 4]", &said), 2);
  EXPECT_EQ(said, "");
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = damaged[at] == '7' ? '6' : '7';
    write(damaged);
    ASSERT_EQ(found("f32 [3, 4]", &said), std::nullopt) << damaged;
    ASSERT_TRUE(said.starts_with("[gemm] line ")) << said;
    ASSERT_NE(said.find(" of " + file_ + " is damaged or of another version"),
              std::string::npos)
        << said;
  }
  for (size_t size = 0; size < whole.size(); ++size) {
    write(whole.substr(0, size));
    const auto choice = found("f32 [3, 4]", &said);
    ASSERT_EQ(choice, std::nullopt) << size;
    ASSERT_EQ(said.empty(), size == 0 || whole[size - 1] == '\n') << size;
  }
  // The error is printed once, and then the file is replaced by a whole one.
  write(whole + "x");
  testing::internal::CaptureStderr();
  GemmChoices again(folder_);
  EXPECT_EQ(again.find("f32 [3, 4]", 8), std::nullopt);
  EXPECT_EQ(again.keep("f32 [3, 4]", 1, 8), 1);
  EXPECT_EQ(again.find("bf16 [3, 4]", 8), std::nullopt);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[gemm] line 4 of " + file_ +
                " is damaged or of another version, so products are measured "
                "again, and the file is replaced\n");
  EXPECT_EQ(found("f32 [3, 4]", &said), 1);
  EXPECT_EQ(said, "");
}

TEST_F(GemmChoicesTest, AFileThatCannotBeWrittenIsReportedOnce) {
  write("");
  GemmChoices choices(file_ + "/below");
  testing::internal::CaptureStderr();
  EXPECT_EQ(choices.keep("p", 4, 8), 4);
  EXPECT_EQ(choices.keep("q", 3, 8), 3);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("; this process keeps its choices to itself\n"),
            std::string::npos)
      << said;
  EXPECT_EQ(said.find('\n'), said.size() - 1) << said;
  EXPECT_EQ(choices.find("p", 8), 4);
  EXPECT_EQ(choices.find("q", 8), 3);
}

TEST_F(GemmChoicesTest, AProcessThatHangsWithTheLockIsReported) {
  const int folder = open(folder_.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(folder, LOCK_EX), 0);
  GemmChoices choices(folder_);
  testing::internal::CaptureStderr();
  EXPECT_EQ(choices.keep("p", 4, 8), 4);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[gemm] another process has locked " + folder_ +
                " for 5 s; end it, or set XDG_CACHE_HOME to another folder; "
                "this process keeps its choices to itself\n");
  close(folder);
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(GemmChoicesTest, TheFolderIsTheUsers) {
  setenv("HOME", "/somebody", 1);
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(GemmChoices::users_folder(), "/cache/dtensor");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(GemmChoices::users_folder(), "/somebody/.cache/dtensor");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(GemmChoices::users_folder(), "/somebody/.cache/dtensor");
  unsetenv("HOME");
  EXPECT_EQ(GemmChoices::users_folder(), "");
}

}  // namespace
}  // namespace dtensor::kernels::cuda
