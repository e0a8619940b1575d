// SPDX-License-Identifier: Apache-2.0
// A tensor's global description: mesh, layout, shape and dtype. Specs are
// interned: equal specs share one pointer, so comparing specs, or finding them
// in a cache, compares pointers. Different processes compare hashes instead.
//
// A spec lives at least while a SpecRef holds it; tensors and caches use
// SpecRefs. get() also holds the spec that it returns, until the calling thread
// has asked for kHeldLately other specs, or ends. So a function needs no
// SpecRef for a spec that it uses at once. Code that keeps a spec longer, or
// reads it after the thread has ended, needs a SpecRef, not a `const Spec*`.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "dtensor/placement/dtype.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

struct CacheUse;  // bounded_cache.h

class Spec {
 public:
  // The spec with these values. Throws Error if the layout does not fit the
  // shape or uses an axis twice, or if the byte size overflows. Thread-safe.
  static const Spec* get(const Mesh&, const Shape&, const Layout&, DType);
  static const Spec* replicated(const Mesh&, const Shape&, DType);

  const Mesh& mesh() const { return mesh_; }
  const Layout& layout() const { return layout_; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  int ndim() const { return shape_.size(); }
  const Dim& dim(int d) const { return layout_.dims[static_cast<size_t>(d)]; }
  AxisMask split_axes() const { return split_axes_; }
  AxisMask partial_axes() const { return partial_axes_; }
  bool is_replicated() const { return !split_axes_ && !partial_axes_; }

  // The spec of the same tensor with another layout or dtype.
  const Spec* with(const Layout& l) const {
    return get(mesh_, shape_, l, dtype_);
  }
  const Spec* with(DType t) const { return get(mesh_, shape_, layout_, t); }

  Region region(const Coord& c) const { return layout_.region(mesh_, c); }
  // The shape of a rank's part: the sizes of its region, after a leading 2 if a
  // partial is a (sum, count) pair.
  Shape local_shape(const Coord&) const;
  // The number of values for each element: 2 if a partial is a (sum, count)
  // pair, else 1.
  int components() const;
  // Whether the tensor is partial by ReduceOp::kExactSum.
  bool exact() const { return exact_; }
  // The type of a rank's part: exact if exact(), else dtype().
  DType part_dtype() const { return exact_ ? DType::kExact : dtype_; }
  // The bytes of the largest part that a rank holds.
  int64_t largest_part_bytes() const;

  // "f32[2048, 256](S0,R)".
  std::string to_string() const;
  uint64_t hash() const { return hash_; }

  // get() holds a spec that it returned at least until it has returned this
  // many others to the same thread.
  static constexpr size_t kHeldLately = 1024;
  // Statistics of the process's table of specs. When the table is full, or a
  // thread that called get() ends, the specs that nothing holds are freed. The
  // limit becomes twice the number of specs that are left, but at least 4096.
  static CacheUse use();

 private:
  friend class SpecRef;
  struct Table;
  Spec(const Mesh&, const Shape&, Layout, DType, uint64_t hash);
  void hold() const { users().held.fetch_add(1, std::memory_order_relaxed); }
  void drop() const { users().dropped.fetch_add(1, std::memory_order_release); }
  bool in_use() const;

  // How often SpecRefs have held the spec, and dropped it again, in the threads
  // that share this counter. Ranks are threads and share their specs: with a
  // single counter, they would contend for it with every output of an operator.
  struct alignas(64) Users {
    std::atomic<uint64_t> held{0}, dropped{0};
  };
  Users& users() const {
    if (counter_ < 0) [[unlikely]]
      counter_ = next_counter();
    return users_[static_cast<size_t>(counter_)];
  }
  static int next_counter();

  // The index in `users_` of this thread's counter, the same in all specs; -1:
  // not chosen yet.
  static constinit inline thread_local int counter_ = -1;
  mutable std::array<Users, 8> users_;
  Mesh mesh_;
  Shape shape_;
  Layout layout_;
  DType dtype_;
  AxisMask split_axes_, partial_axes_;
  bool exact_;
  uint64_t hash_;
};

// Holds a spec, or none.
class SpecRef {
 public:
  SpecRef() = default;
  SpecRef(const Spec* s) : spec_(s) {
    if (spec_) spec_->hold();
  }
  SpecRef(const SpecRef& o) : SpecRef(o.spec_) {}
  SpecRef(SpecRef&& o) noexcept : spec_(std::exchange(o.spec_, nullptr)) {}
  SpecRef& operator=(SpecRef o) noexcept {
    std::swap(spec_, o.spec_);
    return *this;
  }
  ~SpecRef() {
    if (spec_) spec_->drop();
  }
  const Spec* get() const { return spec_; }
  operator const Spec*() const { return spec_; }
  const Spec* operator->() const { return spec_; }

 private:
  const Spec* spec_ = nullptr;
};

}  // namespace dtensor
