// SPDX-License-Identifier: Apache-2.0
// Saves checkpoints while each system call in turn fails or kills the process.
// This file replaces open(), pwrite() and so on of the C library: they count
// calls, make the fault, or else call the system.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/rank_context.h"
#include "tests/dtensor/io/checkpoint_testing.h"

namespace {

enum class Fault {
  kKill,   // SIGKILL, in the middle if it is a write
  kOnce,   // this call fails
  kFull,   // it fails, as do later ones that take space
  kShort,  // a write takes half
};
std::atomic<int> calls_left{-1};  // before the fault; negative: none
std::atomic<bool> full{false};
Fault fault = Fault::kOnce;
int error_number = EIO;
std::atomic<int64_t> bytes_read{0};

// If not null, gets the calls in order: "write PATH", ...
std::mutex log_mutex;
std::vector<std::string>* calls = nullptr;
void note(const std::string& call) {
  const std::lock_guard lock(log_mutex);
  if (calls) calls->push_back(call);
}
void note(const char* call, int file) {
  char path[4096] = "";
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  (void)!readlink(link.c_str(), path, sizeof(path) - 1);
  note(std::string(call) + " " + path);
}

// True if this call has the fault.
bool is_now() { return calls_left.load() >= 0 && calls_left.fetch_sub(1) == 0; }

// True if this call fails. For kKill, half() does half of a write.
template <class Half>
bool fails(bool takes_space, const Half& half) {
  if (full && takes_space) {
    errno = error_number;
    return true;
  }
  if (!is_now()) return false;
  if (fault == Fault::kShort) return false;
  if (fault == Fault::kKill) {
    half();
    kill(getpid(), SIGKILL);
  }
  full = fault == Fault::kFull;
  errno = error_number;
  return true;
}
bool fails(bool takes_space) {
  return fails(takes_space, [] {});
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const int mode = flags & O_CREAT ? va_arg(list, int) : 0;
  va_end(list);
  if (fails(flags & O_CREAT)) return -1;
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
extern "C" ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) {
  const auto real = [&](size_t n) {
    return syscall(SYS_pwrite64, file, data, n, at);
  };
  note("write", file);
  const bool now = calls_left == 0 && fault == Fault::kShort;
  if (fails(true, [&] { real(bytes / 2); })) return -1;
  return real(now && bytes > 1 ? bytes / 2 : bytes);
}
extern "C" ssize_t pread(int file, void* data, size_t bytes, off_t at) {
  if (fails(false)) return -1;
  const ssize_t n = syscall(SYS_pread64, file, data, bytes, at);
  if (n > 0) bytes_read += n;
  return n;
}
extern "C" int fsync(int file) {
  note("sync", file);
  if (fails(true)) return -1;
  return static_cast<int>(syscall(SYS_fsync, file));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  note(std::string("rename ") + to);
  if (fails(false)) return -1;
  return static_cast<int>(syscall(SYS_rename, from, to));
}
extern "C" int mkdir(const char* path, mode_t mode) noexcept {
  if (fails(true)) return -1;
  return static_cast<int>(syscall(SYS_mkdir, path, mode));
}
extern "C" int unlink(const char* path) noexcept {
  if (fails(false)) return -1;
  return static_cast<int>(syscall(SYS_unlink, path));
}

namespace dtensor {
namespace {

using namespace testing;

const std::vector<Sample>& samples() {
  static const std::vector<Sample> all = {
      {"large", DType::kF32, {300, 501}, "S0"},  // written by itself
      {"uneven", DType::kBF16, {5, 3}, "S0"},
      {"copied", DType::kF64, {6}, "R"}};
  return all;
}

// Saves step 1 or step 2, whose values differ.
void save(const std::string& dir, int64_t step, bool background) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    std::vector<NamedTensor> tensors;
    for (const Sample& s : samples())
      tensors.push_back({s.name, s.on(mesh, s.layout, uint64_t(step))});
    save_checkpoint(dir, step, tensors, {{"step", step}},
                    {.background = background});
    finish_saves();
  });
}

