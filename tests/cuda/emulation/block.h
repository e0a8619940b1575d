// SPDX-License-Identifier: Apache-2.0
// Runs kernels on the host, block after block. Each thread of a block runs
// until it meets a barrier of its warp or its block, and then waits on a stack
// of its own. Every barrier reverses the order in which threads run, so that a
// kernel that relies on an order, or lacks a barrier, computes with values that
// do not exist yet.
//
// Both emulations of CUDA's runtime use it: the one that runs a launch later
// (cuda_runtime.h), and the one that runs it in the calling thread
// (at_once/cuda_runtime.h), which defines EMULATION_LOCAL.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

// If several threads of the host run kernels, each has its own block. Otherwise
// there is one, which is never destroyed: GPUs still work while the program
// ends.
#ifdef EMULATION_LOCAL
#define EMULATION_BLOCK(name) static EMULATION_LOCAL Block name
#else
#define EMULATION_LOCAL
#define EMULATION_BLOCK(name) static Block& name = *new Block
#endif

#define __host__
#define __device__
#define __global__
#define __shared__ static EMULATION_LOCAL  // one block runs at a time
#define __launch_bounds__(...)
#define DT_DYNAMIC_SHARED(name) \
  char* const name = ::emulation::Block::here().shared()

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  explicit dim3(unsigned n) : x(n) {}
};

inline EMULATION_LOCAL dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

inline constexpr unsigned kWarp = 32;

// Tells the sanitizers about jumps between stacks. The old stack calls leave()
// with the new one before a jump; arrive() is called on the old one when a jump
// returns to it.
class Switched {
 public:
#if defined __SANITIZE_ADDRESS__
  void leave(const Switched& to) {
    __sanitizer_start_switch_fiber(&fake_, to.bottom_, to.bytes_);
  }
  // The jump came from `from`, whose bounds are then known. When a stack runs
  // for the first time, it calls this where it begins.
  void arrive(Switched& from) {
    __sanitizer_finish_switch_fiber(fake_, &from.bottom_, &from.bytes_);
  }
  void lies(void* bottom, size_t bytes) { bottom_ = bottom, bytes_ = bytes; }

 private:
  void* fake_ = nullptr;
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
#elif defined __SANITIZE_THREAD__
  Switched() = default;
  Switched(const Switched&) = delete;
  Switched& operator=(const Switched&) = delete;
  ~Switched() {
    if (made_) __tsan_destroy_fiber(fiber_);
  }
  // (Inlined, because a function of its own would return on the other stack.)
  [[gnu::always_inline]] void leave(const Switched& to) {
    if (!made_) fiber_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to.fiber_, 0);
  }
  void arrive(const Switched&) {}
  void lies(void*, size_t) {
    fiber_ = __tsan_create_fiber(0);
    made_ = true;
  }

 private:
  void* fiber_ = nullptr;
  bool made_ = false;
#else
  void leave(const Switched&) {}
  void arrive(const Switched&) {}
  void lies(void*, size_t) {}
#endif
};

// The threads of a block, and what they share.
class Block {
 public:
  static Block& here() {
    EMULATION_BLOCK(block);
    return block;
  }

  // Runs body() in this number of threads, block after block.
  void run(unsigned blocks, unsigned threads, size_t shared,
           const std::function<void()>& body) {
    gridDim = dim3(blocks);
    blockDim = dim3(threads);
    body_ = &body;
    shared_.resize(shared / 16 + 1);
    for (unsigned b = 0; b < blocks; ++b) {
      blockIdx.x = b;
      threads_.assign(threads, {});
      while (go_on()) forward_ = !forward_;
    }
  }
  // Called by the running thread before it jumps out of run().
  void jump() {
    if (!running_) return;
    running_->switched.leave(switched_);
    switched_.arrive(running_->switched);
    running_ = nullptr;
  }
  // Called after such a jump: no thread of the block continues.
  void drop() {
    threads_.clear();
    idle_.clear();
    stacks_.clear();
  }

  void sync() { wait(Waits::kBlock); }
  void sync_warp() { wait(Waits::kWarp); }
  unsigned shuffle(unsigned word, unsigned from) {
    threads_[threadIdx.x].word = word;
    sync_warp();
    const unsigned other = threads_[from].word;
    sync_warp();
    return other;
  }
  char* shared() { return shared_.data()->bytes; }

 private:
  static constexpr size_t kStack = 64 << 10;
  enum class Waits { kNot, kWarp, kBlock, kLeft };
  struct Stack {
    ucontext_t begin;  // where it has not started yet
    jmp_buf at;
    Switched switched;
    bool started = false;
    char bytes[kStack];
  };
  struct Thread {
    Waits waits = Waits::kNot;
    Stack* on = nullptr;  // once it has begun
    unsigned word = 0;
  };
  struct alignas(16) Line {
    char bytes[16];
  };

