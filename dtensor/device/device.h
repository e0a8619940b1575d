// What a rank computes on: memory, the work that every device can do with it,
// and the order of that work.
//
// What takes a Stream is handed to the device and may run after the call has
// returned: behind everything that the stream was given before, and unordered
// with other streams but for record() and wait(). Memory of a device is read by
// the host through to_host() alone. Errors that depend on arguments are thrown
// by the call.
//
// Shapes and strides are spans (a Shape converts) and read before the call
// returns; strides are in elements, may be negative, and of a source may be 0.
// At most kMaxLoops dimensions. A destination shares no memory with a source
// unless it says so.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "dtensor/placement/dtype.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

struct Kernels;  // dtensor/ops/kernels/kernels.h

// Of one device, which says what null means.
struct Stream {
  void* handle = nullptr;
  bool operator==(const Stream&) const = default;
};

// A point in the work of a stream; an empty one has been passed.
struct Event {
  std::shared_ptr<void> handle;
};

// An exchange of intervals needs two loops per dimension.
inline constexpr int kMaxLoops = 2 * kMaxDims;
using Sizes = std::span<const int64_t>;

struct Operand {
  const void* data;
  Sizes strides;
};

// Work that was kept instead of run (Device::begin_capture()).
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
};

// All members may be called by several threads at once.
class Device {
 public:
  enum class Kind : uint8_t {
    kCpu,   // work runs in the calling thread, and at once
    kCuda,  // work runs later, in the order of its stream; see cuda.h
    kNone   // sizes without memory (a dry run): all work is nothing
  };
  virtual ~Device() = default;
  virtual Kind kind() const = 0;
  // Kernels for this device alone; null: those of its kind.
  virtual const Kernels* own_kernels() const { return nullptr; }

  // A stream for one thread of a rank. It lasts as long as the device: tensors
  // outlive their rank. Null, and shared by all, where work runs at once.
  virtual Stream open_stream() { return {}; }

  // 64-byte aligned, ordered behind the stream's work, 1 byte or more. Null
  // when there is none left (always on kNone). See allocator.h for what ranks
  // ask.
  virtual void* allocate(int64_t bytes, Stream) = 0;
  // The stream's earlier work may still use it.
  virtual void release(void* block, int64_t bytes, Stream) noexcept = 0;
  // What there is in all, and what nobody has; of a total of 0 nothing is
  // known.
  struct Memory {
    int64_t free = 0, total = 0;
  };
  virtual Memory memory() const { return {}; }
  // May its work read and write what another device of its kind allocates?
  virtual bool can_access_peer(const Device&) const { return true; }

  // dst = src. Returns the bytes copied.
  virtual int64_t copy(Stream, int64_t item_size, Sizes shape, void* dst,
                       Sizes dst_strides, const void* src,
                       Sizes src_strides) = 0;

  // dst = src, converted as by PyTorch; a float that does not fit into an
  // integer becomes the nearest one that does, NaN becomes 0.
  virtual void cast(Stream, Sizes shape, DType dst_type, void* dst,
                    Sizes dst_strides, DType src_type, const void* src,
                    Sizes src_strides) = 0;

  // dst = value, converted as cast() does; the infinities give the bounds of an
  // integer type (of bool: true and false), so that identity() can be written
  // to any.
  virtual void fill(Stream, DType, Sizes shape, void* dst, Sizes dst_strides,
                    double value) = 0;

  // dst = srcs[0] op srcs[1] op ..., from the left; kAvg divides by `count` in
  // the end. Halves are accumulated in f32 and rounded once. One of the sources
  // may be dst itself (with the same strides). Without sources: the identity.
  // Returns the bytes read of each source. REQUIRES: check_reducible().
  virtual int64_t reduce(Stream, ReduceOp, DType, Sizes shape, void* dst,
                         Sizes dst_strides, std::span<const Operand> srcs,
                         int64_t count) = 0;

  // Returns when the bytes are there, of work given to the stream before. Zeros
  // of a device without memory.
  virtual void to_host(Stream, void* host, const void* src, int64_t bytes) = 0;
  // Returns when the host's bytes have been read.
  virtual void from_host(Stream, void* dst, const void* host,
                         int64_t bytes) = 0;

  // dst = a / b, of n contiguous elements of a float type; dst may be a.
  virtual void divide(Stream, DType, int64_t n, void* dst, const void* a,
                      const void* b) = 0;

  // The end of what the stream was given so far.
  virtual Event record(Stream) = 0;
  // What the stream is given from now on runs behind the event, which may be of
  // another stream or device.
  virtual void wait(Stream, const Event&) = 0;
  // Is that work done? Never waits; "no" is right as long as nobody knows, and
  // of an event of a captured stream for ever.
  virtual bool passed(const Event&) = 0;
  // Returns when the stream's work is done.
  virtual void synchronize(Stream) = 0;

  // Graphs. From begin_capture() on, what the stream is given is kept and not
  // run; so is that of streams, also of other devices of this kind, which wait
  // for an event of a stream that is captured: they are from there on, too,
  // until end_capture() of the first. By then that one has waited for all they
  // were given. replay() gives it all to a stream, as one piece of work. It
  // touches the memory that it was given when it was captured, and may run when
  // the last replay has.
  //
  // A captured stream waits for no event from outside of the capture, and the
  // host for nothing of it: to_host(), from_host() and synchronize() throw
  // Error. Memory that it allocates is its own, and the capture's. After an
  // Error, drop_capture().
  virtual bool has_graphs() const { return false; }
  virtual bool is_captured(Stream) { return false; }
  virtual void begin_capture(Stream) {}
  virtual std::shared_ptr<const CapturedWork> end_capture(Stream) { return {}; }
  virtual void drop_capture(Stream) noexcept {}
  virtual void replay(Stream, const CapturedWork&) {}

  // How often a thread of the host has waited for work of the device, in any of
  // these functions.
  virtual int64_t waits() const { return 0; }
};

// They live for ever.
Device& cpu();
Device& no_device();

}  // namespace dtensor
