// SPDX-License-Identifier: Apache-2.0
// A Layout describes the part of a tensor that each rank holds: a Dim for each
// dimension, and the partials.
//
// A Dim is a small tree:
//   leaf     a size and a Split (or whole)
//   product  sub-dimensions, outermost first: "(3 h d)" with h split; also the
//            flattening of [a, b] with b split
//   concat   segments laid end to end, each with its own tree: q|k|v
// Whatever the tree is, a rank holds an ordered list of index ranges of each
// dimension (its local order). Its part of the tensor is the product of these
// lists. All code that moves data works on these lists alone.
//
// Example: [2, 4] with the 4 split over two ranks, flattened to 8, is
// product(leaf 2 whole, leaf 4 split): rank 0 holds [0,2) [4,6).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/mesh.h"
#include "dtensor/placement/region.h"
#include "dtensor/placement/shape.h"
#include "dtensor/placement/split.h"

namespace dtensor {

class Dim {
 public:
  enum class Kind : uint8_t { kLeaf, kProduct, kConcat };

  Dim() = default;
  // Throws Error if the split lists boundaries that do not end at the size.
  // (canonical() does the checks that need the mesh: that the axes exist and
  // are used once.)
  explicit Dim(int64_t size, Split split = {})
      : size_(size), split_(std::move(split)) {
    split_.check_end(size);
  }
  // product() takes sub-dimensions, outermost first; concat() takes segments in
  // order. Both throw Error if the size does not fit into int64.
  static Dim product(std::vector<Dim> parts);
  static Dim concat(std::vector<Dim> segments);

  Kind kind() const { return kind_; }
  int64_t size() const { return size_; }
  const Split& split() const { return split_; }             // of a leaf
  const std::vector<Dim>& parts() const { return parts_; }  // of a tree
  bool whole() const { return axes() == 0; }
  // The mesh axes that split the dimension, anywhere in the tree.
  AxisMask axes() const;

  // Appends the index ranges of the rank at this coordinate, in local order.
  void intervals(const Mesh&, const Coord&, IntervalList& out) const;
  // local_size(): the number of indices of the rank at this coordinate.
  // largest(): the number on the rank that has the most.
  int64_t local_size(const Mesh&, const Coord&) const;
  int64_t largest(const Mesh&) const;

  // The simplest tree that gives every rank the same part: a leaf if possible,
  // "(2 h)" for h|h, a concat of products for the product of a concat and a
  // whole dimension (see Split::canonical for leaves). Two Dims give every rank
  // the same part exactly if their canonical trees are equal (except at size 0,
  // where a leaf keeps its axes). Throws Error if the tree does not fit the
  // mesh.
  Dim canonical(const Mesh&) const;

  // This dimension seen as sub-dimensions of these sizes (outermost first), or
  // nullopt if no trees of these sizes describe every rank's part. REQUIRES:
  // the sizes multiply to size().
  std::optional<std::vector<Dim>> unflatten(const Mesh&,
                                            const std::vector<int64_t>&) const;
  // The Dim of the indices [lo, lo + n): every rank keeps those that it had.
  // Never nullopt, since some tree always describes the result. REQUIRES: 0 <=
  // lo <= lo + n <= size().
  std::optional<Dim> slice(const Mesh&, int64_t lo, int64_t n) const;

  uint64_t hash() const;
  bool operator==(const Dim&) const = default;

