// As much of CUDA's runtime as portable/cuda_executor.h uses, on the host, for
// tests where there is no GPU: a block's threads are threads, with a barrier
// for the block and one for each warp; blocks run one after the other, and a
// launch returns when they are done. Slow.
#pragma once
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __shared__ static  // one block runs at a time
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

// What the threads of a block share.
class Block {
 public:
  Block(unsigned threads, size_t shared)
      : all_(static_cast<std::ptrdiff_t>(threads)),
        words_(threads),
        shared_(shared / 16 + 1) {
    for (unsigned t = 0; t < threads; t += kWarp)
      warps_.emplace_back(
          static_cast<std::ptrdiff_t>(std::min(kWarp, threads - t)));
  }
  void sync() { all_.arrive_and_wait(); }
  void sync_warp() { warps_[threadIdx.x / kWarp].arrive_and_wait(); }
  unsigned shuffle(unsigned word, unsigned from) {
    words_[threadIdx.x] = word;
    sync_warp();
    const unsigned other = words_[from];
    sync_warp();
    return other;
  }
  char* shared() { return shared_.data()->bytes; }

 private:
  struct alignas(16) Line {
    char bytes[16];
  };
  std::barrier<> all_;
  std::deque<std::barrier<>> warps_;
  std::vector<unsigned> words_;
  std::vector<Line> shared_;
};

inline thread_local Block* block = nullptr;

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
  static std::mutex one;  // launch at a time: its blocks share static memory
  std::lock_guard lock(one);
  emulation::Block block(c->blockDim.x, c->dynamicSmemBytes);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < c->blockDim.x; ++t)
    threads.emplace_back([&, t] {
      emulation::block = &block;
      gridDim = c->gridDim;
      blockDim = c->blockDim;
      threadIdx.x = t;
      for (unsigned b = 0; b < c->gridDim.x; ++b) {
        blockIdx.x = b;
        kernel(args...);
        block.sync();
      }
    });
  for (std::thread& t : threads) t.join();
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
