// SPDX-License-Identifier: Apache-2.0
// The emulation of CUDA's runtime: calls do what the manual says, and programs
// that do not keep to the manual fail.
//
// There are three GPUs of 64 MiB; 0 and 2 do not reach each other's memory.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <cub/device/device_radix_sort.cuh>
#include <string>
#include <thread>
#include <vector>

namespace {

const bool kMachine = [] {
  setenv("CUDA_EMULATION_DEVICES", "3", 1);
  setenv("CUDA_EMULATION_MEMORY", "67108864", 1);
  setenv("CUDA_EMULATION_APART", "02,20", 1);
  return true;
}();

constexpr int kN = 1000;
constexpr size_t kMiB = 1 << 20;

#define OK(call) ASSERT_EQ(call, cudaSuccess)
#define FAILS(call, error)                \
  do {                                    \
    EXPECT_EQ(call, error);               \
    EXPECT_EQ(cudaGetLastError(), error); \
  } while (false)

__global__ void set(int* x, int value) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kN) x[i] = value;
}
__global__ void add(int* x, const int* y) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kN) x[i] += y[i];
}

template <class... P, class... A>
cudaError_t run(cudaStream_t s, void (*kernel)(P...), A... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(4);
  config.blockDim = dim3(256);
  config.stream = s;
  return cudaLaunchKernelEx(&config, kernel, args...);
}

class Emulation : public testing::Test {
 protected:
  void SetUp() override {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    OK(cudaSetDevice(0));
    a_ = stream();
    b_ = stream();
    void* pinned = nullptr;
    OK(cudaMallocHost(&pinned, kN * sizeof(int)));
    pinned_ = static_cast<int*>(pinned);
  }
  void TearDown() override {
    for (int d = 0; d < 3; ++d) {
      cudaSetDevice(d);
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    EXPECT_EQ(cudaFreeHost(pinned_), cudaSuccess);
    for (const cudaEvent_t e : events_)
      EXPECT_EQ(cudaEventDestroy(e), cudaSuccess);
  }

  static cudaStream_t stream() {
    cudaStream_t s = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking),
              cudaSuccess);
    return s;
  }
  cudaEvent_t event() {
    cudaEvent_t e = nullptr;
    EXPECT_EQ(cudaEventCreateWithFlags(&e, cudaEventDisableTiming),
              cudaSuccess);
    events_.push_back(e);
    return e;
  }
  static int* block(cudaStream_t s, size_t bytes = kN * sizeof(int)) {
    void* p = nullptr;
    EXPECT_EQ(cudaMallocAsync(&p, bytes, s), cudaSuccess);
    return static_cast<int*>(p);
  }
  // The last value of x, as that stream sees it now.
  int value(cudaStream_t s, const int* x) {
    std::memset(pinned_, 0, sizeof(int));
    EXPECT_EQ(cudaMemcpyAsync(pinned_, x + kN - 1, sizeof(int),
                              cudaMemcpyDeviceToHost, s),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
    return pinned_[0];
  }
  void wait(cudaStream_t s, cudaStream_t for_s) {
    const cudaEvent_t e = event();
    EXPECT_EQ(cudaEventRecord(e, for_s), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(s, e), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(e), cudaSuccess);
    events_.pop_back();
  }
  static cudaMemPool_t pool(int device) {
    cudaMemPool_t p = nullptr;
    EXPECT_EQ(cudaDeviceGetDefaultMemPool(&p, device), cudaSuccess);
    return p;
  }
  static uint64_t attribute(cudaMemPoolAttr which) {
    uint64_t value = 0;
    EXPECT_EQ(cudaMemPoolGetAttribute(pool(0), which, &value), cudaSuccess);
    return value;
  }
  static cudaError_t let(int owner, int device, cudaMemAccessFlags flags) {
    const cudaMemAccessDesc to{{cudaMemLocationTypeDevice, device}, flags};
    return cudaMemPoolSetAccess(pool(owner), &to, 1);
  }

  cudaStream_t a_ = nullptr, b_ = nullptr;
  int* pinned_ = nullptr;
  std::vector<cudaEvent_t> events_;
};

