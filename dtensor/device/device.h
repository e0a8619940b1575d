// SPDX-License-Identifier: Apache-2.0
// The devices that ranks compute on: memory, the work that every device can do
// with it, and the order of that work.
//
// Calls that take a Stream enqueue their work, which may run after the call has
// returned. It runs after all earlier work of that stream. Work of different
// streams has no order, except through record() and wait(). The host reads a
// GPU's memory only through to_host(). A call that finds an argument to be
// wrong throws Error itself; the work does not throw when it runs.
//
// Shapes and strides are spans, to which a Shape converts; a call reads them
// before it returns. Strides are in elements and may be negative; those of a
// source may also be 0. A box has at most kMaxLoops dimensions. A destination
// shares no memory with a source unless the function says that it may.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "dtensor/placement/dtype.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

// The functions that compute on a device. Every KernelTable object is a Kernels
// (ops/kernels/kernels.h), a header that this one cannot include.
struct KernelTable {};

// A stream of one device. The device defines what a null handle means.
struct Stream {
  void* handle = nullptr;
  bool operator==(const Stream&) const = default;
};

// A point in the work of a stream. An empty event has already passed.
struct Event {
  std::shared_ptr<void> handle;
};

// The most dimensions of a box. A piece of a collective needs two for each
// dimension of a tensor that has ranges at equal distances: one over the
// ranges, and one within them (comm/pieces.h).
inline constexpr int kMaxLoops = 2 * kMaxDims;
using Sizes = std::span<const int64_t>;

// One source of a reduction.
struct Operand {
  const void* data;
  Sizes strides;
};

// Work that was recorded instead of run (Device::begin_capture()).
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
};

// All members may be called by several threads at once.
class Device {
 public:
  enum class Kind : uint8_t {
    kCpu,   // work runs in the calling thread, immediately
    kCuda,  // work runs later, in the order of its stream; see cuda.h
    kNone   // sizes without memory (a dry run): all work does nothing
  };
  virtual ~Device() = default;
  virtual Kind kind() const = 0;
  // The name for errors, such as "the CPU".
  virtual std::string_view name() const = 0;
  // The kernels for this device only; null if it uses the kernels of its kind.
  virtual const KernelTable* own_kernels() const { return nullptr; }

  // A stream for one thread of a rank. It lasts as long as the device, because
  // tensors may outlive their rank. On a device that runs work immediately, all
  // threads share the null stream.
  virtual Stream open_stream() { return {}; }

  // Returns memory, 64-byte aligned, that work of the stream may use from now
  // on; null if there is none left (always on kNone). Ranks allocate through
  // allocator.h. REQUIRES: bytes >= 1.
  virtual void* allocate(int64_t bytes, Stream) = 0;
  // Frees a block once the stream's earlier work, which may still use it, is
  // done. Returns without waiting for that work.
  virtual void release(void* block, int64_t bytes, Stream) noexcept = 0;
  // The device's memory in bytes, and how much of it is unused. A total of 0
  // means unknown.
  struct Memory {
    int64_t free = 0, total = 0;
  };
  virtual Memory memory() const { return {}; }
  // Whether this device's work can read and write the memory of that other
  // device, which is of the same kind.
  virtual bool can_access_peer(const Device&) const { return true; }

  // dst = src. Returns the bytes copied.
  virtual int64_t copy(Stream, int64_t item_size, Sizes shape, void* dst,
                       Sizes dst_strides, const void* src,
                       Sizes src_strides) = 0;

  // dst = src, converted as in PyTorch, except that in an integer type, a float
  // outside its range becomes the nearest integer in range, and NaN becomes 0.
  virtual void cast(Stream, Sizes shape, DType dst_type, void* dst,
                    Sizes dst_strides, DType src_type, const void* src,
                    Sizes src_strides) = 0;

  // dst = value, converted as cast() does: infinities become the bounds of an
  // integer type. But for bool, -infinity becomes false. So identity() can be
  // written to any type.
  virtual void fill(Stream, DType, Sizes shape, void* dst, Sizes dst_strides,
                    double value) = 0;

