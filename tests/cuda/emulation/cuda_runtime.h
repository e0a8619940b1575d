// As much of CUDA's runtime as portable/cuda_executor.cuh uses, on the host,
// for tests where there is no GPU. A launch runs in the calling thread and
// returns when it is done: block after block, each of whose threads is a fiber
// that runs until it meets a barrier of its warp or its block. The order in
// which they go on turns around at every barrier, so that what counts on an
// order, or on a barrier that is not there, computes with what is not there
// yet.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#define __device__
#define __global__
#define __shared__ static thread_local  // one block runs at a time
#define __launch_bounds__(...)
#define DT_DYNAMIC_SHARED(name) \
  char* const name = ::emulation::Block::here().shared()

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  explicit dim3(unsigned n) : x(n) {}
};

enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation };
using cudaStream_t = void*;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

inline constexpr unsigned kWarp = 32;

// The threads of a block, and what they share. One for each host thread: its
// fibers are kept from launch to launch.
class Block {
 public:
  static Block& here() {
    static thread_local Block block;
    return block;
  }

  // body() in each of so many threads, block after block.
  template <class Body>
  void run(unsigned blocks, unsigned threads, size_t shared, const Body& body) {
    body_ = [](const void* b) { (*static_cast<const Body*>(b))(); };
    argument_ = &body;
    threads_ = threads;
    shared_.resize(shared / 16 + 1);
    while (fibers_.size() < threads) start();
    for (unsigned b = 0; b < blocks; ++b) {
      blockIdx.x = b;
      for (unsigned t = 0; t < threads; ++t) fibers_[t]->waits = Waits::kNot;
      while (go_on()) forward_ = !forward_;
    }
  }
  void sync() { wait(Waits::kBlock); }
  void sync_warp() { wait(Waits::kWarp); }
  unsigned shuffle(unsigned word, unsigned from) {
    fibers_[threadIdx.x]->word = word;
    sync_warp();
    const unsigned other = fibers_[from]->word;
    sync_warp();
    return other;
  }
  char* shared() { return shared_.data()->bytes; }

 private:
  static constexpr size_t kStack = 64 << 10;
  enum class Waits { kNot, kWarp, kBlock, kLeft };
  struct Fiber {
    ucontext_t begin;  // where it has not started yet
    jmp_buf at;
    bool started = false;
    Waits waits = Waits::kLeft;
    unsigned word = 0;
    char stack[kStack];
  };
  struct alignas(16) Line {
    char bytes[16];
  };

  void start() {
    fibers_.push_back(std::make_unique<Fiber>());
    Fiber& f = *fibers_.back();
    getcontext(&f.begin);
    f.begin.uc_stack.ss_sp = f.stack;
    f.begin.uc_stack.ss_size = kStack;
    makecontext(&f.begin, &live, 0);
  }
  // What a fiber does: its part of one block after the other.
  static void live() {
    for (Block& block = here();;) {
      block.body_(block.argument_);
      block.wait(Waits::kLeft);
    }
  }
  // Jumps are what is cheap: a context's signal mask is a system call.
  void wait(Waits how) {
    Fiber& self = *fibers_[threadIdx.x];
    self.waits = how;
    if (_setjmp(self.at) == 0) _longjmp(scheduler_, 1);
  }
  void resume(Fiber& f) {
    if (_setjmp(scheduler_) != 0) return;
    if (f.started) _longjmp(f.at, 1);
    f.started = true;
    setcontext(&f.begin);
  }

  // Each warp runs as far as it can get ahead of the others; then the block's
  // barrier opens. False when everybody has left. A barrier that some will not
  // come to would wait for ever: the process ends.
  bool go_on() {
    const unsigned warps = (threads_ + kWarp - 1) / kWarp;
    for (unsigned i = 0; i < warps; ++i) {
      const unsigned lo = (forward_ ? i : warps - 1 - i) * kWarp,
                     hi = lo + kWarp < threads_ ? lo + kWarp : threads_;
      do resume(lo, hi);
      while (open(lo, hi, Waits::kWarp));
    }
    if (all(0, threads_, Waits::kLeft)) return false;
    if (!open(0, threads_, Waits::kBlock)) std::abort();
    return true;
  }
  void resume(unsigned lo, unsigned hi) {
    for (unsigned i = 0; i < hi - lo; ++i) {
      const unsigned t = forward_ ? lo + i : hi - 1 - i;
      if (fibers_[t]->waits != Waits::kNot) continue;
      threadIdx.x = t;
      resume(*fibers_[t]);
    }
  }
  bool all(unsigned lo, unsigned hi, Waits how) const {
    for (unsigned t = lo; t < hi; ++t)
      if (fibers_[t]->waits != how) return false;
    return true;
  }
  bool open(unsigned lo, unsigned hi, Waits how) {
    if (!all(lo, hi, how)) return false;
    for (unsigned t = lo; t < hi; ++t) fibers_[t]->waits = Waits::kNot;
    return true;
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Line> shared_;
  unsigned threads_ = 0;
  jmp_buf scheduler_;
  bool forward_ = true;
  void (*body_)(const void*) = nullptr;
  const void* argument_ = nullptr;
};

}  // namespace emulation

inline void __syncthreads() { emulation::Block::here().sync(); }
inline void __syncwarp() { emulation::Block::here().sync_warp(); }
inline unsigned __shfl_xor_sync(unsigned, unsigned word, int distance) {
  return emulation::Block::here().shuffle(
      word, threadIdx.x ^ static_cast<unsigned>(distance));
}

template <class... Parameters, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* c,
                               void (*kernel)(Parameters...), Args... args) {
  gridDim = c->gridDim;
  blockDim = c->blockDim;
  emulation::Block::here().run(c->gridDim.x, c->blockDim.x, c->dynamicSmemBytes,
                               [&] { kernel(args...); });
  return cudaSuccess;
}

inline cudaError_t cudaMallocAsync(void** data, size_t bytes, cudaStream_t) {
  *data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *data ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaFreeAsync(void* data, cudaStream_t) {
  std::free(data);
  return cudaSuccess;
}
