// SPDX-License-Identifier: Apache-2.0
// A local tensor: a strided view of a storage, without a mesh or a layout.
//
// Views (transposes, slices, reshapes that need no copy) share the storage. In
// a dry run, a storage has its size but no memory: data() is null, and there
// are no values. Shapes, strides and versions are as in a real run.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/device/device.h"
#include "dtensor/memory_kind.h"
#include "dtensor/placement/dtype.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

class Allocator;

// Another thread's read of a storage, which may still be going on.
class StorageReader {
 public:
  virtual ~StorageReader() = default;
  // Waits until the read has been enqueued. Work that is enqueued on the rank's
  // stream after finish() has returned runs after the read.
  virtual void finish() = 0;
};

// The memory that a tensor and its views share. It belongs to the rank that
// allocated it.
class Storage {
  struct Key {};

 public:
  // Uninitialised memory from the calling rank's allocator (see allocator.h),
  // counted as RankContext::memory_kind. A thread without a rank gets host
  // memory from a shared allocator. Throws Error if out of memory.
  static std::shared_ptr<Storage> allocate(int64_t bytes);
  // For allocate() only.
  Storage(Key, void* data, int64_t bytes, Device& device, Stream stream,
          MemoryKind kind, std::shared_ptr<Allocator> from)
      : data_(data),
        bytes_(bytes),
        device_(&device),
        made_on_(stream),
        stream_(stream),
        kind_(kind),
        from_(std::move(from)) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // Null in a dry run, and while the bytes are on the host (offload()).
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Raised by every in-place write. Autograd saves the version with the values
  // that a gradient will read, and compares it later.
  uint64_t version() const { return version_; }
  // Called before a write. If another thread may still be reading the storage,
  // calls StorageReader::finish(). Then raises the version.
  void bump_version() {
    if (read_) [[unlikely]]
      finish_reader();
    ++version_;
  }
  // Sets the reader that the next write waits for. REQUIRES: earlier readers of
  // the storage finish before this one.
  void set_reader(const std::shared_ptr<StorageReader>& r) {
    reader_ = r;
    read_ = true;
  }
  // Keeps `token` until the memory is freed. The token's destructor, which runs
  // on the thread that frees the memory, can report that. A later call
  // replaces the token.
  void hold_until_freed(std::shared_ptr<const void> token) {
    token_ = std::move(token);
  }
  // The kind that the memory is counted as (see Allocator::Stats).
  MemoryKind kind() const { return kind_; }
  void set_kind(MemoryKind);
  Device& device() const { return *device_; }
  // Once the storage is destroyed, later work of this stream may reuse the
  // memory.
  Stream stream() const { return stream_; }
  // The stream for the calling thread's work on the memory: the stream of the
  // thread's rank, or stream() if the thread has no rank on this device.
  Stream stream_here() const;
  // Sets stream(). REQUIRES: the new stream has waited for the earlier work on
  // the memory.
  void move_to(Stream stream) { stream_ = stream; }

  // Frees the device's memory, after copying the bytes to the host's
  // (Allocator::host()), unless they have not changed since an earlier copy.
  // Any use of the tensors, by data() or operators, brings the bytes back. The
  // copies are work of the calling thread's stream, which has to have waited
  // for earlier work on the memory. Does nothing on a CPU, whose memory is the
  // host's. Throws Error if the host is out of memory, or in a graph's step.
  void offload();
  void bring_back();
  bool away() const { return host_ && host_->only; }
  // Whether the bytes have been on the host before.
  bool was_away() const { return host_ != nullptr; }

 private:
  // The copy on the host.
  struct HostCopy {
    std::shared_ptr<Allocator> from;
    void* data = nullptr;
    uint64_t version = 0;  // of the storage when the copy was made
    bool only = false;     // the device has no memory for the storage
  };
  void finish_reader();
  void* data_;
  int64_t bytes_;
  uint64_t version_ = 0;
  bool read_ = false;
  std::weak_ptr<StorageReader> reader_;
  std::shared_ptr<const void> token_;
  Device* device_;
  Stream made_on_;
  Stream stream_;
  MemoryKind kind_;
  std::shared_ptr<Allocator> from_;  // keeps the allocator alive
  std::unique_ptr<HostCopy> host_;   // null if there never was one
};

