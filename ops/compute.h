// One local computation of an operator: its operands, and the small collectives
// that it may have inside.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "dtensor/ops/decision.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/placement/inline_vec.h"
#include "dtensor/tensor.h"

namespace dtensor {

class Op;

class Compute {
 public:
  static constexpr size_t kMostInputs = 16, kMostOutputs = 8;

  Compute(const Op& o, const Attrs& a, const Decision& d, RankContext& c)
      : op(o),
        attrs(a),
        decision(d),
        context(c),
        k(kernels_of(*c.device)),
        stream(c.stream) {}

  const Op& op;
  const Attrs& attrs;
  const Decision& decision;
  RankContext& context;
  // All that touches data is given to these; in a dry run they do nothing.
  const Kernels& k;
  Stream stream;
  Device& device() const { return *context.device; }

  InlineVec<Tensor, kMostInputs> in =
      {};  // in the decided layouts, any strides
  // Allocated, contiguous; or to be set (see Op::allocates).
  InlineVec<Tensor, kMostOutputs> out;
  // The outputs have values, to be added to (see Op::in_boxes).
  bool accumulate = false;

  // `out` as an operator that allocates (Op::allocates) finds it.
  void allocate_outputs();

  const Mesh& mesh() const { return decision.in[0]->mesh(); }
  const Coord& coord() const { return context.coordinate(mesh()); }
  // Scratch that lives as long as the returned tensor.
  Tensor scratch(const Shape& shape, DType t) {
    return Tensor::empty(shape, t);
  }
  // The axes that split a factor, and the ranges of it that this rank has.
  AxisMask axes_of(char factor) const;
  IntervalList ranges_of(char factor) const;
  int64_t global_size(char factor) const;
  // Of the rank at a coordinate: how many rows it has (see reduce_rows), and
  // the place of its range of the factor among those of the ranks that split
  // it, from 0. REQUIRES of the latter: each has one range ("^").
  int64_t rows_at(char factor, const Coord&) const;
  int64_t place_of(char factor, const Coord&) const;

  // Collectives inside the operator. Each is made at the first call that a
  // decision serves, from what all ranks know alike, and kept with it; every
  // call of compute() makes the same ones in the same order. Recorded, and
  // counted, as any other; refused on all ranks or none.

  // Combines a few numbers per row over the ranks that split `factor`, in
  // place; nothing when it is whole. A row is what the first input has of the
  // factor at one index of all others; `t` is contiguous and has `per_row`
  // numbers for each that is here.
  void reduce_rows(const Tensor& t, char factor, ReduceOp op,
                   int64_t per_row = 1);
  // Overlapping boxes. holds(c) and wants(c) are the global indices that the
  // rank at coordinate c has of a tensor, and needs; `part` is what this rank
  // has. fetch() returns what it needs, from the ranks that differ in `axes`.
  // The functions are asked at a decision's first call alone.
  using RegionOf = std::function<Region(const Coord&)>;
  Tensor fetch(const Tensor& part, AxisMask axes, const RegionOf& holds,
               const RegionOf& wants);
  // The opposite, accumulating: the sum of what the ranks hold of the indices
  // that this rank wants. The gradient of fetch() with the two exchanged.
  Tensor collect_sum(const Tensor& part, AxisMask axes, const RegionOf& holds,
                     const RegionOf& wants);

  // For exchanges whose sizes data decide, made anew at every call.
  // What each member of the group of `axes` says, as many numbers each, in the
  // order of Mesh::group(). Not for a dry run.
  std::vector<int64_t> gather_numbers(AxisMask axes,
                                      std::span<const int64_t> mine);
  // As fetch(), of what each member of that group holds and wants; all members
  // know all of it. Other groups do not, so that it is the operator that asks,
  // ahead of either, by what all ranks know: allow().
  Tensor exchange(const Tensor& part, AxisMask axes,
                  std::span<const Region> holds, std::span<const Region> wants);
  // Takes them from the budget of bytes (dist_tensor.h). Throws Error when
  // there is none left, or collectives have to be written out.
  void allow(StepKind, int64_t bytes);

 private:
  InnerExchange* next_exchange();
  Tensor move_boxes(const Tensor& part, InnerExchange&);

  size_t exchanges_ = 0;  // made by this call
};

}  // namespace dtensor
