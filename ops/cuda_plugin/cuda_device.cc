// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/cuda_plugin/cuda_device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/device/combine.h"
#include "dtensor/device/copy.h"
#include "dtensor/ops/cuda_plugin/boxes.h"
#include "dtensor/ops/cuda_plugin/launch.cuh"
#include "dtensor/ops/cuda_plugin/staging.cuh"
#include "dtensor/ops/cuda_plugin/streams.h"
#include "dtensor/placement/error.h"

namespace dtensor::cuda {
namespace {

struct Mark {
  cudaEvent_t event = nullptr;
  bool captured = false;  // recorded during a capture, so it may not be queried
  static Mark& of(const Event& e) {
    return *static_cast<Mark*>(e.handle.get());
  }
};

// The events of one device. Events that nobody holds are reused.
class Events {
 public:
  // REQUIRES: this device is the calling thread's current one.
  Event take() {
    Mark mark;
    {
      std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        mark.event = free_.back();
        free_.pop_back();
      }
    }
    if (!mark.event)
      check(cudaEventCreateWithFlags(&mark.event, cudaEventDisableTiming),
            "creating an event");
    return {std::shared_ptr<Mark>(new Mark(mark), [this](Mark* dead) {
      put(dead->event);
      delete dead;
    })};
  }

 private:
  void put(cudaEvent_t event) {
    std::lock_guard lock(mutex_);
    free_.push_back(event);
  }

  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

// A graph that can be launched.
class CudaGraph final : public CapturedWork {
 public:
  explicit CudaGraph(cudaGraph_t graph) {
    const cudaError_t error = cudaGraphInstantiate(&exec_, graph, 0);
    (void)cudaGraphDestroy(graph);
    check(error, "instantiating a graph");
  }
  ~CudaGraph() override {
    if (cudaGraphExecDestroy(exec_)) (void)cudaGetLastError();
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  cudaGraphExec_t exec() const { return exec_; }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, const KernelTable& kernels)
      : index_(index), kernels_(kernels) {
    use(index_);
    check(cudaDeviceGetDefaultMemPool(&pool_, index_),
          "setting up the memory pool");
    // The pool keeps freed memory for later allocations.
    uint64_t all = std::numeric_limits<uint64_t>::max();
    check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &all),
          "setting up the memory pool");
    // By default, an allocation may make its stream wait for a block that
    // another stream has freed. Ranks that share a GPU would then wait for each
    // other. With NCCL, that can deadlock: a kernel of one rank waits for a
    // peer, whose work waits for a block that is freed behind that kernel.
    int wait = 0;
    check(cudaMemPoolSetAttribute(
              pool_, cudaMemPoolReuseAllowInternalDependencies, &wait),
          "setting up the memory pool");
  }

  Kind kind() const override { return Kind::kCuda; }
  std::string_view name() const override { return "a GPU"; }
  const KernelTable* own_kernels() const override { return &kernels_; }
  Stream open_stream() override { return cuda::open_stream(index_); }

