// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/explore/child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

namespace dtensor::explore {
namespace {

using Clock = std::chrono::steady_clock;
using How = ChildEnd::How;

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

// Runs this program as a child that does what play() has for `part`.
ChildEnd run(const std::string& part, const ChildLimits& limits = {},
             const Stop& stop = Stop(), int client = -1) {
  return run_child({"child", "--play", part}, {"SPOKEN=word"}, limits, stop,
                   client);
}

int play(const std::string& part) {
  if (part == "speak") {
    std::printf("a %s, %s", std::getenv("SPOKEN"), part.c_str());
    std::fprintf(stderr, "first\nlast\n");
    return 3;
  }
  if (part == "abort") std::abort();
  if (part == "spin")
    while (true) getppid();
  if (part == "silent") {  // closes its output, and stays
    for (int fd : {1, 2}) close(fd);
    pause();
  }
  if (part == "print")
    while (true) std::printf("%1000d\n", 1);
  if (part == "complain")
    for (int i = 0; i < 100000; ++i) std::fprintf(stderr, "line %d\n", i);
  if (part == "grow")
    for (int i = 0; i < 40; ++i) {
      void* p = std::malloc(100 << 20);
      if (!p) return 7;
      std::memset(p, 1, 1 << 20);
    }
  if (part == "write") {
    ::signal(SIGXFSZ, SIG_IGN);
    const int fd =
        open((std::string(std::getenv("TEST_TMPDIR")) + "/x").c_str(),
             O_CREAT | O_WRONLY, 0600);
    return fd >= 0 && write(fd, "a", 1) < 0 ? 5 : 6;
  }
  if (part == "files") {
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/self/fd"))
      std::printf("%s ", entry.path().filename().c_str());
  }
  if (part == "leave") {  // leaves a process behind
    if (fork() == 0) {
      pause();
      _exit(0);
    }
    std::printf("left");
  }
  return 0;
}

TEST(Child, ReturnsWhatItPrintsAndItsCode) {
  const ChildEnd end = run("speak");
  EXPECT_EQ(end.how, How::kExited);
  EXPECT_EQ(end.code, 3);
  EXPECT_EQ(end.out, "a word, speak");
  EXPECT_EQ(end.err, "first\nlast\n");
}

TEST(Child, SaysWhichSignalEndedIt) {
  const ChildEnd end = run("abort");
  EXPECT_EQ(end.how, How::kSignal);
  EXPECT_EQ(end.code, SIGABRT);
}

TEST(Child, EndsAfterItsSeconds) {
  for (const char* part : {"spin", "silent"}) {
    const auto begun = Clock::now();
    EXPECT_EQ(run(part, {.seconds = 0.3}).how, How::kSeconds) << part;
    EXPECT_GT(seconds_since(begun), 0.25);
    EXPECT_LT(seconds_since(begun), 5);
  }
}

TEST(Child, OutputIsBounded) {
  const ChildEnd end = run("print", {.output = 1 << 20});
  EXPECT_EQ(end.how, How::kOutput);
  EXPECT_LT(end.out.size(), 2u << 20);
}

TEST(Child, KeepsTheEndOfALongStandardError) {
  const ChildEnd end = run("complain");
  EXPECT_EQ(end.how, How::kExited);
  EXPECT_LT(end.err.size(), 1u << 18);
  EXPECT_TRUE(end.err.ends_with("line 99999\n"));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST(Child, MemoryIsBounded) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take any amount of addresses";
  EXPECT_EQ(run("grow", {.memory = int64_t{1} << 30}).code, 7);
  EXPECT_EQ(run("grow", {.memory = int64_t{16} << 30}).code, 0);
}

// The limit holds from the child's first instruction on.
TEST(Child, WritesNoFiles) {
  if (kSanitized) GTEST_SKIP() << "the thread sanitizer writes a file";
  for (int i = 0; i < 20; ++i) EXPECT_EQ(run("write").code, 5);
}

TEST(Child, HasNoFilesOfThisProcess) {
  const int fd = open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  ASSERT_GE(fd, 3);
  EXPECT_EQ(run("files").out, "0 1 2 3 ");  // 3 is the folder itself
  close(fd);
}

TEST(Child, DoesNotWaitForProcessesThatItLeaves) {
  const auto begun = Clock::now();
  const ChildEnd end = run("leave");
  EXPECT_EQ(end.how, How::kExited);
  EXPECT_EQ(end.out, "left");
  EXPECT_LT(seconds_since(begun), 5);
}

TEST(Child, EndsWithin100MillisecondsOfAWish) {
  Stop stop;
  Clock::time_point wished;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    wished = Clock::now();
    stop.request();
  });
  EXPECT_EQ(run("spin", {}, stop).how, How::kStopped);
  const double took = seconds_since(wished);
  other.join();
  EXPECT_LT(took, 0.1);
  EXPECT_TRUE(stop.requested());
  EXPECT_EQ(run("spin", {}, stop).how, How::kStopped);
}

TEST(Child, EndsWhenItsClientLeaves) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_FALSE(has_left(ends[0]));
  std::thread client([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    close(ends[1]);
  });
  EXPECT_EQ(run("spin", {}, Stop(), ends[0]).how, How::kStopped);
  client.join();
  EXPECT_TRUE(has_left(ends[0]));
  close(ends[0]);
}

}  // namespace
}  // namespace dtensor::explore

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--play") == 0)
    return dtensor::explore::play(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