 private:
  Kind kind_ = Kind::kLeaf;
  int64_t size_ = 0;
  Split split_;
  std::vector<Dim> parts_;
};

// How the parts of a partial value are combined. kMean stands for the tuple
// (sum, count): the local part has one more, leading dimension of 2, both
// values are summed over the axis, and the result is sum / count. kExactSum is
// a sum whose parts are of type exact (dtype.h): the result is rounded once, to
// the same bits for any parts.
enum class ReduceOp : uint8_t {
  kSum,
  kAvg,
  kMax,
  kMin,
  kProd,
  kAny,
  kAll,
  kMean,
  kExactSum
};
std::string_view name(ReduceOp);
// The number of values for each element: 2 for kMean, else 1.
constexpr int components(ReduceOp op) { return op == ReduceOp::kMean ? 2 : 1; }
// Whether neighbouring partials of a list may change places if their reductions
// are these two.
bool commute(ReduceOp a, ReduceOp b);

struct Partial {
  int axis;
  ReduceOp op;
  bool operator==(const Partial&) const = default;
};

// The Dims, and the partials from the outermost (combined last) to the
// innermost.
struct Layout {
  std::vector<Dim> dims;
  std::vector<Partial> partials;

  // Every dimension whole and no partial: every rank holds the whole tensor.
  static Layout replicated(const Shape&);

  AxisMask split_axes() const;
  AxisMask partial_axes() const;
  std::optional<ReduceOp> partial_on(int axis) const;
  Shape shape() const;
  Region region(const Mesh&, const Coord&) const;

  // This layout with canonical Dims, without partials over axes of size 1
  // (except kMean, whose parts have another shape), and with neighbouring
  // partials sorted by axis if they commute. Throws Error if an axis is used
  // twice, except by the segments of one concat, or is not in the mesh.
  Layout canonical(const Mesh&) const;

  // The text that parse_layout() reads. kShorter gives the per-axis form if
  // every dimension is a leaf or whole, else the shorter form. If axes or
  // partials are not in mesh order, only the per-dimension form can describe
  // the layout, and every Form gives it.
  enum class Form : uint8_t { kShorter, kPerAxis, kPerDim };
  std::string to_string(const Mesh&, Form = Form::kShorter) const;
  uint64_t hash() const;
  bool operator==(const Layout&) const = default;
};

// Reads either form; spaces may stand between words. Every layout l reads back:
// parse_layout(l.to_string(mesh), mesh, l.shape()) == l.canonical(mesh). Throws
// Error for other texts, and tells what to write instead.
//
// Per mesh axis: one placement for each axis of the mesh. Axes that share a
// dimension, or a part of one, split it in mesh order, the first outermost.
//   S0,R,P          split dimension 0, replicated, partial (a sum)
//   P(max)          sum, avg, max, min, prod, any, all, mean, exact
//   S0/64           in granules of 64     } written once, at the first axis
//   S0@0|3|5|14     at these boundaries   } that splits the dimension
//   S0(3 h=4 d=8:h) dimension 0 is the product of 3, h of 4, and d of 8,
//                   outermost first; this axis splits h
//   S0(:d)          a later axis splits d of that tree; it may repeat the tree
//   S0(q=8|k=4|v=4:q,k,v)
//                   a concatenation; the axis splits its three segments
//   S0(q=(h=4 8)|k=(g=2 8):h/2,g@0|0|2)
//                   trees in a tree; a granule, and boundaries
//
// Per dimension: one entry for each dimension with its axes in order, the first
// outermost; then the partials, the outermost (combined last) first.
//   [{y,z},{x},{}] P{w:max,v}   or P{w:max} P{v}; v is a sum
//   [{y,z}/64], [{y}@0|3|5|14]  granule, boundaries
//   [(3 4{tp} 8)]               a product; a whole part is its size
//   [(8{tp}/2|4{tp}@(0|1|4)|5)] a concatenation, where boundaries are bracketed
//
// In both forms, a tree is
//   tree    = part {" " part} | part {"|" part}
//   part    = [name "="] size | [name "="] "(" tree ")" | name
// and in the second form, a part that is a size or a name may end in axes. One
// part of a tree may be a name alone: its size follows from the dimension's.
Layout parse_layout(std::string_view text, const Mesh&, const Shape&);

// The layout of the same elements seen as shape `to`, with every element on the
// ranks that hold it now. nullopt if no trees describe that layout, or if `to`
// has another number of elements.
std::optional<Layout> view_layout(const Layout&, const Mesh&, const Shape& to);

}  // namespace dtensor