  Stack* take() {
    if (idle_.empty()) {
      stacks_.push_back(std::make_unique_for_overwrite<Stack>());
      prepare(*stacks_.back());
      return stacks_.back().get();
    }
    Stack* const last = idle_.back();
    idle_.pop_back();
    return last;
  }
  static void prepare(Stack& s) {
    getcontext(&s.begin);
    s.begin.uc_stack.ss_sp = s.bytes;
    s.begin.uc_stack.ss_size = kStack;
    s.switched.lies(s.bytes, kStack);
    makecontext(&s.begin, &live, 0);
  }
  // The code that a stack runs: a thread from beginning to end, and then the
  // next threads of the warp, until one has begun already.
  static void live() {
    Block& block = here();
    block.running_->switched.arrive(block.switched_);
    for (;;) {
      Stack* const on = block.running_;
      do {
        const unsigned t = threadIdx.x;
        block.threads_[t].on = on;
        (*block.body_)();
        block.threads_[t].waits = Waits::kLeft;
      } while (block.next());
      block.idle_.push_back(on);
      block.leave(*on);
    }
  }
  bool next() {
    if (at_ + 1 >= hi_ - lo_) return false;
    const unsigned t = thread(at_ + 1);
    if (threads_[t].on) return false;
    ++at_;
    threadIdx.x = t;
    return true;
  }
  // Switches by jumps, which are cheap: to switch contexts also sets the signal
  // mask, by a system call.
  void leave(Stack& s) {
    if (_setjmp(s.at) == 0) {
      s.switched.leave(switched_);
      _longjmp(scheduler_, 1);
    }
    s.switched.arrive(switched_);
  }
  void resume(Stack& s) {
    running_ = &s;
    if (_setjmp(scheduler_) != 0) {
      switched_.arrive(s.switched);
      running_ = nullptr;
      return;
    }
    switched_.leave(s.switched);
    if (s.started) _longjmp(s.at, 1);
    s.started = true;
    setcontext(&s.begin);
  }
  void wait(Waits how) {
    Thread& self = threads_[threadIdx.x];
    self.waits = how;
    leave(*self.on);
  }

  // Runs each warp as far as it can get without the others, and then opens the
  // block's barrier. False if all threads have left. If some never come to the
  // barrier, the others would wait for ever, so the process aborts.
  bool go_on() {
    const auto threads = static_cast<unsigned>(threads_.size());
    const unsigned warps = (threads + kWarp - 1) / kWarp;
    for (unsigned i = 0; i < warps; ++i) {
      lo_ = (forward_ ? i : warps - 1 - i) * kWarp;
      hi_ = lo_ + kWarp < threads ? lo_ + kWarp : threads;
      do resume_warp();
      while (open(lo_, hi_, Waits::kWarp));
    }
    if (all(0, threads, Waits::kLeft)) return false;
    if (!open(0, threads, Waits::kBlock)) std::abort();
    return true;
  }
  unsigned thread(unsigned i) const { return forward_ ? lo_ + i : hi_ - 1 - i; }
  void resume_warp() {
    for (at_ = 0; at_ < hi_ - lo_; ++at_) {
      const unsigned t = thread(at_);
      if (threads_[t].waits != Waits::kNot) continue;
      threadIdx.x = t;
      resume(threads_[t].on ? *threads_[t].on : *take());
    }
  }
  bool all(unsigned lo, unsigned hi, Waits how) const {
    for (unsigned t = lo; t < hi; ++t)
      if (threads_[t].waits != how) return false;
    return true;
  }
  bool open(unsigned lo, unsigned hi, Waits how) {
    if (!all(lo, hi, how)) return false;
    for (unsigned t = lo; t < hi; ++t) threads_[t].waits = Waits::kNot;
    return true;
  }

  std::vector<std::unique_ptr<Stack>> stacks_;
  std::vector<Stack*> idle_;
  std::vector<Thread> threads_;
  std::vector<Line> shared_;
  unsigned lo_ = 0, hi_ = 0, at_ = 0;  // the warp that runs, and its thread
  Stack* running_ = nullptr;
  jmp_buf scheduler_;
  Switched switched_;  // the stack that called run()
  bool forward_ = true;
  const std::function<void()>* body_ = nullptr;
};

}  // namespace emulation

inline void __syncthreads() { emulation::Block::here().sync(); }
template <class T>
T atomicAdd(T* to, T n) {
  const T old = *to;
  *to += n;
  return old;
}
inline void __syncwarp() { emulation::Block::here().sync_warp(); }
inline unsigned __shfl_xor_sync(unsigned, unsigned word, int distance) {
  return emulation::Block::here().shuffle(
      word, threadIdx.x ^ static_cast<unsigned>(distance));
}
