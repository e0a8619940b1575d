// A local tensor: a strided window on a storage. No mesh, no layout.
//
// Views (transposes, slices, reshapes that need no copy) share the storage.
// A tensor of a dry run has a storage of the right size without memory:
// data() is null, everything else is as in a real run.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dtensor/device/device.h"
#include "dtensor/memory_kind.h"
#include "dtensor/placement/dtype.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

class Allocator;

// Another thread that reads a storage.
class StorageReader {
 public:
  virtual ~StorageReader() = default;
  // When it returns, what the rank's stream is given from now on runs behind
  // the last read.
  virtual void finish() = 0;
};

// Memory, and what is known of it. Owned by the rank that allocated it.
class Storage {
  struct Key {};

 public:
  // From the calling rank's allocator (see allocator.h), uninitialised; it
  // counts as what RankContext::memory_kind says.
  static std::shared_ptr<Storage> allocate(int64_t bytes);
  // Somebody else's, that is only read.
  static std::shared_ptr<Storage> borrow(const void* data, int64_t bytes,
                                         Device&, Stream);
  // Of allocate() and borrow(); from: null when it is not to be released.
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

  void* data() const { return data_; }  // null in a dry run
  int64_t bytes() const { return bytes_; }
  // Raised by everything that writes in place; autograd compares it with the
  // version that it saved.
  uint64_t version() const { return version_; }
  // Called ahead of the write, which it holds back while another thread reads.
  void bump_version() {
    if (read_) [[unlikely]]
      finish_reader();
    ++version_;
  }
  // The latest one; those before it are done when it is.
  void set_reader(const std::shared_ptr<StorageReader>& r) {
    reader_ = r;
    read_ = true;
  }
  // What its memory is counted as (see Allocator::Stats).
  MemoryKind kind() const { return kind_; }
  void set_kind(MemoryKind);
  Device& device() const { return *device_; }
  // Whose later work may use the memory when the storage is gone.
  Stream stream() const { return stream_; }
  // Where the calling thread's work on the memory goes: its rank's stream, or
  // (on threads that are no rank of this device) the storage's own.
  Stream stream_here() const;
  // For work of another stream than it was made on, which has to wait for what
  // made it, and behind which the memory may be used again.
  void move_to(Stream stream) { stream_ = stream; }

 private:
  void finish_reader();
  void* data_;
  int64_t bytes_;
  uint64_t version_ = 0;
  bool read_ = false;
  std::weak_ptr<StorageReader> reader_;
  Device* device_;
  const Stream made_on_;
  Stream stream_;
  MemoryKind kind_;
  std::shared_ptr<Allocator> from_;  // outlives what it handed out
};

class Tensor {
 public:
  Tensor() = default;
  // Contiguous, uninitialised.
  static Tensor empty(const Shape&, DType);
  static Tensor full(const Shape&, DType, double value);
  // Somebody else's memory, which outlives it and is only read, on that rank's
  // device.
  static Tensor borrowed(const void* data, const Shape&, const Shape& strides,
                         DType, Device&, Stream);
  // Copies `values` in row-major order. REQUIRES: numel(shape) of them.
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
  // Of the calling thread; see Storage::stream_here().
  Stream stream() const { return storage_->stream_here(); }

  // To read; null in a dry run.
  const void* data() const { return at_offset(); }
  template <class T>
  const T* ptr() const {
    return static_cast<const T*>(data());
  }
  // To write: raises the version, so that a gradient which needs what was there
  // says so, and waits for another thread that reads it. Null in a dry run.
  void* mutable_data() const {
    storage_->bump_version();
    return at_offset();
  }
  template <class T>
  T* mutable_ptr() const {
    return static_cast<T*>(mutable_data());
  }

  // Views; throw Error when out of range.
  Tensor permute(const Shape& order) const;
  Tensor transpose(int a, int b) const;
  // Indices lo, lo+step, ... below hi of dimension d.
  Tensor slice(int d, int64_t lo, int64_t hi, int64_t step = 1) const;
  // Size-1 dimensions repeated with stride 0.
  Tensor expand(const Shape&) const;
  // Arbitrary window on the same storage; offset in elements from data().
  Tensor as_strided(const Shape& shape, const Shape& strides,
                    int64_t offset = 0) const;
  // Same elements in row-major order: a view when the strides allow it, else
  // a copy. REQUIRES: equal numel.
  Tensor reshape(const Shape&) const;
  // True when reshape() to it copies nothing.
  bool can_view(const Shape&) const;
  // This, or a contiguous copy.
  Tensor to_contiguous() const;
  Tensor clone() const;

  // this = src (any strides, same shape and dtype); raises the version.
  void copy_from(const Tensor& src);
  void fill(double value);
  // The element as a double, at row-major position i.
  double at(int64_t i) const;
  // Of an i32 or i64 tensor, exactly.
  int64_t integer_at(int64_t i) const;
  // The only element; 0 in a dry run.
  double item() const;
  // All elements as doubles, in row-major order; zeros in a dry run. Both wait
  // for what makes them.
  std::vector<double> to_doubles() const;
  // Of an i32 or i64 tensor, exactly; zeros in a dry run.
  std::vector<int64_t> to_integers() const;
  // As they are: numel() elements of this type.
  void to_host(void* values) const;
  // On the device of the calling rank: this, or a contiguous copy by way of the
  // host.
  Tensor to_rank() const;

 private:
  char* at_offset() const {
    char* base = static_cast<char*>(storage_->data());
    return base ? base + offset_ * size_of(dtype_) : nullptr;
  }
  template <class T>
  std::vector<T> to_host_as(DType) const;
  // Where element i is, from data(). Throws Error when there is none.
  int64_t position(int64_t i) const;
  // The same storage, `offset` elements further; nothing is checked.
  Tensor view(const Shape& shape, const Shape& strides, int64_t offset) const;

  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0, numel_ = 0;
  Shape shape_, strides_;
  DType dtype_ = DType::kF32;
  bool contiguous_ = true;
};

}  // namespace dtensor
