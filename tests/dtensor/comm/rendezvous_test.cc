#include "dtensor/comm/rendezvous.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/testing.h"

namespace dtensor {
namespace {

using std::chrono::milliseconds;
using testing::error_of;

class RendezvousTest : public ::testing::Test {
 protected:
  RendezvousTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  std::string path() const { return folder_ / "meet"; }
  Rendezvous at(int64_t rank, int64_t world, milliseconds patience) const {
    return Rendezvous(path(), rank, world, patience);
  }
  void leave(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  bool empty() const { return std::filesystem::is_empty(folder_); }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      ("rendezvous" + std::to_string(getpid()));
};

// A process that runs fn and exits with 0 when that is true.
pid_t start(const std::function<bool()>& fn) {
  const pid_t child = fork();
  if (child == 0) {
    bool good = false;
    try {
      good = fn();
    } catch (...) {
    }
    _exit(good ? 0 : 1);
  }
  return child;
}
bool succeeded(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

// Every process has rank 0's bytes, of every call.
bool meets(Rendezvous rendezvous, int64_t rank) {
  for (int call = 0; call < 20; ++call) {
    const std::string want = "rank 0's\n\0 bytes " + std::to_string(call);
    if (rendezvous.share(rank == 0 ? want : "not mine") != want) return false;
  }
  return true;
}

TEST_F(RendezvousTest, ProcessesHaveWhatTheFirstGives) {
  std::vector<pid_t> children;
  for (int64_t rank : {3, 0, 2, 1})
    children.push_back(
        start([&] { return meets(at(rank, 4, milliseconds(30000)), rank); }));
  for (pid_t c : children) EXPECT_TRUE(succeeded(c));
  EXPECT_TRUE(empty());
}

// What earlier runs have left is neither taken nor waited for.
TEST_F(RendezvousTest, StaleFilesAreOverlooked) {
  leave("meet", "1 2 \nold bytes");
  leave("meet.1", "2 1 77\n");
  std::vector<pid_t> children;
  children.push_back(
      start([&] { return meets(at(0, 2, milliseconds(30000)), 0); }));
  // Rank 0 has answered the one that is not there by now.
  std::this_thread::sleep_for(milliseconds(100));
  children.push_back(
      start([&] { return meets(at(1, 2, milliseconds(30000)), 1); }));
  for (pid_t c : children) EXPECT_TRUE(succeeded(c));
  EXPECT_TRUE(empty());
}

TEST_F(RendezvousTest, AProcessThatIsKilledIsMissed) {
  const pid_t killed = start([&] {
    at(1, 3, milliseconds(30000)).share("");
    return true;
  });
  while (!std::filesystem::exists(path() + ".1"))
    std::this_thread::sleep_for(milliseconds(1));
  kill(killed, SIGKILL);
  EXPECT_FALSE(succeeded(killed));
  const pid_t other =
      start([&] { return at(2, 3, milliseconds(30000)).share("") == "bytes"; });
  while (!std::filesystem::exists(path() + ".2"))
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(error_of([&] { at(0, 3, milliseconds(1000)).share("bytes"); }),
            "[rendezvous] rank 0 of 3 has waited 1 s at " + path() +
                " for rank 1; start them all, with the same --rendezvous and "
                "the same number of ranks");
  // It had come, and has the bytes.
  EXPECT_TRUE(succeeded(other));
}

TEST_F(RendezvousTest, SaysWhoIsMissing) {
  EXPECT_EQ(error_of([&] { at(1, 2, milliseconds(50)).share(""); }),
            "[rendezvous] rank 1 of 2 has waited 0.05 s for the others at " +
                path() +
                "; start them all, with the same --rendezvous and the same "
                "number of ranks");
  // It was one of two, and has left its file.
  EXPECT_EQ(error_of([&] { at(0, 3, milliseconds(50)).share(""); }),
            "[rendezvous] rank 0 of 3 has waited 0.05 s at " + path() +
                " for rank 1 (it came as one of 2), rank 2; start them all, "
                "with the same --rendezvous and the same number of ranks");
}

TEST_F(RendezvousTest, WithoutOthersThereIsNoFile) {
  EXPECT_EQ(at(0, 1, milliseconds(0)).share("alone"), "alone");
  EXPECT_TRUE(empty());
}

TEST_F(RendezvousTest, ChecksWhatItIsGiven) {
  EXPECT_EQ(error_of([] { Rendezvous("x", 2, 2); }),
            "[rendezvous] rank 2 of 2 at \"x\"; name a path, and ranks from 0");
  EXPECT_EQ(error_of([] { Rendezvous("", 0, 2); }),
            "[rendezvous] rank 0 of 2 at \"\"; name a path, and ranks from 0");
  const std::string e =
      error_of([] { Rendezvous("/no/such/folder/meet", 1, 2).share(""); });
  EXPECT_NE(e.find("/no/such/folder/meet"), e.npos) << e;
}

}  // namespace
}  // namespace dtensor