class Tensor {
 public:
  Tensor() = default;
  // A contiguous tensor whose elements are uninitialised.
  static Tensor empty(const Shape&, DType);
  static Tensor full(const Shape&, DType, double value);
  // Copies numel(shape) values from the host, in row-major order.
  template <class T>
  static Tensor from(const Shape& shape, const T* values);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }  // in elements
  int ndim() const { return shape_.size(); }
  int64_t numel() const { return numel_; }
  DType dtype() const { return dtype_; }
  int64_t bytes() const { return numel_ * size_of(dtype_); }
  bool contiguous() const { return contiguous_; }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  Device& device() const { return storage_->device(); }
  // The stream for the calling thread's work; see Storage::stream_here().
  Stream stream() const { return storage_->stream_here(); }

  // Memory to read; null in a dry run.
  const void* data() const { return at_offset(); }
  template <class T>
  const T* ptr() const {
    return static_cast<const T*>(data());
  }
  // Memory to write; null in a dry run. Calls Storage::bump_version(), so that
  // the write comes after another thread's read, and a gradient that needs the
  // old values throws.
  void* mutable_data() const {
    storage_->bump_version();
    return at_offset();
  }
  template <class T>
  T* mutable_ptr() const {
    return static_cast<T*>(mutable_data());
  }

  // Views; throw Error if an argument is out of range.
  Tensor permute(const Shape& order) const;
  Tensor transpose(int a, int b) const;
  // Only the indices lo, lo + step, ... below hi of dimension d.
  Tensor slice(int d, int64_t lo, int64_t hi, int64_t step = 1) const;
  // Repeats size-1 dimensions with stride 0, and adds dimensions in front.
  Tensor expand(const Shape&) const;
  // Any view of the same storage; offset in elements from data().
  Tensor as_strided(const Shape& shape, const Shape& strides,
                    int64_t offset = 0) const;
  // A tensor of this shape with the elements in row-major order: a view if the
  // strides allow it, else a copy. Throws Error if the number of elements
  // differs.
  Tensor reshape(const Shape&) const;
  // Whether reshape() returns a view.
  bool can_view(const Shape&) const;
  // This tensor, or a contiguous copy.
  Tensor to_contiguous() const;
  Tensor clone() const;

  // Copies src (any strides, same shape and dtype); raises the version.
  void copy_from(const Tensor& src) const;
  void fill(double value) const;
  // The element at row-major position i, as a double. Waits for the device.
  double at(int64_t i) const;
  // Like at(), but exact, for an i32 or i64 tensor. Throws Error for other
  // types.
  int64_t integer_at(int64_t i) const;
  // The only element; 0 in a dry run.
  double item() const;
  // All elements as doubles, in row-major order; zeros in a dry run. Waits for
  // the device, as do item(), to_integers() and to_host().
  std::vector<double> to_doubles() const;
  // Like to_doubles(), but exact, for an i32 or i64 tensor. Throws Error for
  // other types.
  std::vector<int64_t> to_integers() const;
  // Copies all elements to `values`, with this tensor's type and in row-major
  // order.
  void to_host(void* values) const;
  // The tensor on the device of the calling rank: this tensor, or a contiguous
  // copy made through host memory. On a thread without a rank, this tensor.
  Tensor to_rank() const;

 private:
  char* at_offset() const {
    if (storage_->away()) [[unlikely]]
      storage_->bring_back();
    char* base = static_cast<char*>(storage_->data());
    return base ? base + offset_ * size_of(dtype_) : nullptr;
  }
  template <class T>
  std::vector<T> to_host_as(DType) const;
  // The offset of element i from data(), in elements. Throws an Error that
  // begins with `where` if there is no such element, or in a dry run.
  int64_t position(int64_t i, std::string_view where) const;
  // A view of the same storage, `offset` elements further; unchecked.
  Tensor view(const Shape& shape, const Shape& strides, int64_t offset) const;

  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0, numel_ = 0;
  Shape shape_, strides_;
  DType dtype_ = DType::kF32;
  bool contiguous_ = true;
};

}  // namespace dtensor