TEST_F(Emulation, WorkRunsInTheOrderOfItsStream) {
  int *x = block(a_), *y = block(a_);
  OK(run(a_, set, x, 3));
  OK(run(a_, set, y, 4));
  OK(run(a_, add, x, y));
  EXPECT_EQ(value(a_, x), 7);
  OK(cudaFreeAsync(x, a_));
  OK(cudaFreeAsync(y, a_));
}

TEST_F(Emulation, WhoDoesNotWaitComesTooEarly) {
  int* x = block(a_);
  OK(cudaStreamSynchronize(a_));
  OK(run(a_, set, x, 3));
  EXPECT_EQ(value(b_, x), -1);
  OK(run(a_, set, x, 5));
  wait(b_, a_);
  OK(run(a_, set, x, 6));
  EXPECT_EQ(value(b_, x), 5);
  EXPECT_EQ(value(a_, x), 6);
  OK(cudaFreeAsync(x, a_));
}

TEST_F(Emulation, WhatNobodyWaitsForRunsAfterAWhile) {
  int* x = block(a_);
  OK(run(a_, set, x, 3));
  const cudaEvent_t e = event();
  EXPECT_EQ(cudaEventQuery(e), cudaSuccess);  // never recorded
  OK(cudaEventRecord(e, a_));
  FAILS(cudaEventQuery(e), cudaErrorNotReady);
  while (cudaEventQuery(e) == cudaErrorNotReady) std::this_thread::yield();
  EXPECT_EQ(cudaStreamQuery(a_), cudaSuccess);
  (void)cudaGetLastError();
  EXPECT_EQ(value(b_, x), 3);
  OK(cudaFreeAsync(x, a_));
}

// A wait counts for the last record before it.
TEST_F(Emulation, EventsAreOfTheirLastRecord) {
  int* x = block(a_);
  const cudaEvent_t e = event();
  OK(run(a_, set, x, 1));
  OK(cudaEventRecord(e, a_));
  OK(cudaStreamWaitEvent(b_, e));
  OK(run(a_, set, x, 2));
  OK(cudaEventRecord(e, a_));
  EXPECT_EQ(value(b_, x), 1);
  OK(cudaEventSynchronize(e));
  EXPECT_EQ(value(b_, x), 2);
  OK(cudaFreeAsync(x, a_));
}

TEST_F(Emulation, PinnedBytesAreReadLaterAndOthersNow) {
  int* x = block(a_);
  OK(run(a_, set, x, 1));
  int on_stack = 5;
  OK(cudaMemcpyAsync(x + kN - 1, &on_stack, sizeof(int), cudaMemcpyHostToDevice,
                     a_));
  on_stack = 6;
  EXPECT_EQ(value(a_, x), 5);
  pinned_[1] = 7;
  OK(cudaMemcpyAsync(x + kN - 1, pinned_ + 1, sizeof(int),
                     cudaMemcpyHostToDevice, a_));
  pinned_[1] = 8;
  EXPECT_EQ(value(a_, x), 8);
  OK(cudaMemcpyAsync(&on_stack, x, sizeof(int), cudaMemcpyDeviceToHost, a_));
  EXPECT_EQ(on_stack, 1);
  FAILS(cudaMemcpyAsync(x, &on_stack, sizeof(int), cudaMemcpyDeviceToHost, a_),
        cudaErrorInvalidValue);
  FAILS(cudaMemcpyAsync(x, pinned_, kMiB, cudaMemcpyHostToDevice, a_),
        cudaErrorInvalidValue);
  OK(cudaFreeAsync(x, a_));
  FAILS(cudaMemcpyAsync(x, pinned_, 4, cudaMemcpyHostToDevice, a_),
        cudaErrorInvalidValue);
}

