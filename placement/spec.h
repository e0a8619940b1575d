// A tensor's global description: mesh, layout, shape and dtype. Specs are
// interned: equal specs share one pointer, so comparing them, or looking up
// decisions about them, compares pointers. Processes compare hashes.
#pragma once
#include <cstdint>
#include <string>

#include "dtensor/placement/dtype.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

class Spec {
 public:
  // The spec with these values. Throws Error if the layout does not fit the
  // shape or uses an axis twice, or if the byte size overflows. Thread-safe.
  // Specs are never freed.
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

  // This tensor with another layout or dtype.
  const Spec* with(const Layout& l) const {
    return get(mesh_, shape_, l, dtype_);
  }
  const Spec* with(DType t) const { return get(mesh_, shape_, layout_, t); }

  Region region(const Coord& c) const { return layout_.region(mesh_, c); }
  // The sizes of the region, after a leading 2 if a partial is a (sum, count).
  Shape local_shape(const Coord&) const;
  // Values for each element: 2 if a partial is a (sum, count), else 1.
  int components() const;
  // The bytes of the largest part that a rank holds.
  int64_t largest_part_bytes() const;

  // "f32[2048, 256](S0,R)".
  std::string to_string() const;
  uint64_t hash() const { return hash_; }

 private:
  Spec(const Mesh&, const Shape&, Layout, DType, uint64_t hash);
  Mesh mesh_;
  Shape shape_;
  Layout layout_;
  DType dtype_;
  AxisMask split_axes_, partial_axes_;
  uint64_t hash_;
};

}  // namespace dtensor