  void* allocate(int64_t bytes, Stream s) override {
    return cuda::allocate(enter(s), bytes, &waits_);
  }
  void release(void* block, int64_t, Stream s) noexcept override {
    cuda::release(block, static_cast<cudaStream_t>(s.handle));
  }
  // Free memory includes memory that the pool keeps but nobody holds.
  Memory memory() const override {
    use(index_);
    size_t free = 0, total = 0;
    uint64_t reserved = 0, used = 0;
    check(cudaMemGetInfo(&free, &total), "querying memory");
    check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent,
                                  &reserved),
          "querying memory");
    check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used),
          "querying memory");
    return {static_cast<int64_t>(free + reserved - used),
            static_cast<int64_t>(total)};
  }

  bool can_access_peer(const Device& other) const override {
    const int peer = static_cast<const CudaDevice&>(other).index_;
    if (peer == index_) return true;
    int can = 0;
    use(index_);
    check(cudaDeviceCanAccessPeer(&can, index_, peer), "querying peer access");
    return can != 0;
  }
  // Gives the peer access to this device's memory.
  void let_in(const CudaDevice& peer) {
    if (!peer.can_access_peer(*this)) return;
    cudaMemAccessDesc access = {};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = peer.index_;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    use(index_);
    check(cudaMemPoolSetAccess(pool_, &access, 1), "enabling peer access");
  }

  int64_t copy(Stream s, int64_t item, Sizes shape, void* dst, Sizes to,
               const void* src, Sizes from) override {
    return boxes().copy(s, item, shape, dst, to, src, from);
  }
  void cast(Stream s, Sizes shape, DType dst_type, void* dst, Sizes to,
            DType src_type, const void* src, Sizes from) override {
    boxes().cast(s, shape, dst_type, dst, to, src_type, src, from);
  }
  void fill(Stream s, DType dtype, Sizes shape, void* dst, Sizes to,
            double value) override {
    boxes().fill(s, dtype, shape, dst, to, value);
  }
  int64_t reduce(Stream s, ReduceOp op, DType dtype, Sizes shape, void* dst,
                 Sizes to, std::span<const Operand> srcs,
                 int64_t terms) override {
    char* const dsts[] = {static_cast<char*>(dst)};
    return boxes().reduce(s, op, dtype, shape, dsts, to, srcs, terms);
  }
  int64_t reduce_into_all(Stream s, ReduceOp op, DType dtype, int64_t n,
                          std::span<char* const> dsts,
                          std::span<const char* const> srcs,
                          int64_t terms) override {
    const int64_t shape[] = {n}, unit[] = {1};
    std::vector<Operand> operands;
    for (const char* src : srcs) operands.push_back({src, unit});
    return boxes().reduce(s, op, dtype, shape, dsts, unit, operands, terms);
  }
  void divide(Stream s, DType dtype, int64_t n, void* dst, const void* a,
              const void* b) override {
    check_divisible(dtype);
    boxes().divide(s, dtype, n, dst, a, b);
  }

  // Copies in chunks: while the host copies one, the device copies the next
  // one.
  void to_host(Stream s, void* host, const void* src, int64_t bytes) override {
    if (bytes <= 0) return;
    const cudaStream_t stream = enter(s);
    not_captured(stream, "copies to the host");
    Staging& staging = staging_for(bytes);
    struct Chunk {
      Staging::Piece piece;
      int64_t first = 0, bytes = 0;
    };
    Chunk before;
    ++waits_;
    for (int64_t asked = 0; asked < bytes || before.piece;) {
      Chunk next;
      if (asked < bytes)
        // A thread that holds a piece must not wait for another one.
        next.piece = before.piece ? staging.try_take() : staging.take();
      if (next.piece) {
        next.first = asked;
        next.bytes = std::min(staging.bytes(), bytes - asked);
        check(cudaMemcpyAsync(next.piece.data(),
                              static_cast<const char*>(src) + asked,
                              static_cast<size_t>(next.bytes),
                              cudaMemcpyDeviceToHost, stream),
              "copy to the host");
        next.piece.give(stream);
        asked += next.bytes;
      }
      if (before.piece) {
        before.piece.wait();
        std::memcpy(static_cast<char*>(host) + before.first,
                    before.piece.data(), static_cast<size_t>(before.bytes));
      }
      before = {};  // returns the piece to the free ones
      before = std::move(next);
    }
    waited(s);
  }
  void from_host(Stream s, void* dst, const void* host,
                 int64_t bytes) override {
    if (bytes <= 0) return;
    const cudaStream_t stream = enter(s);
    not_captured(stream, "copies from the host");
    Staging& staging = staging_for(bytes);
    for (int64_t done = 0; done < bytes;) {
      const int64_t n = std::min(staging.bytes(), bytes - done);
      Staging::Piece piece = staging.take();
      std::memcpy(piece.data(), static_cast<const char*>(host) + done,
                  static_cast<size_t>(n));
      check(cudaMemcpyAsync(static_cast<char*>(dst) + done, piece.data(),
                            static_cast<size_t>(n), cudaMemcpyHostToDevice,
                            stream),
            "copy from the host");
      piece.give(stream);
      done += n;
    }
  }

  void* allocate_host(int64_t bytes, Stream) override {
    use(index_);
    void* block = nullptr;
    const cudaError_t error =
        cudaMallocHost(&block, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    check(error, "allocation of pinned memory");
    return block;
  }
  void release_host(void* block, int64_t, Stream s) noexcept override {
    const auto stream = static_cast<cudaStream_t>(s.handle);
    if (cudaStreamSynchronize(stream) || cudaFreeHost(block))
      (void)cudaGetLastError();
  }
  void copy_host(Stream s, void* dst, const void* src, int64_t bytes) override {
    check(cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes),
                          cudaMemcpyDefault, enter(s)),
          "copy between a GPU and the host");
  }

  Event record(Stream s) override {
    const cudaStream_t stream = enter(s);
    Event event = events_.take();
    Mark& mark = Mark::of(event);
    mark.captured = captured(stream);
    check(cudaEventRecord(mark.event, stream), "record");
    return event;
  }
  void wait(Stream s, const Event& event) override {
    if (!event.handle) return;
    check(cudaStreamWaitEvent(enter(s), Mark::of(event).event), "wait");
  }
  bool passed(const Event& event) override {
    if (!event.handle) return true;
    if (Mark::of(event).captured) return false;
    use(index_);
    const cudaError_t said = cudaEventQuery(Mark::of(event).event);
    if (said == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    check(said, "querying an event");
    return true;
  }
  void synchronize(Stream s) override {
    const cudaStream_t stream = enter(s);
    not_captured(stream, "is waited for by the host");
    ++waits_;
    check(cudaStreamSynchronize(stream), "wait");
    waited(s);
  }

  bool has_graphs() const override { return true; }
  bool is_captured(Stream s) override { return captured(enter(s)); }
  // In relaxed mode, other threads and streams may do any work during the
  // capture. It is part of the capture only in streams that have waited for an
  // event of a captured stream.
  void begin_capture(Stream s) override {
    const cudaStream_t stream = enter(s);
    not_captured(stream, "begins a capture");
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed),
          "beginning a capture");
  }
  std::shared_ptr<const CapturedWork> end_capture(Stream s) override {
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(enter(s), &graph), "ending a capture");
    return std::make_shared<CudaGraph>(graph);
  }
  void drop_capture(Stream s) noexcept override {
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(static_cast<cudaStream_t>(s.handle), &graph))
      (void)cudaGetLastError();
    if (graph) (void)cudaGraphDestroy(graph);
  }
  void replay(Stream s, const CapturedWork& work) override {
    check(cudaGraphLaunch(static_cast<const CudaGraph&>(work).exec(), enter(s)),
          "replay");
  }

  int64_t waits() const override { return waits_; }

 private:
  static const portable::Boxes& boxes() { return portable::cuda_boxes(); }

  static void not_captured(cudaStream_t stream, std::string_view what) {
    DT_CHECK(!captured(stream), "cuda graph",
             "a stream {} while it is captured; do that before or after", what);
  }

  Staging& staging_for(int64_t bytes) {
    return bytes <= few_.bytes() ? few_ : many_;
  }
  const int index_;
  const KernelTable& kernels_;
  cudaMemPool_t pool_ = nullptr;
  std::atomic<int64_t> waits_{0};
  Events events_;
  // Copies that fit into a buffer of few_ use it: the ids, targets and numbers
  // of a step, of several ranks at a time. Parts of tensors use many_.
  Staging few_{64 << 10, 64, waits_}, many_{4 << 20, 8, waits_};
};

}  // namespace

int count(std::string& why) {
  int n = 0, driver = 0;
  const cudaError_t error = cudaGetDeviceCount(&n);
  if (error == cudaSuccess && n > 0) return n;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
    why = "the driver is not installed";
  } else if (error == cudaErrorInsufficientDriver) {
    why = fmt::format(
        "the driver supports CUDA {}.{}, but this program is built with CUDA "
        "{}.{}; install a newer driver, or build with CUDA {} or older",
        driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
        CUDART_VERSION % 1000 / 10, driver / 1000);
  } else {
    const cudaError_t said = error ? error : cudaErrorNoDevice;
    why = std::string(cudaGetErrorName(said)) + " (" +
          cudaGetErrorString(said) + ")";
  }
  (void)cudaGetLastError();
  return 0;
}

std::unique_ptr<Device> make_device(int index, const KernelTable& kernels) {
  return std::make_unique<CudaDevice>(index, kernels);
}

void give_access(Device& a, Device& b) {
  auto &one = static_cast<CudaDevice&>(a), &other = static_cast<CudaDevice&>(b);
  one.let_in(other);
  other.let_in(one);
}

}  // namespace dtensor::cuda
