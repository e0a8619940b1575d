// As much of CUDA's runtime as portable/cuda_executor.h uses, on the host, for
// tests where there is no GPU. A launch runs in the calling thread and returns
// when it is done: block after block, each of whose threads is a fiber that
// runs until it meets a barrier of its warp or its block. The order in which
// they go on turns around at every barrier, so that what counts on an order, or
// on a barrier that is not there, computes with what is not there yet.
#pragma once
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
#define DT_DYNAMIC_SHARED(name) char* const name = ::emulation::block->shared()

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

// The threads of a block, and what they share.
class Block {
 public:
  Block(unsigned threads, size_t shared)
      : fibers_(threads), shared_(shared / 16 + 1) {}

  // body() in each of them; returns when all have left it.
  template <class Body>
  void run(const Body& body) {
    body_ = [](const void* b) { (*static_cast<const Body*>(b))(); };
    argument_ = &body;
    for (Fiber& f : fibers_) {
      f.waits = Waits::kNot;
      if (!f.stack) f.stack.reset(new char[kStack]);
      getcontext(&f.context);
      f.context.uc_stack = {f.stack.get(), 0, kStack};
      f.context.uc_link = &scheduler_;
      makecontext(&f.context, &enter, 0);
    }
    while (go_on()) forward_ = !forward_;
  }
  void sync() { wait(Waits::kBlock); }
  void sync_warp() { wait(Waits::kWarp); }
  unsigned shuffle(unsigned word, unsigned from) {
    fibers_[threadIdx.x].word = word;
    sync_warp();
    const unsigned other = fibers_[from].word;
    sync_warp();
    return other;
  }
  char* shared() { return shared_.data()->bytes; }

 private:
  static constexpr size_t kStack = 64 << 10;
  enum class Waits { kNot, kWarp, kBlock, kLeft };
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    Waits waits = Waits::kNot;
    unsigned word = 0;
  };
  struct alignas(16) Line {
    char bytes[16];
  };

  static void enter();
  void wait(Waits how) {
    Fiber& self = fibers_[threadIdx.x];
    self.waits = how;
    swapcontext(&self.context, &scheduler_);
  }
  // Each warp runs as far as it can get ahead of the others; then the block's
  // barrier opens. False when everybody has left. A barrier that some will not
  // come to would wait for ever: the process ends.
  bool go_on() {
    const unsigned n = static_cast<unsigned>(fibers_.size());
    const unsigned warps = (n + kWarp - 1) / kWarp;
    for (unsigned i = 0; i < warps; ++i) {
      const unsigned lo = (forward_ ? i : warps - 1 - i) * kWarp,
                     hi = lo + kWarp < n ? lo + kWarp : n;
      do resume(lo, hi);
      while (open(lo, hi, Waits::kWarp));
    }
    if (all(0, n, Waits::kLeft)) return false;
    if (!open(0, n, Waits::kBlock)) std::abort();
    return true;
  }
  void resume(unsigned lo, unsigned hi) {
    for (unsigned i = 0; i < hi - lo; ++i) {
      const unsigned t = forward_ ? lo + i : hi - 1 - i;
      if (fibers_[t].waits != Waits::kNot) continue;
      threadIdx.x = t;
      swapcontext(&scheduler_, &fibers_[t].context);
    }
  }
  bool all(unsigned lo, unsigned hi, Waits how) const {
    for (unsigned t = lo; t < hi; ++t)
      if (fibers_[t].waits != how) return false;
    return true;
  }
  bool open(unsigned lo, unsigned hi, Waits how) {
    if (!all(lo, hi, how)) return false;
    for (unsigned t = lo; t < hi; ++t) fibers_[t].waits = Waits::kNot;
    return true;
  }

  std::vector<Fiber> fibers_;
  std::vector<Line> shared_;
  ucontext_t scheduler_;
  bool forward_ = true;
  void (*body_)(const void*) = nullptr;
  const void* argument_ = nullptr;
};

inline thread_local Block* block = nullptr;

inline void Block::enter() {
  block->body_(block->argument_);
  block->fibers_[threadIdx.x].waits = Waits::kLeft;
}

}  // namespace emulation

inline void __syncthreads() { emulation::block->sync(); }
inline void __syncwarp() { emulation::block->sync_warp(); }
inline unsigned __shfl_xor_sync(unsigned, unsigned word, int distance) {
  return emulation::block->shuffle(
      word, threadIdx.x ^ static_cast<unsigned>(distance));
}

template <class... Parameters, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* c,
                               void (*kernel)(Parameters...), Args... args) {
  gridDim = c->gridDim;
  blockDim = c->blockDim;
  emulation::Block block(c->blockDim.x, c->dynamicSmemBytes);
  emulation::block = &block;
  for (unsigned b = 0; b < c->gridDim.x; ++b) {
    blockIdx.x = b;
    block.run([&] { kernel(args...); });
  }
  emulation::block = nullptr;
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
