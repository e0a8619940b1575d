// Operators that only rename indices, views and windows: no rule says their
// layouts. Partials of every kind pass, and what is made of a parameter is one
// as far as moving it goes.
#pragma once
#include <string>
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

class IndexOp : public Op {
 public:
  using Op::Op;
  bool has_rule() const override { return false; }
  bool renames() const override { return true; }
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
