// SPDX-License-Identifier: Apache-2.0
// Operators that only rename indices (views, windows and cat()); no rule
// describes their layouts. Partials of every kind but the mean pass through
// (settled()). If the input is a parameter, the limits on how operators may
// move it hold for the output, too (OpFacts::renames).
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
  // The spec in which the operator can take this input. A partial mean holds a
  // sum and a count, in an additional dimension, so it is combined first.
  static const Spec* settled(const Spec* s) {
    if (s->components() == 1) return s;
    Layout l = s->layout();
    std::erase_if(l.partials,
                  [](const Partial& p) { return components(p.op) > 1; });
    return s->with(l);
  }
};

}  // namespace dtensor
