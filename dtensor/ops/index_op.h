// Operators that only rename indices decide their layouts without a rule: views
// and windows. Partials of every kind pass.
#pragma once
#include <string>
#include <vector>

#include "dtensor/ops/op.h"
#include "dtensor/placement/error.h"

namespace dtensor {

class IndexOp : public Op {
 public:
  using Op::Op;
  BoundRule bind(const std::vector<Shape>&, const Attrs&) const override {
    fail(name(), "decides its layouts without a rule");
  }
  bool saves_inputs() const override { return false; }

 protected:
  // The input as such an operator can take it: pairs (sum, count), which have a
  // dimension more, are divided first.
  static const Spec* settled(const Spec* s) {
    if (s->components() == 1) return s;
    Layout l = s->layout();
    std::erase_if(l.partials,
                  [](const Partial& p) { return components(p.op) > 1; });
    return s->with(l);
  }
};

}  // namespace dtensor