  // dst = srcs[0] op srcs[1] op ..., from left to right; kAvg divides by
  // `count` at the end. f16 and bf16 are accumulated in f32 and rounded once.
  // One of the sources may be dst itself (with the same strides). Without
  // sources, dst is filled with the identity. Returns the bytes read from each
  // source. REQUIRES: check_reducible() accepts the operation.
  virtual int64_t reduce(Stream, ReduceOp, DType, Sizes shape, void* dst,
                         Sizes dst_strides, std::span<const Operand> srcs,
                         int64_t count) = 0;

  // Like reduce(), for n contiguous elements and at least one source. Writes
  // the result to each of `dsts`, which may be among the sources.
  virtual int64_t reduce_into_all(Stream, ReduceOp, DType, int64_t n,
                                  std::span<char* const> dsts,
                                  std::span<const char* const> srcs,
                                  int64_t count) = 0;

  // Copies to the host after the stream's earlier work, and returns when the
  // bytes have arrived. A device without memory writes zeros.
  virtual void to_host(Stream, void* host, const void* src, int64_t bytes) = 0;
  // Copies from the host after the stream's earlier work. Returns when the
  // bytes at `host` have been read, so that they may be overwritten.
  virtual void from_host(Stream, void* dst, const void* host,
                         int64_t bytes) = 0;

  // Returns host memory that copy_host() can use while the host continues; null
  // if there is none left (always on kNone). By default, it is the device's own
  // memory, for devices that use the host's. release_host() frees it like
  // release(), but may wait for the stream's earlier work. REQUIRES: bytes >=
  // 1.
  virtual void* allocate_host(int64_t bytes, Stream s) {
    return allocate(bytes, s);
  }
  virtual void release_host(void* block, int64_t bytes, Stream s) noexcept {
    release(block, bytes, s);
  }
  // dst = src, `bytes` bytes. One of the two is in the device's memory, the
  // other in memory of allocate_host().
  virtual void copy_host(Stream s, void* dst, const void* src, int64_t bytes) {
    const int64_t shape[] = {bytes}, unit[] = {1};
    copy(s, 1, shape, dst, unit, src, unit);
  }

  // dst = a / b, for n contiguous elements of a float type; dst may be a.
  virtual void divide(Stream, DType, int64_t n, void* dst, const void* a,
                      const void* b) = 0;

  // Returns an event that passes when the stream's work so far is done.
  virtual Event record(Stream) = 0;
  // Later work of the stream runs after the event, which may belong to another
  // stream or device.
  virtual void wait(Stream, const Event&) = 0;
  // Whether the work before the event is known to be done. Never waits. Always
  // false for an event that was recorded during a capture.
  virtual bool passed(const Event&) = 0;
  // Returns when the stream's work is done.
  virtual void synchronize(Stream) = 0;

  // Graphs. After begin_capture(), the stream's work is recorded instead of
  // run. Another stream that waits for an event of a captured stream is
  // captured too, even on another device of this kind, until end_capture() of
  // the first stream. Before that call, the first stream has to wait for all
  // work of the other captured streams. replay() enqueues the recorded work on
  // a stream as one piece of work. The work uses the memory addresses of the
  // capture, and may run only after the previous replay has finished.
  //
  // A captured stream must not wait for an event from outside the capture, and
  // the host cannot wait for captured work: to_host(), from_host() and
  // synchronize() throw Error. Memory that a captured stream allocates belongs
  // to the capture. After an Error, call drop_capture().
  virtual bool has_graphs() const { return false; }
  virtual bool is_captured(Stream) { return false; }
  virtual void begin_capture(Stream) {}
  virtual std::shared_ptr<const CapturedWork> end_capture(Stream) { return {}; }
  virtual void drop_capture(Stream) noexcept {}
  virtual void replay(Stream, const CapturedWork&) {}

  // How often, so far, a function of this class has made a host thread wait for
  // work of the device.
  virtual int64_t waits() const { return 0; }
};

// These devices last until the program ends.
Device& cpu();
Device& no_device();

}  // namespace dtensor
