// SPDX-License-Identifier: Apache-2.0
// CUDA's functions, except those for graphs.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "tests/cuda/emulation/api.h"

namespace emulation {
namespace {

thread_local int current = 0;
thread_local cudaError_t last_error = cudaSuccess;

constexpr size_t kAlwaysShared = 48 << 10, kMostShared = 227 << 10;

Machine& machine() { return Machine::get(); }
bool is_device(int d) { return 0 <= d && d < std::ssize(machine().devices); }

struct Name {
  cudaError_t error;
  const char *name, *text;
};
#define NAMED(error, text) \
  { error, #error, text }
constexpr Name kNames[] = {
    NAMED(cudaSuccess, "no error"),
    NAMED(cudaErrorInvalidValue, "invalid argument"),
    NAMED(cudaErrorMemoryAllocation, "out of memory"),
    NAMED(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    NAMED(cudaErrorInsufficientDriver,
          "CUDA driver version is insufficient for CUDA runtime version"),
    NAMED(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    NAMED(cudaErrorInvalidDevice, "invalid device ordinal"),
    NAMED(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    NAMED(cudaErrorIllegalState,
          "the operation cannot be performed in the present state"),
    NAMED(cudaErrorNotReady, "device not ready"),
    NAMED(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    NAMED(cudaErrorNotSupported, "operation not supported"),
    NAMED(cudaErrorStreamCaptureUnsupported,
          "operation not permitted when stream is capturing"),
    NAMED(cudaErrorStreamCaptureInvalidated,
          "operation failed due to a previous error during capture"),
    NAMED(cudaErrorStreamCaptureMerge,
          "operation would result in a merge of separate capture sequences"),
    NAMED(cudaErrorStreamCaptureUnmatched,
          "capture was not ended in the same stream as it began"),
    NAMED(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    NAMED(cudaErrorStreamCaptureIsolation,
          "dependency created on uncaptured work in another stream"),
    NAMED(cudaErrorCapturedEvent,
          "operation not permitted on an event last recorded in a capturing "
          "stream"),
};
#undef NAMED
const Name& find(cudaError_t error) {
  static constexpr Name kNone = {cudaSuccess, "unrecognized error code",
                                 "unrecognized error code"};
  const auto* it = std::ranges::find(kNames, error, &Name::error);
  return it == std::end(kNames) ? kNone : *it;
}

// A wait for a device's work gives unused memory back to the system.
void give_back(int device) {
  const uint64_t keep = machine().memory().sizes(device).threshold;
  machine().memory().trim(device, keep);
}

// How much dynamic shared memory a kernel may have on a device.
std::map<std::pair<const void*, int>, size_t>& shared_memory() {
  static auto* const all = new std::map<std::pair<const void*, int>, size_t>;
  return *all;
}

}  // namespace

int current_device() { return current; }

cudaError_t say(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// The stream must belong to the calling thread's device.
cudaError_t launch(cudaStream_t s, std::function<void()> body) {
  if (!s || s->device != current) return say(cudaErrorInvalidResourceHandle);
  Lock lock(machine().mutex);
  if (const cudaError_t e = failed(s->device)) return say(e);
  return say(machine().give(s, current, std::move(body)));
}

cudaError_t launch(const cudaLaunchConfig_t& c, const void* kernel,
                   std::function<void()> body) {
  const dim3 grid = c.gridDim, block = c.blockDim;
  if (grid.x == 0 || grid.x > 0x7fffffff || block.x == 0 || block.x > 1024 ||
      grid.y * grid.z * block.y * block.z != 1)
    return say(cudaErrorInvalidConfiguration);
  size_t most = kAlwaysShared;
  {
    Lock lock(machine().mutex);
    const auto it = shared_memory().find({kernel, current});
    if (it != shared_memory().end()) most = std::max(most, it->second);
  }
  if (c.dynamicSmemBytes > most) return say(cudaErrorInvalidValue);
  return launch(c.stream,
                [=, shared = c.dynamicSmemBytes, body = std::move(body)] {
                  Block::here().run(grid.x, block.x, shared, body);
                });
}

}  // namespace emulation

using namespace emulation;

const char* cudaGetErrorName(cudaError_t error) { return find(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return find(error).text; }
cudaError_t cudaGetLastError() {
  if (is_device(current)) {
    Lock lock(machine().mutex);
    if (const cudaError_t e = failed(current)) return e;
  }
  return std::exchange(last_error, cudaSuccess);
}

// Devices.

cudaError_t cudaDriverGetVersion(int* version) {
  const char* said = std::getenv("CUDA_EMULATION_DRIVER");
  *version = said && *said ? std::atoi(said) : CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* n) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver / 1000 < CUDART_VERSION / 1000)
    return say(cudaErrorInsufficientDriver);
  *n = static_cast<int>(machine().devices.size());
  return say(*n == 0 ? cudaErrorNoDevice : cudaSuccess);
}
cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return say(cudaErrorInvalidDevice);
  current = device;
  Lock lock(machine().mutex);
  return say(failed(device));
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (!is_device(device)) return say(cudaErrorInvalidDevice);
  *p = {};
  std::snprintf(p->name, sizeof(p->name), "emulated GPU %d", device);
  std::memcpy(p->uuid.bytes, "an emulated GPU", 15);
  p->uuid.bytes[15] = static_cast<char>(device + 1);
  p->totalGlobalMem = machine().memory().total();
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!is_device(device) || !is_device(peer))
    return say(cudaErrorInvalidDevice);
  *can = device != peer && machine().memory().reaches(device, peer);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  Lock lock(machine().mutex);
  const auto& streams = machine().devices[static_cast<size_t>(current)].streams;
  std::vector<Point> all;
  for (const auto& s : streams) {
    if (s->capture)
      return say(break_capture(*s->capture, cudaErrorStreamCaptureUnsupported));
    all.push_back(machine().now(s.get()));
  }
  machine().wait(lock, all);
  give_back(current);
  return say(failed(current));
}

// Memory.

// A pool is its device's number, from 1.
namespace {
int device_of(cudaMemPool_t pool) {
  return static_cast<int>(reinterpret_cast<intptr_t>(pool)) - 1;
}
}  // namespace

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = machine().memory().sizes(current).free;
  *total = machine().memory().total();
  Lock lock(machine().mutex);
  return say(failed(current));
}
cudaError_t cudaMallocHost(void** data, size_t bytes) {
  *data = machine().memory().pin(bytes);
  return say(*data ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* data) {
  return say(machine().memory().unpin(data) ? cudaSuccess
                                            : cudaErrorInvalidValue);
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  if (!is_device(device)) return say(cudaErrorInvalidDevice);
  *pool = reinterpret_cast<cudaMemPool_t>(static_cast<intptr_t>(device) + 1);
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which,
                                    void* value) {
  if (which == cudaMemPoolReuseAllowInternalDependencies)
    return cudaSuccess;  // no allocation waits for another stream here
  if (which != cudaMemPoolAttrReleaseThreshold)
    return say(cudaErrorInvalidValue);
  machine().memory().set_threshold(device_of(pool),
                                   *static_cast<uint64_t*>(value));
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which,
                                    void* value) {
  const Memory::Sizes sizes = machine().memory().sizes(device_of(pool));
  uint64_t& is = *static_cast<uint64_t*>(value);
  switch (which) {
    case cudaMemPoolReuseAllowInternalDependencies:
      break;
    case cudaMemPoolAttrReleaseThreshold:
      is = sizes.threshold;
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemCurrent:
      is = sizes.reserved;
      return cudaSuccess;
    case cudaMemPoolAttrUsedMemCurrent:
      is = sizes.used;
      return cudaSuccess;
  }
  return say(cudaErrorInvalidValue);
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
  machine().memory().trim(device_of(pool), bytes);
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool,
                                 const cudaMemAccessDesc* all, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const auto& [where, flags] = all[i];
    if (where.type != cudaMemLocationTypeDevice ||
        flags == cudaMemAccessFlagsProtRead)
      return say(cudaErrorInvalidValue);
    if (!is_device(where.id) ||
        !machine().memory().grant(device_of(pool), where.id,
                                  flags == cudaMemAccessFlagsProtReadWrite))
      return say(cudaErrorInvalidDevice);
  }
  return cudaSuccess;
}

namespace {

// CUDA does not protect a capture from two threads that add memory nodes to it:
// the graph is then not valid, or writes where there is no memory. So these
// calls take a while here, and two at once end the capture.
class MemoryCall {
 public:
  MemoryCall(Lock& lock, cudaStream_t s) : capture_(s->capture) {
    if (++capture_->in_memory_calls > 1 && !capture_->broken) {
      std::fprintf(stderr,
                   "[cuda emulation] two threads allocate or free memory of "
                   "one capture at once\n");
      capture_->broken = true;
    }
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    lock.lock();
  }
  ~MemoryCall() { --capture_->in_memory_calls; }
  MemoryCall(const MemoryCall&) = delete;
  MemoryCall& operator=(const MemoryCall&) = delete;

 private:
  const std::shared_ptr<Capture> capture_;
};

// In a capture, the block is the graph's: from its node on, until it is freed.
cudaError_t allocate_in_graph(Lock& lock, cudaStream_t s, size_t bytes,
                              void** block) {
  const MemoryCall alone(lock, s);
  if (!s->capture || s->capture->broken)
    return cudaErrorStreamCaptureInvalidated;
  Capture& c = *s->capture;
  *block = machine().memory().allocate_for_graph(s->device, bytes);
  if (!*block) return cudaErrorMemoryAllocation;
  c.memory->blocks.push_back(*block);
  c.memory->kept.insert(*block);
  const Memory::Range all{static_cast<char*>(*block), bytes};
  return machine().give(s, s->device, [all] { Memory::spoil(all); });
}
cudaError_t free_in_graph(Lock& lock, cudaStream_t s, void* block) {
  const MemoryCall alone(lock, s);
  if (!s->capture || s->capture->broken)
    return cudaErrorStreamCaptureInvalidated;
  Capture& c = *s->capture;
  if (c.memory->kept.erase(block) == 0) return cudaErrorInvalidValue;
  const Memory::Range all{static_cast<char*>(block),
                          machine().memory().bytes_of(block)};
  return machine().give(s, s->device, [all] { Memory::spoil(all); });
}

cudaError_t come_to(cudaStream_t s, int owner,
                    const std::shared_ptr<Memory::Released>& r) {
  return machine().give(s, owner,
                        [=] { machine().memory().come_to(owner, r); });
}

}  // namespace

cudaError_t cudaMallocAsync(void** block, size_t bytes, cudaStream_t s) {
  Lock lock(machine().mutex);
  if (const cudaError_t e = failed(s->device)) return say(e);
  if (s->capture) return say(allocate_in_graph(lock, s, bytes, block));
  std::shared_ptr<Memory::Released> fresh;
  *block = machine().memory().allocate(s->device, s, bytes, fresh);
  if (!*block) return say(cudaErrorMemoryAllocation);
  return say(fresh ? come_to(s, s->device, fresh) : cudaSuccess);
}
cudaError_t cudaFreeAsync(void* block, cudaStream_t s) {
  Lock lock(machine().mutex);
  if (const cudaError_t e = failed(s->device)) return say(e);
  cudaError_t error = cudaErrorInvalidValue;
  if (s->capture)
    error = free_in_graph(lock, s, block);
  else if (const auto released = machine().memory().release(block, s))
    error = come_to(s, machine().memory().device_of(block), released);
  if (error == cudaErrorInvalidValue)
    std::fprintf(stderr, "[cuda emulation] cuda:%d frees what is not its\n",
                 s->device);
  return say(error);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t s) {
  Memory& memory = machine().memory();
  const bool up = memory.device_of(to) >= 0, down = memory.device_of(from) >= 0;
  const bool as_said =
      kind == cudaMemcpyDefault || (up == (kind == cudaMemcpyHostToDevice ||
                                           kind == cudaMemcpyDeviceToDevice) &&
                                    down == (kind == cudaMemcpyDeviceToHost ||
                                             kind == cudaMemcpyDeviceToDevice));
  if (!as_said || (up && !memory.has(to, bytes)) ||
      (down && !memory.has(from, bytes)))
    return say(cudaErrorInvalidValue);
  Lock lock(machine().mutex);
  if (const cudaError_t e = failed(s->device)) return say(e);
  const bool pageable = (!up && !memory.is_pinned(to, bytes)) ||
                        (!down && !memory.is_pinned(from, bytes));
  if (!pageable)
    return say(
        machine().give(s, s->device, [=] { std::memcpy(to, from, bytes); }));
  if (s->capture)
    return say(break_capture(*s->capture, cudaErrorStreamCaptureUnsupported));
  // The host's bytes are read now, after the stream's earlier work, or written
  // before the call returns.
  machine().wait(lock, {machine().now(s)});
  if (!down) {
    const char* const bytes_now = static_cast<const char*>(from);
    const std::vector<char> kept(bytes_now, bytes_now + bytes);
    return say(machine().give(s, s->device, [to, kept] {
      std::memcpy(to, kept.data(), kept.size());
    }));
  }
  machine().give(s, s->device, [=] { std::memcpy(to, from, bytes); });
  machine().wait(lock, {machine().now(s)});
  return say(failed(s->device));
}

// Streams and events.

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  // The emulation has no default stream, which would order the others.
  if (flags != cudaStreamNonBlocking) return say(cudaErrorInvalidValue);
  Lock lock(machine().mutex);
  if (const cudaError_t e = failed(current)) return say(e);
  auto& streams = machine().devices[static_cast<size_t>(current)].streams;
  streams.push_back(std::make_unique<CUstream_st>());
  *s = streams.back().get();
  (*s)->device = current;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  Lock lock(machine().mutex);
  if (s->capture)
    return say(break_capture(*s->capture, cudaErrorStreamCaptureUnsupported));
  machine().wait(lock, {machine().now(s)});
  give_back(s->device);
  return say(failed(s->device));
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  Lock lock(machine().mutex);
  if (s->capture)
    return say(break_capture(*s->capture, cudaErrorStreamCaptureUnsupported));
  if (const cudaError_t e = failed(s->device)) return say(e);
  return say(machine().now(s).passed() ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  Lock lock(machine().mutex);
  if (const cudaError_t error = failed(current)) return say(error);
  *e = new CUevent_st{current, {}, {}, {}};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  if (e->device != s->device) return say(cudaErrorInvalidResourceHandle);
  Lock lock(machine().mutex);
  if (const cudaError_t error = failed(s->device)) return say(error);
  if (s->capture && s->capture->broken)
    return say(cudaErrorStreamCaptureInvalidated);
  e->capture = s->capture;
  e->last = s->last;
  e->at = s->capture ? Point{} : machine().now(s);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  Lock lock(machine().mutex);
  if (const cudaError_t error = failed(s->device)) return say(error);
  if (s->capture && s->capture->broken)
    return say(cudaErrorStreamCaptureInvalidated);
  if (!e->capture) {
    if (s->capture && e->at.stream)
      return say(break_capture(*s->capture, cudaErrorStreamCaptureIsolation));
    if (e->at.stream && e->at.stream != s && !e->at.passed())
      machine().append(s, Entry{.device = s->device, .behind = e->at});
    return cudaSuccess;
  }
  if (e->capture->ended) return say(cudaErrorCapturedEvent);
  if (e->capture->broken) return say(cudaErrorStreamCaptureInvalidated);
  if (!s->capture) {
    s->capture = e->capture;
    s->capture->streams.push_back(s);
  } else if (s->capture != e->capture) {
    e->capture->broken = true;
    return say(break_capture(*s->capture, cudaErrorStreamCaptureMerge));
  }
  for (const size_t node : e->last)
    if (!std::ranges::count(s->last, node)) s->last.push_back(node);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  Lock lock(machine().mutex);
  if (e->capture) return say(cudaErrorCapturedEvent);
  if (const cudaError_t error = failed(e->device)) return say(error);
  return say(e->at.passed() ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  Lock lock(machine().mutex);
  if (e->capture) return say(cudaErrorCapturedEvent);
  const Point at = e->at;
  if (at.stream) machine().wait(lock, {at});
  give_back(e->device);
  return say(failed(e->device));
}

// Kernels.

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute,
                                 int value) {
  if (value < 0 || static_cast<size_t>(value) > kMostShared)
    return say(cudaErrorInvalidValue);
  Lock lock(machine().mutex);
  shared_memory()[{kernel, current}] = static_cast<size_t>(value);
  return cudaSuccess;
}
