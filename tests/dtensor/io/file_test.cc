#include "dtensor/io/file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

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
            "[file] " + path + " cannot be read at byte 3: it ends there");
  remove_file(path);
}

// Another rank's clean-up may have been quicker.
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

}  // namespace
}  // namespace dtensor::io
