// A rule on tensors of given sizes, and the assignments that it can take.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"
#include "dtensor/placement/rule.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

// Which Dim each factor gets, and which partials pass through.
struct Assignment {
  struct Pass {
    int axis;
    int note;  // index into Rule::notes()
    ReduceOp op;
    bool operator==(const Pass&) const = default;
  };
  std::vector<Dim> dims;     // by factor, of its size
  std::vector<Pass> passes;  // outermost first
  bool operator==(const Assignment&) const = default;
};

// A rule with sizes: what remains is to choose an assignment.
class BoundRule {
 public:
  // Throws Error when a factor has two sizes, a term another number of
  // dimensions, or a product of sizes overflows. Sizes of factors that only
  // outputs have come from `extra` (letter, size).
  BoundRule(const Rule& rule, const std::vector<Shape>& shapes,
            std::string_view op,
            const std::vector<std::pair<char, int64_t>>& extra = {});

  const Rule& rule() const { return rule_; }
  int64_t size(int factor) const { return sizes_[static_cast<size_t>(factor)]; }
  Shape output_shape(int i) const {
    return shape_of(rule_.outputs()[size_t(i)]);
  }
  // The product of the factors' sizes (of a linked pair the first's alone): a
  // contraction has 2x as many flops.
  double points() const;

  // The nearest assignment that the operator can compute: where an output lacks
  // a factor (whose parts are then combined), or "~" combines its parts, every
  // index of it in one part; where it has "^", one range for every rank. A rule
  // that combines parts of one factor has every index of the others in one part
  // too, unless all its copies lie alike: they would round differently.
  Assignment legal(Assignment, const Mesh&) const;
  Dim legal(int factor, Dim, const Mesh&) const;  // of one factor
  // The layouts of inputs and outputs under an assignment that is legal.
  Layout input_layout(const Assignment&, const Mesh&, int i) const;
  Layout output_layout(const Assignment&, const Mesh&, int i) const;
  // The largest share of points() that a rank computes, and what one factor has
  // to do with it.
  double largest_share(const Assignment&, const Mesh&) const;
  double share(int factor, const Dim&, const Mesh&) const;

  // The factors that one mesh axis may split at once: one each, and linked
  // pairs.
  std::vector<FactorList> choices() const;
  // "m: dp; n: tp; P over pp in 0", "R" for none.
  std::string to_string(const Assignment&, const Mesh&) const;

 private:
  Shape shape_of(const Rule::Term&) const;
  Layout layout_of(const Rule::Term&, const Assignment&, const Mesh&) const;
  // Are the parts of this factor combined? Of any one?
  bool combines(size_t factor) const;
  bool combines() const;
  Rule rule_;
  std::vector<int64_t> sizes_;
};

}  // namespace dtensor
