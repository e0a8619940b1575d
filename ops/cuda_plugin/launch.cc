// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/cuda_plugin/launch.cuh"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dtensor/device/cuda_plugin.h"
#include "dtensor/ops/cuda_plugin/failure.h"
#include "dtensor/ops/cuda_plugin/streams.h"
#include "dtensor/placement/error.h"

namespace dtensor::cuda {
namespace {

struct OpenStream {
  int device;
  Given given;
};

// All streams. Neither the streams nor this list are ever destroyed, because
// threads may still run when static variables are destroyed.
struct Streams {
  std::mutex mutex;
  std::unordered_map<void*, std::unique_ptr<OpenStream>> all;
};
Streams& streams() {
  static auto* const streams = new Streams;
  return *streams;
}

const CudaHost* program = nullptr;
std::string_view op() { return program ? program->running_op() : ""; }

// The calling thread's state: CUDA's current device, and the stream that it
// last used.
thread_local int device = -1;
thread_local Stream last;
thread_local OpenStream* last_open = nullptr;

OpenStream& find(Stream s) {
  if (last_open && last == s) return *last_open;
  Streams& known = streams();
  std::lock_guard lock(known.mutex);
  const auto it = known.all.find(s.handle);
  DT_CHECK(it != known.all.end(), "cuda",
           "{} is not a stream of a CUDA device; use one from open_stream()",
           s.handle);
  last = s;
  last_open = it->second.get();
  return *last_open;
}

// Whether the error comes from earlier work. CUDA then returns the same error
// from every call.
bool is_later(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorUnknown:
#if CUDART_VERSION >= 13000
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
#endif
      return true;
    default:
      return false;
  }
}

[[noreturn]] void report(cudaError_t error, const char* what) {
  (void)cudaGetLastError();  // already reported here
  const Failure failure{cudaGetErrorName(error), cudaGetErrorString(error),
                        device, what, op()};
  if (!is_later(error)) refused(failure);
  std::vector<std::string> given;
  Streams& known = streams();
  std::lock_guard lock(known.mutex);
  for (const auto& [handle, stream] : known.all)
    if (stream->device == device)
      for (std::string& name : stream->given.names())
        if (std::find(given.begin(), given.end(), name) == given.end())
          given.push_back(std::move(name));
  failed_later(failure, given);
}

}  // namespace

void set_host(const CudaHost* host) { program = host; }

void use(int index) {
  if (device == index) return;
  device = index;  // report() uses it
  const cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) return;
  try {
    report(error, "selecting the device");
  } catch (...) {
    device = -1;
    throw;
  }
}

Stream open_stream(int index) {
  use(index);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
        "creating a stream");
  auto open = std::make_unique<OpenStream>();
  open->device = index;
  Streams& known = streams();
  std::lock_guard lock(known.mutex);
  known.all.emplace(stream, std::move(open));
  return {stream};
}

void waited(Stream s) { find(s).given.clear(); }

cudaStream_t enter(Stream s) {
  OpenStream& open = find(s);
  use(open.device);
  open.given.note(op());
  return static_cast<cudaStream_t>(s.handle);
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) [[unlikely]]
    report(error, what);
}

namespace {

// cudaDeviceSynchronize() would also wait for captured streams. CUDA refuses
// that, and the capture would be lost.
void synchronize_all() {
  std::vector<cudaStream_t> all;
  {
    Streams& known = streams();
    std::lock_guard lock(known.mutex);
    for (const auto& [handle, stream] : known.all)
      if (stream->device == device)
        all.push_back(static_cast<cudaStream_t>(handle));
  }
  for (const cudaStream_t stream : all)
    if (!captured(stream)) check(cudaStreamSynchronize(stream), "allocation");
}

// Makes allocations in captures one at a time. In a capture, an allocation
// becomes a node of the graph. If two threads recorded allocations for one
// capture at once, the graph would be invalid, or its replays would write to
// addresses that do not exist (seen on an H200 with driver 580.159). Outside of
// captures, takes no lock.
std::unique_lock<std::mutex> lock_capture(cudaStream_t stream) noexcept {
  static auto* const mutex = new std::mutex;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status)) (void)cudaGetLastError();
  return status == cudaStreamCaptureStatusNone ? std::unique_lock<std::mutex>()
                                               : std::unique_lock(*mutex);
}
cudaError_t malloc_async(void** block, size_t size, cudaStream_t stream) {
  const auto lock = lock_capture(stream);
  return cudaMallocAsync(block, size, stream);
}

}  // namespace

void* allocate(cudaStream_t stream, int64_t bytes,
               std::atomic<int64_t>* waits) {
  const auto size = static_cast<size_t>(bytes);
  void* block = nullptr;
  cudaError_t error = malloc_async(&block, size, stream);
  if (error == cudaErrorMemoryAllocation) {
    // Memory that other streams freed becomes available when their work is
    // done.
    (void)cudaGetLastError();
    if (waits) ++*waits;
    synchronize_all();
    cudaMemPool_t pool = nullptr;
    check(cudaDeviceGetDefaultMemPool(&pool, device), "allocation");
    check(cudaMemPoolTrimTo(pool, 0), "allocation");
    error = malloc_async(&block, size, stream);
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
  }
  check(error, "allocation");
  return block;
}

void* allocate_scratch(cudaStream_t stream, int64_t bytes) {
  void* const block = allocate(stream, std::max<int64_t>(bytes, 1));
  DT_CHECK(block, "cuda",
           "cuda:{} does not have {} bytes left for scratch memory{}, beside "
           "the memory that ranks hold or cache; split the tensor over more "
           "ranks, or let fewer ranks share a GPU",
           device, bytes, op().empty() ? "" : fmt::format(" of '{}'", op()));
  return block;
}

void* graph_memory(cudaStream_t stream, int64_t bytes) {
  return program ? program->graph_memory(bytes, {stream}) : nullptr;
}

void release(void* block, cudaStream_t stream) noexcept {
  const auto lock = lock_capture(stream);
  if (cudaFreeAsync(block, stream)) (void)cudaGetLastError();
}

void allow_shared_memory(const void* kernel, int64_t bytes) {
  constexpr int64_t kAlways = (48 << 10) - kOwnShared;
  if (bytes <= kAlways) return;
  static std::mutex mutex;
  static auto* const allowed =
      new std::map<std::pair<const void*, int>, int64_t>;
  std::lock_guard lock(mutex);
  int64_t& most = (*allowed)[{kernel, device}];
  if (bytes <= most) return;
  check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes)),
      "a request for shared memory");
  most = bytes;
}

}  // namespace dtensor::cuda