TEST_F(Emulation, FreedMemoryIsTheStreamsAtOnceAndOthersLater) {
  int* x = block(a_);
  OK(run(a_, set, x, 3));
  OK(cudaFreeAsync(x, a_));
  FAILS(cudaFreeAsync(x, a_), cudaErrorInvalidValue);
  int* other = block(b_);
  EXPECT_NE(other, x);
  int* again = block(a_);
  EXPECT_EQ(again, x);
  EXPECT_EQ(value(a_, x), -1);
  OK(cudaFreeAsync(again, a_));
  OK(cudaStreamSynchronize(a_));
  OK(cudaFreeAsync(other, b_));
  // The memory is spoilt for other streams, too.
  EXPECT_EQ(value(b_, other = block(b_)), -1);
  OK(cudaFreeAsync(other, b_));
}

// If another stream gets the rest of memory that one stream took from the
// system, that rest has been spoilt before.
TEST_F(Emulation, NewMemoryIsSpoiltBeforeAnybodyElseHasIt) {
  int *x = block(a_, 3 * kMiB), *y = block(b_);
  OK(run(b_, set, y, 3));
  EXPECT_EQ(value(b_, y), 3);
  EXPECT_EQ(value(a_, x), -1);
  EXPECT_EQ(value(b_, y), 3);
  OK(cudaFreeAsync(x, a_));
  OK(cudaFreeAsync(y, b_));
}

