// SPDX-License-Identifier: Apache-2.0
// Guards a fix: a program without memory said neither how much it needed nor
// what to try, or it ended in std::terminate, since the destructor of a JSON
// value allocates.
#include "dtensor/device/out_of_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dtensor/dtensor.h"
#include "dtensor/program/program.h"

namespace dtensor {
namespace {

constexpr int64_t kMiB = 1 << 20;

// The address space that this process uses, in bytes. Allocates nothing.
int64_t address_space() {
  char text[64] = {};
  const int file = open("/proc/self/statm", O_RDONLY);
  const ssize_t n = read(file, text, sizeof(text) - 1);
  close(file);
  return n > 0 ? std::atoll(text) * sysconf(_SC_PAGESIZE) : 0;
}

struct Ended {
  int code;  // 128 + n for signal n
  std::string text;
};

// Runs a program with this body in a child process that may use `more` bytes
// more memory.
Ended run_limited(int64_t more, const std::function<void(Program&)>& body) {
  int ends[2];
  if (pipe(ends) != 0) return {-1, "no pipe"};
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDERR_FILENO);
    const int64_t used = address_space();
    if (used == 0) _exit(99);
    const auto limit = static_cast<rlim_t>(used + more);
    const rlimit both{limit, limit};
    setrlimit(RLIMIT_AS, &both);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    Program program({.mesh = "a=2"});
    std::string name = "program";
    char* argv[] = {name.data(), nullptr};
    const int code = program.main(1, argv, nullptr, [&] { body(program); });
    std::fflush(stderr);
    _exit(code);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
          text};
}

class OutOfMemory : public ::testing::Test {
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's own memory is beyond any limit";
#endif
  }
};

void expect_sentence(const Ended& e, const std::string& begins) {
  EXPECT_EQ(e.code, 1) << e.text;
  EXPECT_NE(e.text.find(": " + begins), std::string::npos) << e.text;
  EXPECT_NE(e.text.find("; use a smaller batch"), std::string::npos) << e.text;
}

TEST_F(OutOfMemory, TensorsOfARank) {
  const Ended e = run_limited(600 * kMiB, [](Program& program) {
    run(program.run_options(), [](Runtime& rt) {
      std::vector<DistTensor> all;
      for (;;) all.push_back(zeros({1 << 24}, rt.mesh(), "S0"));
    });
  });
  expect_sentence(e, "[allocate] 32.0 MiB for ");
  EXPECT_NE(e.text.find(" of rank "), std::string::npos) << e.text;
}

TEST_F(OutOfMemory, OtherMemoryOfARank) {
  const Ended e = run_limited(600 * kMiB, [](Program& program) {
    run(program.run_options(), [](Runtime& rt) {
      std::vector<std::string> all;
      while (rt.rank() == 1) all.push_back(std::string(1 << 20, 'x'));
    });
  });
  expect_sentence(e, "[allocate] there is no more memory for rank 1: ");
  EXPECT_EQ(e.text.find("uses 0 bytes"), std::string::npos) << e.text;
}

// If a thread cannot start, the ranks that run hear of it. Each thread has a
// large stack, and there is one heap, so the fourth stack does not fit while
// those ranks have enough memory.
TEST_F(OutOfMemory, ThreadsOfRanks) {
  constexpr int64_t kStack = 128 * kMiB;
  const Ended e =
      run_limited(3 * kStack + 64 * kMiB + 100 * kMiB, [](Program&) {
        mallopt(M_ARENA_MAX, 1);
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, kStack);
        pthread_setattr_default_np(&attributes);
        run(1000, [](Runtime& rt) {
          zeros({8}, rt.mesh(), "S0").redistribute("R").local();
        });
      });
  EXPECT_EQ(e.code, 1) << e.text;
  EXPECT_NE(e.text.find(": [run] the system cannot start a thread for rank "),
            std::string::npos)
      << e.text;
  EXPECT_NE(e.text.find(" of 1000: Resource temporarily unavailable; run fewer "
                        "ranks\n"),
            std::string::npos)
      << e.text;
}

TEST_F(OutOfMemory, WhileJsonIsBuilt) {
  for (const int64_t more : {80, 100, 130}) {
    const Ended e = run_limited(more * kMiB, [](Program&) {
      auto list = nlohmann::ordered_json::array();
      for (int64_t i = 0;; ++i)
        list.push_back({{"step", i}, {"losses", {1.0, 2.0}}});
    });
    expect_sentence(e, "[allocate] there is no more memory: ");
  }
}

// Nothing can catch an exception that leaves a destructor.
TEST_F(OutOfMemory, InADestructor) {
  const Ended e = run_limited(100 * kMiB, [](Program&) {
    struct Greedy {
      ~Greedy() {
        std::vector<std::string> all;
        for (;;) all.push_back(std::string(1 << 20, 'x'));
      }
    };
    Greedy();
  });
  expect_sentence(e, "[allocate] there is no more memory: ");
}

// MemoryReserve used to remove the handler that was there before.
TEST(MemoryReserve, LeavesTheHandlersThatWereThere) {
  const auto others = [] { throw std::bad_alloc(); };
  const std::new_handler before = std::set_new_handler(others);
  { const MemoryReserve reserve; }
  EXPECT_EQ(std::set_new_handler(before), std::new_handler(others));
}

TEST(MemoryReserve, GivesItsAddressSpaceBack) {
  const int64_t before = address_space();
  {
    const MemoryReserve reserve;
    EXPECT_GE(address_space() - before, 64 * kMiB);
  }
  EXPECT_LT(address_space() - before, 32 * kMiB);
}

TEST(OutOfMemoryText, SaysHowMuchAddressSpaceIsUsed) {
  const int64_t used = address_space();
  const std::string text = out_of_memory_text();
  EXPECT_NE(
      text.find(": the process uses " + amount(used) + " of address space"),
      std::string::npos)
      << text << "\nwanted: " << used << " bytes";
}

TEST(Amount, IsInTheLargestUnit) {
  EXPECT_EQ(amount(0), "0 bytes");
  EXPECT_EQ(amount(1023), "1023 bytes");
  EXPECT_EQ(amount(1024), "1.0 KiB");
  EXPECT_EQ(amount((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(amount(int64_t{3435973837}), "3.2 GiB");
  EXPECT_EQ(amount(int64_t{1} << 60), "1048576.0 TiB");
}

}  // namespace
}  // namespace dtensor
