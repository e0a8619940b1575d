// SPDX-License-Identifier: Apache-2.0
// Makes each allocation of a run fail in turn, each in a child process of its
// own. A failed allocation must do no more than fail the run: the child must
// end by itself, in time, with a result or with an exception.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <new>
#include <string>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/nothrow_new.h"
#include "tests/testing.h"

namespace {

// The number of allocations that succeed before one fails; negative if none
// fails. Counts allocations of threads with `takes_part`, or of all if
// `everybody` is set.
std::atomic<int64_t> left{-1};
std::atomic<bool> everybody{false};
thread_local bool takes_part = false;

bool fails() {
  if (left.load(std::memory_order_relaxed) < 0) return false;
  if (!takes_part && !everybody) return false;
  return left.fetch_sub(1) == 0;
}

}  // namespace

void* operator new(size_t bytes) {
  void* p = fails() ? nullptr : std::malloc(bytes ? bytes : 1);
  if (!p) throw std::bad_alloc();
  return p;
}
void* operator new[](size_t bytes) { return operator new(bytes); }
// Not inlined: otherwise GCC would warn that free() does not match operator
// new.
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { operator delete(p); }
void operator delete(void* p, size_t) noexcept { operator delete(p); }
void operator delete[](void* p, size_t) noexcept { operator delete(p); }

namespace dtensor {
namespace {

using Program = std::function<void(Runtime&)>;

// The exit statuses of a child. (Sanitizers exit with other ones.)
constexpr int kDone = 0, kFailed = 11, kNeverFailed = 12;

// Runs `program` in a child process and makes allocation `at` of rank 1 fail;
// with `any`, of all threads. Returns the exit status.
int child(const Program& program, int64_t at, bool any) {
  alarm(20);
  if (!std::freopen("/dev/null", "w", stderr)) std::_Exit(1);
  everybody = any;
  bool failed = false;
  try {
    run(2, [&](Runtime& rt) {
      takes_part = rt.rank() == 1;
      if (rt.rank() == 1) left = at;
      program(rt);
    });
  } catch (const std::exception&) {
    failed = true;
  }
  const bool reached = left < 0;
  left = -1;
  return failed ? kFailed : reached ? kDone : kNeverFailed;
}

void fail_each_in_turn(const Program& program, bool any, int64_t stride) {
  int64_t at = 0, failed = 0;
  for (; at < 20000; at += stride) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) _exit(child(program, at, any));
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFEXITED(status))
        << "allocation " << at << ": killed by signal " << WTERMSIG(status);
    const int code = WEXITSTATUS(status);
    ASSERT_TRUE(code == kDone || code == kFailed || code == kNeverFailed)
        << "allocation " << at << ": status " << code;
    if (code == kNeverFailed) break;
    failed += code == kFailed;
  }
  std::printf("%ld allocations, %ld failed the run\n", static_cast<long>(at),
              static_cast<long>(failed));
  EXPECT_GT(failed, 10);
}

Tensor ones(const Shape& shape) { return Tensor::full(shape, DType::kF32, 1); }

void redistributes(Runtime& rt) {
  const Mesh mesh = rt.mesh();
  const DistTensor x = DistTensor::from_global(ones({6, 4}), mesh, "S0");
  x.redistribute("S1").redistribute("R");
  DistTensor::from_global(ones({6, 4}), mesh, "P").redistribute("S0");
}

void redistributes_async(Runtime& rt) {
  const Mesh mesh = rt.mesh();
  const DistTensor x = DistTensor::from_global(ones({6, 4}), mesh, "S0");
  const DistTensor a = x.redistribute_async("S1");
  const DistTensor b = x.redistribute_async("R");
  const DistTensor c = a.redistribute_async("S0");
  a.local();
  c.local();
  b.local();
}

void operators(Runtime& rt) {
  const Mesh mesh = rt.mesh();
  const DistTensor x = DistTensor::from_global(ones({6, 4}), mesh, "S1");
  DistTensor w = DistTensor::from_global(ones({4, 6}), mesh, "S0");
  w.set_requires_grad(true);
  const DistTensor loss = sum(softmax(matmul(x, w), 1));
  grad(loss, {w})[0].full();
}

// A rank fails without memory: its Error needs none, but a copy of the text for
// the other ranks does.
TEST(AllocationFailure, ARankThatCannotSayWhyItFailedSaysThat) {
  RunOptions options;
  options.world = 2;
  options.timeout = std::chrono::seconds(10);
  std::string heard;
  EXPECT_EQ(testing::error_of([&] {
              run(options, [&](Runtime& rt) {
                if (rt.rank() == 1) {
                  const Error why("[load] there is no such file");
                  takes_part = true;
                  left = 0;
                  throw why;
                }
                const Mesh mesh = rt.mesh();
                heard = testing::error_of([&] {
                  rt.context()
                      .communicator(mesh, mesh.all_axes())
                      .barrier({StepKind::kBarrier, "", 1});
                });
              });
            }),
            "[load] there is no such file");
  EXPECT_EQ(heard,
            "[barrier] rank 1 failed: no memory (it had called no collective)");
}

TEST(AllocationFailure, Redistribute) {
  fail_each_in_turn(redistributes, false, 1);
}
TEST(AllocationFailure, RedistributeAsync) {
  fail_each_in_turn(redistributes_async, false, 1);
  // Also make allocations of the threads that carry out the moves fail.
  fail_each_in_turn(redistributes_async, true, 1);
}
TEST(AllocationFailure, Operators) {
#ifdef __SANITIZE_THREAD__
  // In GCC 12's ThreadSanitizer, a thread that waits for a static may sleep for
  // ever if the static's constructor throws in another thread. All statics are
  // made here, so that no child waits for one.
  run(2, operators);
#endif
  fail_each_in_turn(operators, false, 1);
}

}  // namespace
}  // namespace dtensor