TEST_F(Emulation, MemoryEnds) {
  uint64_t all = ~uint64_t{0};
  OK(cudaMemPoolSetAttribute(pool(0), cudaMemPoolAttrReleaseThreshold, &all));
  OK(cudaDeviceSynchronize());
  OK(cudaMemPoolTrimTo(pool(0), 0));
  size_t free = 0, total = 0;
  OK(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(total, 64 * kMiB);
  EXPECT_EQ(free, total);
  int *x = block(a_, 30 * kMiB), *y = block(a_, 30 * kMiB);
  void* none = nullptr;
  FAILS(cudaMallocAsync(&none, 10 * kMiB, a_), cudaErrorMemoryAllocation);
  EXPECT_EQ(attribute(cudaMemPoolAttrUsedMemCurrent), 60 * kMiB);
  EXPECT_EQ(attribute(cudaMemPoolAttrReservedMemCurrent), 60 * kMiB);
  OK(cudaFreeAsync(x, a_));
  OK(cudaFreeAsync(y, a_));
  EXPECT_EQ(attribute(cudaMemPoolAttrUsedMemCurrent), 0u);
  // Another stream can have the memory once this one has come to the release.
  FAILS(cudaMallocAsync(&none, 50 * kMiB, b_), cudaErrorMemoryAllocation);
  OK(cudaDeviceSynchronize());
  EXPECT_EQ(attribute(cudaMemPoolAttrReservedMemCurrent), 60 * kMiB);
  OK(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(free, 4 * kMiB);
  x = block(b_, 50 * kMiB);
  EXPECT_NE(x, nullptr);
  OK(cudaFreeAsync(x, b_));
  OK(cudaDeviceSynchronize());
  OK(cudaMemPoolTrimTo(pool(0), 0));
  EXPECT_EQ(attribute(cudaMemPoolAttrReservedMemCurrent), 0u);
  all = 0;
  OK(cudaMemPoolSetAttribute(pool(0), cudaMemPoolAttrReleaseThreshold, &all));
}

TEST_F(Emulation, SmallBlocksAreOfOneChunk) {
  OK(cudaDeviceSynchronize());
  OK(cudaMemPoolTrimTo(pool(0), 0));
  int* last = block(a_);
  for (int i = 0; i < 1000; ++i) {
    int* next = block(a_);
    EXPECT_NE(next, last);
    OK(cudaFreeAsync(last, a_));
    last = next;
  }
  OK(cudaFreeAsync(last, a_));
  EXPECT_EQ(attribute(cudaMemPoolAttrReservedMemCurrent), 2 * kMiB);
}

TEST_F(Emulation, ThreadsOfABlockMeetAtBarriers) {
  int* x = block(a_);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(2);
  config.blockDim = dim3(256);
  config.dynamicSmemBytes = 256 * sizeof(int);
  config.stream = a_;
  void (*kernel)(int*) = [](int* out) {
    DT_DYNAMIC_SHARED(memory);
    int* const shared = reinterpret_cast<int*>(memory);
    const unsigned t = threadIdx.x;
    shared[t] = static_cast<int>(t);
    __syncthreads();
    const unsigned word =
        __shfl_xor_sync(~0u, static_cast<unsigned>(shared[255 - t]), 1);
    out[blockIdx.x * 256 + t] = static_cast<int>(word);
  };
  OK(cudaLaunchKernelEx(&config, kernel, x));
  std::vector<int> host(512);
  OK(cudaMemcpyAsync(host.data(), x, 512 * sizeof(int), cudaMemcpyDeviceToHost,
                     a_));
  for (int i = 0; i < 512; ++i)
    EXPECT_EQ(host[static_cast<size_t>(i)], 255 - (i % 256 ^ 1));
  config.dynamicSmemBytes = 100 << 10;
  FAILS(cudaLaunchKernelEx(&config, kernel, x), cudaErrorInvalidValue);
  const void* of = reinterpret_cast<const void*>(kernel);
  OK(cudaFuncSetAttribute(of, cudaFuncAttributeMaxDynamicSharedMemorySize,
                          100 << 10));
  OK(cudaLaunchKernelEx(&config, kernel, x));
  FAILS(cudaFuncSetAttribute(of, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             300 << 10),
        cudaErrorInvalidValue);
  config.blockDim = dim3(1025);
  FAILS(cudaLaunchKernelEx(&config, kernel, x), cudaErrorInvalidConfiguration);
  OK(cudaFreeAsync(x, a_));
}

TEST_F(Emulation, Sorts) {
  constexpr int64_t kKeys = 5;
  const uint64_t keys[] = {3, 1, 2, 1, 0};
  const int64_t values[] = {30, 10, 20, 11, 0};
  auto* data = reinterpret_cast<uint64_t*>(block(a_, 4 * sizeof(keys)));
  auto* in = reinterpret_cast<int64_t*>(data + kKeys);
  OK(cudaMemcpyAsync(data, keys, sizeof(keys), cudaMemcpyHostToDevice, a_));
  OK(cudaMemcpyAsync(in, values, sizeof(keys), cudaMemcpyHostToDevice, a_));
  size_t bytes = 0;
  const auto sort = [&](void* temporary) {
    return cub::DeviceRadixSort::SortPairs(temporary, bytes, data,
                                           data + 2 * kKeys, in, in + 2 * kKeys,
                                           kKeys, 0, 2, a_);
  };
  OK(sort(nullptr));
  int* temporary = block(a_, bytes);
  OK(sort(temporary));
  std::vector<int64_t> sorted(2 * kKeys);
  OK(cudaMemcpyAsync(sorted.data(), data + 2 * kKeys, 2 * sizeof(keys),
                     cudaMemcpyDeviceToHost, a_));
  EXPECT_EQ(sorted, (std::vector<int64_t>{0, 1, 1, 2, 3, 0, 10, 11, 20, 30}));
  OK(cudaFreeAsync(temporary, a_));
  OK(cudaFreeAsync(data, a_));
}

TEST_F(Emulation, ThereAreSeveral) {
  int n = 0, can = -1;
  OK(cudaGetDeviceCount(&n));
  EXPECT_EQ(n, kMachine ? 3 : 0);
  FAILS(cudaSetDevice(3), cudaErrorInvalidDevice);
  OK(cudaDeviceCanAccessPeer(&can, 0, 1));
  EXPECT_EQ(can, 1);
  OK(cudaDeviceCanAccessPeer(&can, 0, 2));
  EXPECT_EQ(can, 0);
  cudaDeviceProp first, second;
  OK(cudaGetDeviceProperties(&first, 0));
  OK(cudaGetDeviceProperties(&second, 1));
  EXPECT_NE(std::memcmp(&first.uuid, &second.uuid, sizeof(first.uuid)), 0);
  OK(cudaSetDevice(1));
  int* x = block(a_);
  FAILS(run(a_, set, x, 1), cudaErrorInvalidResourceHandle);
  const cudaEvent_t of_1 = event();
  FAILS(cudaEventRecord(of_1, a_), cudaErrorInvalidResourceHandle);
  // A stream may wait for events of another device.
  const cudaStream_t on_1 = stream();
  OK(run(on_1, set, block(on_1), 1));
  OK(cudaEventRecord(of_1, on_1));
  OK(cudaStreamWaitEvent(a_, of_1));
  OK(cudaStreamSynchronize(a_));
  EXPECT_EQ(cudaEventQuery(of_1), cudaSuccess);
}

TEST_F(Emulation, TheHostDiesOfWhatIsAGpus) {
  int* x = block(a_);
  OK(run(a_, set, x, 1));
  OK(cudaStreamSynchronize(a_));
  EXPECT_DEATH(
      {
        int* y = block(a_);
        cudaStreamSynchronize(a_);
        *static_cast<volatile int*>(y) = 1;
      },
      "the host touches memory of a GPU");
}

TEST_F(Emulation, WhatIsNotFreedIsTold) {
  EXPECT_EXIT(
      {
        block(a_, 1000);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "cuda:0 has 1024 bytes that nobody freed");
}

// The GPU has failed for good: every call that follows returns the error.
void expect_failed(cudaStream_t s) {
  if (cudaStreamSynchronize(s) != cudaErrorIllegalAddress) std::_Exit(1);
  if (cudaGetLastError() != cudaErrorIllegalAddress) std::_Exit(2);
  if (cudaDeviceSynchronize() != cudaErrorIllegalAddress) std::_Exit(3);
  void* p = nullptr;
  if (cudaMallocAsync(&p, 4, s) != cudaErrorIllegalAddress) std::_Exit(4);
  if (run(s, set, static_cast<int*>(p), 1) != cudaErrorIllegalAddress)
    std::_Exit(5);
  std::_Exit(0);
}

TEST_F(Emulation, AGpuFailsOfWhatIsNotThere) {
  EXPECT_EXIT(
      {
        run(a_, set, reinterpret_cast<int*>(64), 1);
        expect_failed(a_);
      },
      testing::ExitedWithCode(0), "cuda:0 touches memory that is not there");
}

#ifdef __SANITIZE_ADDRESS__
// With the address sanitizer, what CUDA's own sanitizer finds on a GPU.
TEST_F(Emulation, TheSanitizerSeesWhatIsNotAllocated) {
  int* const y = block(a_);
  const auto dies = [&](const int* x) {
    EXPECT_DEATH(
        {
          run(a_, add, y, x);
          cudaStreamSynchronize(a_);
        },
        "use-after-poison");
  };
  int *const whole = block(a_), *const small = block(a_, kN * sizeof(int) - 1);
  dies(whole + 1);
  dies(small);
  // A block that takes the place of another one, at once, and some time later.
  OK(cudaFreeAsync(whole, a_));
  int* again = block(a_, kN * sizeof(int) - 1);
  EXPECT_EQ(again, whole);
  dies(again);
  OK(cudaFreeAsync(again, a_));
  OK(cudaStreamSynchronize(a_));
  dies(again);
  again = block(a_);
  OK(run(a_, set, again, 1));
  EXPECT_EQ(value(a_, again), 1);
  for (int* x : {again, small, y}) OK(cudaFreeAsync(x, a_));
}
#endif

TEST_F(Emulation, AGpuFailsOfMemoryThatItMayNotTouch) {
  EXPECT_EXIT(
      {
        int* x = block(a_);
        cudaStreamSynchronize(a_);
        cudaSetDevice(1);
        const cudaStream_t other = stream();
        run(other, set, x, 1);
        expect_failed(other);
      },
      testing::ExitedWithCode(0),
      "cuda:1 touches memory of cuda:0, whose pool does not let it");
  int* x = block(a_);
  OK(run(a_, set, x, 1));
  OK(cudaStreamSynchronize(a_));
  OK(let(0, 1, cudaMemAccessFlagsProtReadWrite));
  FAILS(let(0, 2, cudaMemAccessFlagsProtReadWrite), cudaErrorInvalidDevice);
  OK(cudaSetDevice(1));
  const cudaStream_t other = stream();
  int* y = block(other);
  OK(run(other, set, y, 2));
  OK(run(other, add, y, x));
  EXPECT_EQ(value(other, y), 3);
  OK(let(0, 1, cudaMemAccessFlagsProtNone));
  OK(cudaFreeAsync(y, other));
  OK(cudaFreeAsync(x, a_));
}

class Capturing : public Emulation {
 protected:
  void SetUp() override {
    Emulation::SetUp();
    x_ = block(a_);
    y_ = block(a_);
    OK(run(a_, set, x_, 1));
    OK(run(a_, set, y_, 1));
    OK(cudaStreamSynchronize(a_));
  }
  void TearDown() override {
    EXPECT_EQ(exec_ ? cudaGraphExecDestroy(exec_) : cudaSuccess, cudaSuccess);
    EXPECT_EQ(cudaFreeAsync(x_, a_), cudaSuccess);
    EXPECT_EQ(cudaFreeAsync(y_, a_), cudaSuccess);
    Emulation::TearDown();
  }
  void begin(cudaStream_t s) {
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
  }
  cudaError_t end(cudaStream_t s) {
    cudaGraph_t graph = nullptr;
    const cudaError_t e = cudaStreamEndCapture(s, &graph);
    EXPECT_EQ(graph != nullptr, e == cudaSuccess);
    if (!graph) {
      EXPECT_EQ(cudaGetLastError(), e);
      return e;
    }
    EXPECT_EQ(cudaGraphInstantiate(&exec_, graph), cudaSuccess);
    return cudaGraphDestroy(graph);
  }
  static cudaStreamCaptureStatus status(cudaStream_t s) {
    cudaStreamCaptureStatus is = {};
    EXPECT_EQ(cudaStreamIsCapturing(s, &is), cudaSuccess);
    return is;
  }

  int *x_ = nullptr, *y_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

TEST_F(Capturing, RunsWhenItIsLaunched) {
  begin(a_);
  EXPECT_EQ(status(a_), cudaStreamCaptureStatusActive);
  OK(run(a_, add, x_, y_));
  OK(run(a_, add, y_, x_));
  OK(end(a_));
  EXPECT_EQ(status(a_), cudaStreamCaptureStatusNone);
  EXPECT_EQ(value(a_, x_), 1);
  for (int i = 0; i < 3; ++i) OK(cudaGraphLaunch(exec_, a_));
  // x, y = 1, 1; 2, 3; 5, 8; 13, 21.
  EXPECT_EQ(value(a_, x_), 13);
  // The next launch runs after the last one, even in another stream.
  OK(cudaGraphLaunch(exec_, a_));
  OK(cudaGraphLaunch(exec_, b_));
  EXPECT_EQ(value(b_, x_), 89);
}

TEST_F(Capturing, StreamsJoinAndRunAsLateAsTheyMay) {
  begin(a_);
  OK(run(a_, set, x_, 5));
  wait(b_, a_);
  EXPECT_EQ(status(b_), cudaStreamCaptureStatusActive);
  OK(run(a_, set, y_, 6));
  OK(run(b_, add, x_, y_));  // should have waited for y
  wait(a_, b_);
  OK(run(a_, add, x_, y_));
  OK(end(a_));
  EXPECT_EQ(status(b_), cudaStreamCaptureStatusNone);
  OK(cudaGraphLaunch(exec_, a_));
  EXPECT_EQ(value(a_, x_), 5 + 1 + 6);
}

TEST_F(Capturing, IsLeftWhole) {
  begin(a_);
  wait(b_, a_);
  OK(run(b_, set, x_, 5));
  EXPECT_EQ(end(b_), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(status(a_), cudaStreamCaptureStatusInvalidated);
  FAILS(run(a_, set, x_, 1), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end(a_), cudaErrorStreamCaptureInvalidated);
  begin(a_);
  wait(b_, a_);
  OK(run(b_, set, x_, 5));
  EXPECT_EQ(end(a_), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(end(a_), cudaErrorIllegalState);
  // A stream that only waits has no work that is lost if it does not join.
  begin(a_);
  OK(run(a_, set, x_, 5));
  wait(b_, a_);
  EXPECT_EQ(end(a_), cudaSuccess);
}

TEST_F(Capturing, WaitsForNothingOutside) {
  OK(run(b_, set, x_, 5));
  const cudaEvent_t e = event();
  begin(a_);
  OK(cudaStreamWaitEvent(a_, e));  // never recorded
  OK(cudaEventRecord(e, b_));
  FAILS(cudaStreamWaitEvent(a_, e), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(a_), cudaErrorStreamCaptureInvalidated);
  // Another capture may not wait for a capture's event: both are invalidated.
  begin(a_);
  begin(b_);
  OK(cudaEventRecord(e, b_));
  FAILS(cudaStreamWaitEvent(a_, e), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(end(a_), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end(b_), cudaErrorStreamCaptureInvalidated);
  FAILS(cudaStreamWaitEvent(a_, e), cudaErrorCapturedEvent);
  FAILS(cudaEventQuery(e), cudaErrorCapturedEvent);
  FAILS(cudaEventSynchronize(e), cudaErrorCapturedEvent);
  OK(cudaEventRecord(e, a_));
  OK(cudaEventSynchronize(e));
  OK(cudaStreamSynchronize(b_));  // which uses x_
}

TEST_F(Capturing, IsNotWaitedFor) {
  int host = 0;
  const std::function<cudaError_t()> calls[] = {
      [&] { return cudaStreamSynchronize(a_); },
      [&] { return cudaStreamQuery(a_); },
      [&] { return cudaDeviceSynchronize(); },
      [&] {
        return cudaMemcpyAsync(x_, &host, sizeof(int), cudaMemcpyHostToDevice,
                               a_);
      }};
  for (const auto& call : calls) {
    begin(a_);
    FAILS(call(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(end(a_), cudaErrorStreamCaptureInvalidated);
  }
  begin(a_);
  FAILS(cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed),
        cudaErrorIllegalState);
  OK(cudaMemcpyAsync(x_ + kN - 1, pinned_ + 1, sizeof(int),
                     cudaMemcpyHostToDevice, a_));
  // Work of other streams is no part of the capture.
  EXPECT_EQ(value(b_, y_), 1);
  OK(end(a_));
  pinned_[1] = 77;
  OK(cudaGraphLaunch(exec_, b_));
  EXPECT_EQ(value(b_, x_), 77);
}

TEST_F(Capturing, MemoryIsTheGraphs) {
  const uint64_t used = attribute(cudaMemPoolAttrUsedMemCurrent);
  begin(a_);
  int* z = block(a_);
  OK(run(a_, set, z, 3));
  OK(run(a_, add, x_, z));
  OK(cudaFreeAsync(z, a_));
  OK(run(a_, add, y_, z));  // too late
  FAILS(cudaFreeAsync(x_, a_), cudaErrorInvalidValue);
  OK(end(a_));
  EXPECT_EQ(attribute(cudaMemPoolAttrUsedMemCurrent), used);
  for (int i = 0; i < 2; ++i) OK(cudaGraphLaunch(exec_, a_));
  EXPECT_EQ(value(a_, x_), 1 + 2 * 3);
  EXPECT_EQ(value(a_, y_), 1 - 2);
  OK(cudaGraphExecDestroy(exec_));
  // Memory that a graph does not free exists once, so it cannot be launched
  // again.
  begin(a_);
  block(a_);
  OK(end(a_));
  OK(cudaGraphLaunch(exec_, a_));
  FAILS(cudaGraphLaunch(exec_, a_), cudaErrorInvalidValue);
}

// CUDA does not protect a capture from two threads that allocate in it at once.
TEST_F(Capturing, TwoThreadsMustNotTakeMemoryAtOnce) {
  begin(a_);
  wait(b_, a_);
  const auto allocate = [](cudaStream_t s) {
    void* data = nullptr;
    for (int i = 0; i < 1000; ++i)
      if (cudaMallocAsync(&data, 64, s)) return;
  };
  std::thread other(allocate, b_);
  allocate(a_);
  other.join();
  EXPECT_EQ(end(a_), cudaErrorStreamCaptureInvalidated);
}

}  // namespace
