// SPDX-License-Identifier: Apache-2.0
// The layouts in which an operator needs its inputs and leaves its outputs
// under an assignment, and the prices of its local work and of its own
// messages. Private to choose.cc.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "dtensor/placement/bound_rule.h"
#include "dtensor/placement/choose.h"
#include "dtensor/placement/cost.h"
#include "dtensor/placement/spec.h"

namespace dtensor {

// A tensor's spec under an assignment, and the move whose price counts. An
// input moves from its present spec to the one that the operator needs. An
// output moves from the spec in which the operator leaves it to the one after
// the communication that needed_output() describes.
struct Needed {
  SpecRef spec, from, to;
};

Needed needed_input(const BoundRule&, std::span<const OpInput>,
                    const Assignment& legal, size_t i);

// The move is the communication that the operator leaves to later operators:
// combining partials, and gathering the output along axes that split the same
// factors in no input (and along the axes inside of these).
Needed needed_output(const BoundRule&, std::span<const OpInput>,
                     const Assignment& legal, size_t o, DType);

// The price of the local work of a rank that has this share of the points and
// reads and writes `bytes`.
int64_t work_ps(const BoundRule&, const OpWork&, double share, double bytes,
                const CostTable&);

// The price of the messages that compute() itself sends: OpWork::exchange, and
// the halos of BoundRule::windows(), each as many bytes as the rank receives
// that receives the most.
int64_t exchange_ps(const BoundRule&, std::span<const OpInput>, const OpWork&,
                    const Assignment& legal, const CostTable&);

}  // namespace dtensor
