// SPDX-License-Identifier: Apache-2.0
// Selects the calls whose outputs checkpoint() keeps (ops/grad.h).
#pragma once
#include <functional>
#include <span>
#include <string_view>

#include "dtensor/dist_tensor.h"

namespace dtensor {

struct OpWork;

// A call of an operator in a function under checkpoint().
struct CheckpointedCall {
  std::string_view op;  // the operator's name
  const OpWork& work;   // its work; see placement/choose.h
  std::span<const DistTensor> inputs;
};
// Selects calls, like the policy of torch's selective checkpointing.
// checkpoint() asks it after each call of its function's first run, in which
// tensors made inside require no gradient.
using SavedCalls = std::function<bool(const CheckpointedCall&)>;

}  // namespace dtensor
