// SPDX-License-Identifier: Apache-2.0
// Operators that only rename indices (views and windows); no rule describes
// their layouts. Partials of every kind pass through. An output made from a
// parameter may be moved only as the parameter itself (OpFacts::renames).
#pragma once
#include <string>
#include <utility>

#include "dtensor/ops/op.h"

namespace dtensor {

class IndexOp : public Op {
 public:
  explicit IndexOp(std::string name, bool allocates = true)
      : Op(std::move(name), {.saved_inputs = 0,
                             .has_rule = false,
                             .allocates = allocates,
                             .renames = true}) {}

 protected:
  // The spec in which the operator can take this input. Partials that are
  // (sum, count) pairs have an additional dimension, so they are divided first.
  static const Spec* settled(const Spec* s) {
    if (s->components() == 1) return s;
    Layout l = s->layout();
    std::erase_if(l.partials,
                  [](const Partial& p) { return components(p.op) > 1; });
    return s->with(l);
  }
};

}  // namespace dtensor
