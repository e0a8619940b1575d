// What every rank holds of a tensor: a Dim per dimension, and the partials.
//
// A Dim is a small tree:
//   leaf     a size and a Split (or whole)
//   product  sub-dimensions, outermost first: "(3 h d)" with h split; the
//            flattening of [a, b] with b split
//   concat   segments laid end to end, each with its own tree: q|k|v
// Whatever the tree, a rank holds an ordered list of index ranges of the
// dimension (its local order), and of the tensor the product of these lists.
// Everything that moves data works on these lists alone.
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
  // Throws Error when the split lists boundaries that do not end at the size.
  // (That its axes are the mesh's, used once, and its granule divides the size
  // is checked with the mesh, by canonical().)
  explicit Dim(int64_t size, Split split = {})
      : size_(size), split_(std::move(split)) {
    split_.check_end(size);
  }
  // Sub-dimensions, outermost first; segments, as a `cat` lays them out. Both
  // throw Error when the size does not fit into int64.
  static Dim product(std::vector<Dim> parts);
  static Dim concat(std::vector<Dim> segments);

  Kind kind() const { return kind_; }
  int64_t size() const { return size_; }
  const Split& split() const { return split_; }             // of a leaf
  const std::vector<Dim>& parts() const { return parts_; }  // of the others
  bool whole() const { return axes() == 0; }
  // The mesh axes that split it anywhere in the tree.
  AxisMask axes() const;

  void intervals(const Mesh&, const Coord&, IntervalList& out) const;
  int64_t local_size(const Mesh&, const Coord&) const;
  int64_t largest(const Mesh&) const;

  // The simplest tree that says the same: a leaf where one can, "(2 h)" for
  // h|h, a concat of products for the product of a concat with a whole; see
  // Split::canonical. Every rank's part is the same exactly if the canonical
  // trees are (but of size 0, where a leaf keeps its axes). Throws Error when
  // the tree does not fit the mesh.
  Dim canonical(const Mesh&) const;

  // This dimension seen as sub-dimensions of these sizes (outermost first), or
  // nullopt when no trees of them say who holds what.
  // REQUIRES: the sizes multiply to size().
  std::optional<std::vector<Dim>> unflatten(const Mesh&,
                                            const std::vector<int64_t>&) const;
  // The Dim of indices [lo, lo + n): every rank keeps what it had of them.
  // Every tree can say that (never nullopt). REQUIRES: 0 <= lo <= lo + n <=
  // size().
  std::optional<Dim> slice(const Mesh&, int64_t lo, int64_t n) const;

  uint64_t hash() const;
  bool operator==(const Dim&) const = default;

 private:
  Kind kind_ = Kind::kLeaf;
  int64_t size_ = 0;
  Split split_;
  std::vector<Dim> parts_;
};

// How the parts of a partial value are combined. kMean is the tuple (sum,
// count): the local part carries one more, leading dimension of 2, both are
// summed over the axis, and the value is sum / count.
enum class ReduceOp : uint8_t {
  kSum,
  kAvg,
  kMax,
  kMin,
  kProd,
  kAny,
  kAll,
  kMean
};
std::string_view name(ReduceOp);
// Local values per element: 2 for kMean, else 1.
constexpr int components(ReduceOp op) { return op == ReduceOp::kMean ? 2 : 1; }
// May two partials that are neighbours in the list change places?
bool commute(ReduceOp a, ReduceOp b);

struct Partial {
  int axis;
  ReduceOp op;
  bool operator==(const Partial&) const = default;
};

// dims, and the partials from the outermost (combined last) to the innermost.
struct Layout {
  std::vector<Dim> dims;
  std::vector<Partial> partials;

  // Every dimension whole, no partial: the same on every rank.
  static Layout replicated(const Shape&);

  AxisMask split_axes() const;
  AxisMask partial_axes() const;
  std::optional<ReduceOp> partial_on(int axis) const;
  Shape shape() const;
  Region region(const Mesh&, const Coord&) const;

  // Canonical dims; partials over axes of size 1 dropped (unless kMean, whose
  // parts look different), neighbours that commute in mesh order. Throws Error
  // when an axis is used twice.
  Layout canonical(const Mesh&) const;

  // The text that parse_layout reads. Per axis where no dimension is a tree;
  // else the shorter one; per dimension where axes or partials are not in mesh
  // order, which the other form cannot say.
  enum class Form : uint8_t { kShorter, kPerAxis, kPerDim };
  std::string to_string(const Mesh&, Form = Form::kShorter) const;
  uint64_t hash() const;
  bool operator==(const Layout&) const = default;
};

// Reads either form; spaces may stand between words. Every layout l reads back:
// parse_layout(l.to_string(mesh), mesh, l.shape()) == l.canonical(mesh). Throws
// Error that says what to write.
//
// Per mesh axis: one placement for each axis of the mesh. Axes that share a
// dimension, or a part of one, split it in mesh order, the first outermost.
//   S0,R,P          split dimension 0, replicated, partial (a sum)
//   P(max)          sum, avg, max, min, prod, any, all, mean
//   S0/64           in granules of 64     } said once, at the first axis
//   S0@0|3|5|14     at these boundaries   } that splits the dimension
//   S0(3 h=4 d=8:h) dimension 0 is the product of 3, h of 4, and d of 8,
//                   outermost first; this axis splits h
//   S0(:d)          another axis splits d of that tree, which it may repeat
//   S0(q=8|k=4|v=4:q,k,v)
//                   a concatenation; the axis splits its three segments
//   S0(q=(h=4 8)|k=(g=2 8):h/2,g@0|0|2)
//                   trees in a tree; a granule, and boundaries
//
// Per dimension: one entry for each dimension, with its axes in order, the
// first outermost; then the partials, the outermost (combined last) first.
//   [{y,z},{x},{}] P{w:max,v}   or P{w:max} P{v}; v is a sum
//   [{y,z}/64], [{y}@0|3|5|14]  granule, boundaries
//   [(3 4{tp} 8)]               a product; a whole part is its size
//   [(8{tp}/2|4{tp}@(0|1|4)|5)] a concatenation, where boundaries are bracketed
//
// In both, a tree is
//   tree    = part {" " part} | part {"|" part}
//   part    = [name "="] size | [name "="] "(" tree ")" | name
// and in the second a part with a size or a name alone may end in axes. One
// part of a tree may be a name alone: its size follows from the dimension's.
Layout parse_layout(std::string_view text, const Mesh&, const Shape&);

// The layout of the same elements seen as `to`, without moving anything, or
// nullopt when no tree says it. `from` is the layout's shape.
std::optional<Layout> view_layout(const Layout&, const Mesh&, const Shape& to);

}  // namespace dtensor
