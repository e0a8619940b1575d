// SPDX-License-Identifier: Apache-2.0
#include "dtensor/io/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "tests/testing.h"

namespace dtensor::io {
namespace {

// A read that a signal interrupted leaves EINTR in errno, and the end of a file
// does not change it.
TEST(File, TheEndAfterAnInterruptedRead) {
  const std::string path = ::testing::TempDir() + "/file";
  File::create(path).write("abc", 3, 0);
  const File file = File::open(path);
  char to[5] = {};
  errno = EINTR;
  file.read(to, 3, 0);
  EXPECT_EQ(std::string(to), "abc");
  EXPECT_EQ(testing::error_of([&] {
              errno = EINTR;
              file.read(to, 4, 0);
            }),
            "[file] " + path +
                " cannot be read at byte 3, because the file ends there; copy "
                "or save it again");
  remove_file(path);
}

TEST(File, IsRegular) {
  const std::string pipe = ::testing::TempDir() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto error = [](const std::string& path) {
    return testing::error_of([&] { File::open(path); });
  };
  EXPECT_EQ(error(pipe), "[file] " + pipe + " is a pipe; name a regular file");
  EXPECT_EQ(error("/dev/zero"),
            "[file] /dev/zero is a device; name a regular file");
  EXPECT_EQ(error("/"),
            "[file] / cannot be read as a file: Is a directory; check the "
            "path, its permissions and the free space");
  remove_file(pipe);
}

// Another rank may already have removed the file.
TEST(File, MayBeGoneWhenItIsRemoved) {
  const std::string path = ::testing::TempDir() + "/gone";
  File::create(path).write("abc", 3, 0);
  remove_file(path);
  remove_file(path);
  EXPECT_EQ(testing::error_of([&] {
              remove_file(::testing::TempDir());
            }).substr(0, 7),
            "[file] ");
}

// A program that was started without standard input gets 0 for its first file.
TEST(File, MayBeNumberZero) {
  const int input = dup(STDIN_FILENO);
  ASSERT_EQ(close(STDIN_FILENO), 0);
  EXPECT_TRUE(File::lock_folder(::testing::TempDir()));
  const std::string path = ::testing::TempDir() + "/zero";
  File::create(path).write("abc", 3, 0);
  EXPECT_EQ(File::open(path).size(), 3);
  remove_file(path);
  ASSERT_EQ(dup2(input, STDIN_FILENO), STDIN_FILENO);
  close(input);
}

// A vector that erases a file moves the later ones forward by assignment.
TEST(File, KeepsItsPathWhenItIsAssigned) {
  const std::string path = ::testing::TempDir() + "/kept";
  File file = File::create(::testing::TempDir() + "/replaced");
  remove_file(file.path());
  file = File::create(path);
  EXPECT_EQ(file.path(), path);
  EXPECT_TRUE(file.is_at(path));
  remove_file(path);
}

TEST(File, HasNoSizeWhenItIsGivenAway) {
  const std::string path = ::testing::TempDir() + "/given";
  File file = File::create(path);
  const File other = std::move(file);
  EXPECT_EQ(other.size(), 0);
  EXPECT_NE(testing::error_of([&] { file.size(); }).find("cannot be measured"),
            std::string::npos);
  remove_file(path);
}

}  // namespace
}  // namespace dtensor::io
