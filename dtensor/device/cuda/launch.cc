#include "dtensor/device/cuda/launch.cuh"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dtensor/device/cuda/failure.h"
#include "dtensor/device/cuda/streams.h"
#include "dtensor/placement/error.h"

namespace dtensor::cuda {
namespace {

struct OpenStream {
  int device;
  Given given;
};

// All of them. They live for ever, and so does this: threads may end later than
// static variables.
struct Streams {
  std::mutex mutex;
  std::unordered_map<void*, std::unique_ptr<OpenStream>> all;
};
Streams& streams() {
  static auto* const streams = new Streams;
  return *streams;
}

std::string_view (*running_op)() = nullptr;
std::string_view op() { return running_op ? running_op() : ""; }

// Of the calling thread: CUDA's device, and the stream it gave work to last.
thread_local int device = -1;
thread_local Stream last;
thread_local OpenStream* last_open = nullptr;

OpenStream& find(Stream s) {
  if (last_open && last == s) return *last_open;
  Streams& known = streams();
  std::lock_guard lock(known.mutex);
  const auto it = known.all.find(s.handle);
  DT_CHECK(it != known.all.end(), "cuda",
           "{} is no stream of a CUDA device; take one of open_stream()",
           s.handle);
  last = s;
  last_open = it->second.get();
  return *last_open;
}

// Of work that was given before: CUDA says nothing else from then on.
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
      return true;
    default:
      return false;
  }
}

[[noreturn]] void report(cudaError_t error, const char* what) {
  (void)cudaGetLastError();  // it is reported here, and not again by the next
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

void set_running_op(std::string_view (*of)()) { running_op = of; }

void use(int index) {
  if (device == index) return;
  device = index;  // also of the Error
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
        "a new stream");
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

// cudaDeviceSynchronize() would do the same, but for the device's streams that
// are captured, and is refused for these; the capture would be lost, too.
void synchronize_all() {
  std::vector<cudaStream_t> all;
  {
    Streams& known = streams();
    std::lock_guard lock(known.mutex);
    for (const auto& [handle, stream] : known.all)
      if (stream->device == device)
        all.push_back(static_cast<cudaStream_t>(handle));
  }
  for (const cudaStream_t stream : all) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &status), "allocate");
    if (status == cudaStreamCaptureStatusNone)
      check(cudaStreamSynchronize(stream), "allocate");
  }
}

}  // namespace

void* allocate(cudaStream_t stream, int64_t bytes,
               std::atomic<int64_t>* waits) {
  const auto size = static_cast<size_t>(bytes);
  void* block = nullptr;
  cudaError_t error = cudaMallocAsync(&block, size, stream);
  if (error == cudaErrorMemoryAllocation) {
    // What other streams freed is there when their work is done.
    (void)cudaGetLastError();
    if (waits) ++*waits;
    synchronize_all();
    cudaMemPool_t pool = nullptr;
    check(cudaDeviceGetDefaultMemPool(&pool, device), "allocate");
    check(cudaMemPoolTrimTo(pool, 0), "allocate");
    error = cudaMallocAsync(&block, size, stream);
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
  }
  check(error, "allocate");
  return block;
}

void* allocate_scratch(cudaStream_t stream, int64_t bytes) {
  void* const block = allocate(stream, std::max<int64_t>(bytes, 1));
  DT_CHECK(block, "cuda",
           "cuda:{} has no {} bytes left that '{}' needs for a moment, beside "
           "those that ranks hold and keep for later; split the tensor over "
           "more ranks, or let fewer share a GPU",
           device, bytes, op());
  return block;
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
      "shared memory");
  most = bytes;
}

}  // namespace dtensor::cuda
