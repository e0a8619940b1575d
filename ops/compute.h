// SPDX-License-Identifier: Apache-2.0
// One local computation of an operator: its operands, and the small collectives
// that compute() may call.
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
  // The kernels of this rank's device. (Copies and fills are functions of the
  // device itself.) They do nothing in a dry run.
  const Kernels& k;
  Stream stream;
  // Runs a kernel on this rank's device.
  template <class Kernel>
  void run(const Kernel& kernel) const {
    k.run(stream, kernel);
  }
  Device& device() const { return *context.device; }

  // This rank's parts of the inputs, in the decided layouts and with any
  // strides. The caller owns the tensors. The list holds pointers to them, so
  // that a call need not count references.
  class Parts {
   public:
    void push_back(const Tensor& part) { all_.push_back(&part); }
    void push_back(Tensor&&) = delete;
    size_t size() const { return all_.size(); }
    const Tensor& operator[](size_t i) const { return *all_[i]; }

   private:
    InlineVec<const Tensor*, kMostInputs> all_;
  };
  Parts in;
  // This rank's parts of the outputs: allocated and contiguous, unless
  // compute() sets them (OpFacts::allocates).
  InlineVec<Tensor, kMostOutputs> out;

  // Sets `out` to new tensors. They are undefined if compute() sets them
  // (OpFacts::allocates), or on a rank outside of the mesh.
  void allocate_outputs();

  const Mesh& mesh() const { return decision.in[0]->mesh(); }
  const Coord& coord() const { return context.coordinate(mesh()); }
  // Scratch memory, freed with the returned tensor.
  Tensor scratch(const Shape& shape, DType t) {
    return Tensor::empty(shape, t);
  }
  // The mesh axes that split a factor, and this rank's ranges of the factor. A
  // factor is a letter of the operator's rule (placement/rule.h).
  AxisMask axes_of(char factor) const;
  IntervalList ranges_of(char factor) const;
  // Whether this rank's coordinate is 0 on all axes that split the factor. True
  // if no axis splits it.
  bool first_of(char factor) const;
  // The size of a factor over all ranks.
  int64_t global_size(char factor) const;
  // The number of rows (see reduce_rows()) of the rank at a coordinate.
  int64_t rows_at(char factor, const Coord&) const;
  // The place of the rank at a coordinate among the ranks that split the
  // factor, if they are sorted by their ranges (those without a range last).
  // REQUIRES: each of these ranks has at most one range, as with the mark "^"
  // in the rule (placement/rule.h).
  int64_t place_of(char factor, const Coord&) const;

  // Collectives inside the operator. Every rank of the mesh calls the same ones
  // in the same order in every call of compute().

  // The first call under a decision prepares reduce_rows(), fetch() and
  // collect_sum(), from facts that all ranks know; later calls reuse the
  // preparation. They are recorded and counted like any other collective. If
  // ExplicitOnly or CommBudget does not allow them, every rank throws Error.

  // Combines `per_row` numbers per row over the ranks that split `factor`, in
  // place. Does nothing if no axis splits it. The first input has one row for
  // each combination of indices of the other factors. `t` is contiguous and has
  // `per_row` numbers for each row of this rank.
  void reduce_rows(const Tensor& t, char factor, ReduceOp op,
                   int64_t per_row = 1);
  // Moves overlapping boxes of a tensor between the ranks that differ only in
  // `axes`. In global indices, the rank at coordinate c has the region holds(c)
  // and needs the region wants(c). `part` is this rank's data; the result is
  // the region that this rank needs. depend[d], if given, has the axes on which
  // the indices of dimension d in both regions depend. Only the first call
  // under a decision evaluates holds() and wants(): for all ranks of the mesh
  // or, with `depend`, for one of all ranks with equal coordinates on its axes.
  using RegionOf = std::function<Region(const Coord&)>;
  using AxesOfDims = std::span<const AxisMask>;
  Tensor fetch(const Tensor& part, AxisMask axes, const RegionOf& holds,
               const RegionOf& wants, AxesOfDims depend = {});
  // The reverse of fetch(): returns the sum of the ranks' data over the region
  // that this rank wants. With holds and wants exchanged, it is the gradient of
  // fetch().
  Tensor collect_sum(const Tensor& part, AxisMask axes, const RegionOf& holds,
                     const RegionOf& wants, AxesOfDims depend = {});

  // gather_numbers() and exchange() are for exchanges whose sizes depend on
  // data. They are prepared anew at every call, and do not call allow().
  //
  // Returns the numbers of all members of the group of `axes`, in the order of
  // Mesh::group(). Each member passes equally many. Their bytes do not count.
  // Not allowed in a dry run.
  std::vector<int64_t> gather_numbers(AxisMask axes,
                                      std::span<const int64_t> mine);
  // Like fetch(), but gets the regions that each member of the group holds and
  // wants, in the order of Mesh::group(). All members pass the same regions.
  // Other groups do not know them, so the operator must call allow() first,
  // with a kind and a number of bytes that are equal on all ranks of the mesh.
  Tensor exchange(const Tensor& part, AxisMask axes,
                  std::span<const Region> holds, std::span<const Region> wants);
  // Takes the bytes from the budget (CommBudget). Throws Error if they exceed
  // the budget, or if only explicit communication is allowed (ExplicitOnly).
  void allow(StepKind, int64_t bytes);

 private:
  InnerExchange* next_exchange();
  // Throws Error in a reproducible run, in which operators do not add the
  // values of several ranks.
  void check_order() const;
  Tensor move_boxes(const Tensor& part, InnerExchange&, const char* what);

  size_t exchanges_ = 0;  // collectives of this call so far
};

}  // namespace dtensor
