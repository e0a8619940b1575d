// SPDX-License-Identifier: Apache-2.0
// A rule applied to tensors of given sizes, and the assignments that it allows.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"
#include "dtensor/placement/rule.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

// The Dim of each factor, and the partials that pass from inputs to outputs.
struct Assignment {
  struct Pass {
    int axis;
    int note;  // index into Rule::notes()
    ReduceOp op;
    bool operator==(const Pass&) const = default;
  };
  std::vector<Dim> dims;     // by factor
  std::vector<Pass> passes;  // outermost first
  bool operator==(const Assignment&) const = default;
};

// A rule whose factors have sizes. Only the assignment is still to be chosen.
class BoundRule {
 public:
  // `extra` lists (letter, size) for factors whose sizes do not follow from the
  // input shapes. Throws Error if the shapes do not fit the rule, `extra` or
  // each other, if a factor has no size, or if a product of sizes overflows.
  BoundRule(const Rule& rule, const std::vector<Shape>& shapes,
            std::string_view op,
            const std::vector<std::pair<char, int64_t>>& extra = {});

  // An operator with the linked factors `near` and `far` computes a range of
  // `near` from the range met() of `far`. A rank fetches the indices of `far`
  // that it lacks, its halo, of each input that has `far` as a dimension.
  struct Window {
    int near, far;
    std::function<Interval(Interval)> met;  // of a range that is not empty
  };
  void add_window(char near, char far, std::function<Interval(Interval)> met);
  const std::vector<Window>& windows() const { return windows_; }

  const Rule& rule() const { return rule_; }
  int64_t size(int factor) const { return sizes_[static_cast<size_t>(factor)]; }
  Shape output_shape(int i) const {
    return shape_of(rule_.outputs()[size_t(i)]);
  }
  // The product of the factors' sizes; a linked pair counts once, with the size
  // of its first factor. A contraction takes 2 flops for each point.
  double points() const;

  // From now on, the factor is pinned ("!").
  void pin(int factor) { rule_.pin(factor); }
  // From now on, legal() cuts this factor at multiples of `leaf` only.
  void sum_in_leaves(int factor, int64_t leaf) {
    leaf_factor_ = factor;
    leaf_ = leaf;
  }
  // The nearest assignment that the operator can compute. Only these Dims
  // change: the factor of sum_in_leaves(), if some rank's part begins or ends
  // inside a leaf, and trees:
  // - a factor marked "^" gets one range for every rank;
  // - a factor whose parts are combined, because an output lacks it or because
  //   of "~", gets every index in exactly one part;
  // - if the rule combines the parts of any factor, every other factor also
  //   gets every index in exactly one part, unless its copies lie alike (see
  //   copies_lie_alike()): copies that do not would get different bits.
  Assignment legal(Assignment, const Mesh&) const;
  Dim legal(int factor, Dim, const Mesh&) const;  // for one factor
  // The layouts of input and output i. REQUIRES: a legal assignment.
  Layout input_layout(const Assignment&, const Mesh&, int i) const;
  Layout output_layout(const Assignment&, const Mesh&, int i) const;
  // The largest share of points() that a rank computes: the product of the
  // factors' shares. The share of one factor is the size of its largest part
  // over its size; it is 1 for the second factor of a linked pair.
  double largest_share(const Assignment&, const Mesh&) const;
  double share(int factor, const Dim&, const Mesh&) const;

  // The sets of factors that one mesh axis may split: linked pairs, and single
  // factors that are neither pinned nor the second of a linked pair.
  std::vector<FactorList> choices() const;
  // "m: dp; n: tp; P(sum) over pp in 0"; "R" when nothing is split or partial.
  std::string to_string(const Assignment&, const Mesh&) const;

 private:
  Shape shape_of(const Rule::Term&) const;
  Layout layout_of(const Rule::Term&, const Assignment&, const Mesh&) const;
  // Whether the parts of this factor, or of any factor, are combined.
  bool combines(size_t factor) const;
  bool combines() const;
  // Whether some rank's part begins or ends inside a leaf.
  bool cuts_leaves(const Dim&, const Mesh&) const;
  Rule rule_;
  std::vector<int64_t> sizes_;
  std::vector<Window> windows_;
  int leaf_factor_ = -1;
  int64_t leaf_ = 1;
};

}  // namespace dtensor