void expect_saved(const std::string& path, int64_t step) {
  const Mesh mesh = Mesh::parse("a=3");
  run(3, [&](Runtime&) {
    const CheckpointReader saved(path);
    EXPECT_EQ(std::get<int64_t>(saved.values().at("step")), step);
    for (const Sample& s : samples())
      expect_is(saved.read(s.name, mesh, "S0"), s, "S0", uint64_t(step));
  });
}

class Faults : public ::testing::Test {
 protected:
  void TearDown() override { none(); }
  static void none() {
    calls_left = -1;
    full = false;
  }
  static void at(int call, Fault f, int error) {
    fault = f;
    error_number = error;
    full = false;
    calls_left = call;
  }
  static std::string path_of(const Folder& dir, int step) {
    return dir / fmt::format("step-{:08}", step);
  }
};

// Kills the process at every write, fsync, rename, open, mkdir and unlink.
TEST_F(Faults, KilledAtEveryCall) {
  for (const bool background : {false, true}) {
    int old_ones = 0, new_ones = 0, left_over = 0;
    bool done = false;
    for (int call = 0; !done; ++call) {
      ASSERT_LT(call, 200);
      SCOPED_TRACE(call);
      const Folder dir("killed");
      save(dir.path(), 1, false);
      const pid_t child = fork();
      if (child == 0) {
        at(call, Fault::kKill, 0);
        save(dir.path(), 2, background);
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      done = WIFEXITED(status);
      ASSERT_TRUE(done ? WEXITSTATUS(status) == 0
                       : WTERMSIG(status) == SIGKILL);
      // Step 1 is as it was. Step 2 is complete, or not there.
      const auto list = list_checkpoints(dir.path());
      ASSERT_FALSE(list.empty());
      expect_saved(path_of(dir, 1), 1);
      if (list.size() == 2) expect_saved(path_of(dir, 2), 2);
      EXPECT_EQ(latest_checkpoint(dir.path()), list.back());
      EXPECT_TRUE(!done || list.size() == 2);
      ++(list.size() == 2 ? new_ones : old_ones);
      // Unfinished checkpoints are listed, and nobody has removed them.
      const auto rest = unfinished_checkpoints(dir.path());
      EXPECT_EQ(names_in(dir.path()).size(), list.size() + rest.size());
      left_over += !rest.empty();
      if (list.size() == 2) continue;
      save(dir.path(), 2, background);
      expect_saved(path_of(dir, 2), 2);
      EXPECT_TRUE(unfinished_checkpoints(dir.path()).empty());
    }
    EXPECT_GT(old_ones, 10);
    EXPECT_GT(left_over, 10);
    // Step 2 is complete if the process was killed after the rename. (In the
    // background the calls come in another order each time, and may miss that
    // case.)
    EXPECT_GT(new_ones, background ? 0 : 1);
  }
}

// A machine that stops loses what is not on the disk. So all files are synced
// before their folder gets its name, and the name is synced before the save
// returns.
TEST_F(Faults, EverythingIsOnTheDiskBeforeItHasItsName) {
  for (const bool background : {false, true}) {
    const Folder dir("order");
    const std::string temporary = dir / "step-00000001.tmp";
    std::vector<std::string> log;
    calls = &log;
    save(dir.path(), 1, background);
    calls = nullptr;
    const auto last = [&](const std::string& call) {
      const auto i = std::find(log.rbegin(), log.rend(), call);
      EXPECT_NE(i, log.rend()) << call;
      return log.rend() - i;
    };
    const auto named = last("rename " + path_of(dir, 1));
    for (const char* name :
         {"rank-00000.safetensors", "rank-00001.safetensors", "index.json"}) {
      const std::string path = temporary + "/" + name;
      EXPECT_LT(last("write " + path), last("sync " + path));
      EXPECT_LT(last("sync " + path), last("sync " + temporary));
    }
    EXPECT_LT(last("sync " + temporary), named);
    EXPECT_GT(last("sync " + dir.path()), named);
  }
}

// If a call fails, all ranks throw the same Error, step 1 is not lost, and
// nothing is left of step 2.
TEST_F(Faults, TheSystemSaysNoAtEveryCall) {
  for (const bool background : {false, true})
    for (const Fault f : {Fault::kOnce, Fault::kFull})
      for (const int error : {ENOSPC, background ? EROFS : EIO}) {
        const Folder dir("no");
        save(dir.path(), 1, false);
        int failed = 0;
        bool hit = true;
        for (int call = 0; hit; ++call) {
          ASSERT_LT(call, 200);
          SCOPED_TRACE(call);
          const Mesh mesh = Mesh::parse("a=2");
          at(call, f, error);
          const auto errors = errors_on(of_ranks(2), [&](Runtime&) {
            std::vector<NamedTensor> tensors;
            for (const Sample& s : samples())
              tensors.push_back({s.name, s.on(mesh, s.layout, 2)});
            save_checkpoint(dir.path(), 2, tensors, {{"step", int64_t{2}}},
                            {.background = background});
            finish_saves();
          });
          hit = calls_left < 0;
          none();
          expect_saved(path_of(dir, 1), 1);
          if (!hit) {
            expect_saved(path_of(dir, 2), 2);
            continue;
          }
          ++failed;
          EXPECT_EQ(errors[0], errors[1]);
          EXPECT_NE(errors[0].find(std::strerror(error)), std::string::npos)
              << errors[0];
          EXPECT_NE(errors[0].find(dir.path()), std::string::npos) << errors[0];
          EXPECT_EQ(names_in(dir.path()),
                    std::vector<std::string>{"step-00000001"});
        }
        EXPECT_GT(failed, 10);
      }
}

// With one rank, no other rank removes the files of a failed save.
TEST_F(Faults, OneRankLeavesNothingEither) {
  bool hit = true;
  for (int call = 0; hit; ++call) {
    ASSERT_LT(call, 200);
    SCOPED_TRACE(call);
    const Folder dir("one");
    const Mesh mesh = Mesh::parse("a=1");
    at(call, Fault::kOnce, EIO);
    const auto errors = errors_on(of_ranks(1), [&](Runtime&) {
      std::vector<NamedTensor> tensors;
      for (const Sample& s : samples())
        tensors.push_back({s.name, s.on(mesh, "R", 2)});
      save_checkpoint(dir.path(), 2, tensors, {{"step", int64_t{2}}});
    });
    hit = calls_left < 0;
    none();
    EXPECT_EQ(errors[0] == "no error", !hit) << errors[0];
    if (hit) {
      EXPECT_EQ(names_in(dir.path()), std::vector<std::string>());
    }
  }
}

TEST_F(Faults, ShortWritesAreContinued) {
  for (int call = 0; call < 30; ++call) {
    const Folder dir("short");
    at(call, Fault::kShort, 0);
    save(dir.path(), 1, false);
    none();
    expect_saved(path_of(dir, 1), 1);
  }
}

// The next save or the end of the run throws an error of the background.
TEST_F(Faults, WhoIsToldOfAnErrorInTheBackground) {
  const Mesh mesh = Mesh::parse("a=2");
  for (const bool next : {false, true}) {
    const Folder dir("told");
    at(6, Fault::kFull, ENOSPC);
    const std::string error = error_of([&] {
      run(2, [&](Runtime&) {
        const Sample& s = samples()[0];
        const std::vector<NamedTensor> x = {{s.name, s.on(mesh, "S0", 1)}};
        save_checkpoint(dir.path(), 1, x, {}, {.background = true});
        if (!next) return;
        EXPECT_NE(error_of([&] {
                    save_checkpoint(dir.path(), 2, x, {});
                  }).find(std::strerror(ENOSPC)),
                  std::string::npos);
      });
    });
    if (next)
      EXPECT_EQ(error, "no error");
    else
      EXPECT_NE(error.find(std::strerror(ENOSPC)), error.npos) << error;
    none();
    EXPECT_EQ(names_in(dir.path()), std::vector<std::string>{});
  }
}

TEST_F(Faults, AFileInPlaceOfTheFolder) {
  const Folder dir("file");
  write_text(dir / "x", "not a folder");
  for (const std::string& path : {dir / "x", dir / "x/y"})
    for (const std::string& e : errors_on(
             of_ranks(2), [&](Runtime&) { save_checkpoint(path, 1, {}, {}); }))
      EXPECT_NE(e.find(std::strerror(ENOTDIR)), e.npos) << e;
  EXPECT_EQ(text_of(dir / "x"), "not a folder");
}

// If one rank's disk fails while all read, all ranks throw which file it was.
TEST_F(Faults, ReadErrors) {
  const Folder dir("reads");
  save(dir.path(), 1, false);
  const Mesh mesh = Mesh::parse("a=3");
  int failed = 0;
  bool hit = true;
  for (int call = 0; hit; ++call) {
    ASSERT_LT(call, 200);
    const auto errors = errors_on(of_ranks(3), [&](Runtime& rt) {
      const CheckpointReader saved(path_of(dir, 1));
      rt.context().communicator({0, 1, 2}).barrier(
          {.kind = StepKind::kBarrier, .op = "test"});
      if (rt.rank() == 0) at(call, Fault::kOnce, EIO);
      rt.context().communicator({0, 1, 2}).barrier(
          {.kind = StepKind::kBarrier, .op = "test"});
      saved.read({{"large", mesh, "S1"}, {"copied", mesh, "R"}});
    });
    hit = calls_left < 0;
    none();
    failed += hit;
    for (const std::string& e : errors) {
      EXPECT_EQ(e, errors[0]);
      EXPECT_EQ(hit, e.find(std::strerror(EIO)) != e.npos &&
                         e.find("rank-0000") != e.npos)
          << e;
    }
  }
  EXPECT_GT(failed, 5);
}

// A rank reads the boxes that it needs some of, and nothing else.
TEST_F(Faults, OnlyWhatIsNeededIsRead) {
  const Folder dir("needed");
  const Mesh mesh = Mesh::parse("a=4");
  const Sample s{"x", DType::kF32, {4000, 1000}, "S0"};  // 4 boxes of 4 MB
  run(4, [&](Runtime&) {
    save_checkpoint(dir.path(), 1,
                    {{"x", s.on(mesh, "S0", 1)}, {"y", s.on(mesh, "S1", 2)}},
                    {});
  });
  struct {
    const char *name, *mesh, *layout;
    int64_t boxes;  // that are read, by all ranks together
  } cases[] = {{"x", "a=4", "S0", 4}, {"x", "a=4", "R", 16},
               {"x", "a=2", "S0", 4}, {"x", "a=8", "S0", 8},
               {"x", "a=3", "S0", 6}, {"y", "a=4", "S0", 16},
               {"y", "a=4", "S1", 4}, {"x", "a=1 of ranks 5", "R", 4}};
  for (const auto& c : cases) {
    const Mesh to = Mesh::parse(c.mesh);
    std::atomic<int64_t> read{0};
    run(8, [&](Runtime& rt) {
      const CheckpointReader saved(path_of(dir, 1));
      const Call all{.kind = StepKind::kBarrier, .op = "test"};
      Communicator& comm = rt.context().communicator({0, 1, 2, 3, 4, 5, 6, 7});
      comm.barrier(all);
      if (rt.rank() == 0) bytes_read = 0;
      comm.barrier(all);
      const DistTensor x = saved.read(c.name, to, c.layout);
      comm.barrier(all);
      read = bytes_read.load();
      expect_is(x, s, c.layout, c.name == std::string("x") ? 1 : 2);
    });
    EXPECT_EQ(read, c.boxes * 4'000'000) << c.name << " " << c.mesh << c.layout;
  }
}

}  // namespace
}  // namespace dtensor
