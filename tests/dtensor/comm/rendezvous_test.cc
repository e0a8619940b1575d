// SPDX-License-Identifier: Apache-2.0
// Tests RendezvousFile alone. Processes meet by such a file in
// tcp_rendezvous_test.cc and faults_test.cc.
#include "dtensor/comm/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

class RendezvousTest : public ::testing::Test {
 protected:
  RendezvousTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  std::string path() const { return folder_ / "meet"; }
  bool empty() const { return std::filesystem::is_empty(folder_); }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      ("rendezvous" + std::to_string(getpid()));
};

TEST_F(RendezvousTest, OthersReadWhatTheFirstWrites) {
  const RendezvousFile other(path());
  EXPECT_EQ(other.read(), std::nullopt);
  std::ofstream(path()) << "left by an earlier run";
  {
    RendezvousFile first(path());
    for (const std::string& text :
         {std::string("a\n\0b", 4), std::string("c")}) {
      first.write(text);
      EXPECT_EQ(other.read(), text);
    }
    struct stat s {};
    ASSERT_EQ(stat(path().c_str(), &s), 0);
    EXPECT_EQ(s.st_mode & 0777, 0600u);
  }
  EXPECT_TRUE(empty());
}

TEST_F(RendezvousTest, WhoeverOnlyReadsLeavesTheFile) {
  std::ofstream(path()) << "another's";
  { const RendezvousFile other(path()); }
  EXPECT_FALSE(empty());
}

TEST_F(RendezvousTest, ChecksThePath) {
  EXPECT_EQ(error_of([] { RendezvousFile("/no/such/folder/meet"); }),
            "[rendezvous] the folder of /no/such/folder/meet does not exist; "
            "name another file in --rendezvous");
  const std::string too_long = std::string(300, 'a') + "/meet";
  EXPECT_EQ(error_of([&] { RendezvousFile file(too_long); }),
            "[rendezvous] the folder of " + too_long +
                " does not exist; name another file in --rendezvous");
  std::filesystem::create_directory(path());
  EXPECT_EQ(error_of([&] { RendezvousFile file(path()); }),
            "[rendezvous] " + path() +
                " is not a regular file; name a path where nothing exists");
}

}  // namespace
}  // namespace dtensor
