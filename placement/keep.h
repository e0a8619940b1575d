// SPDX-License-Identifier: Apache-2.0
// Whether operators may move a tensor that is not where they need it.
#pragma once
#include <cstdint>

namespace dtensor {

// Whether an operator may move an input to where it computes. The order
// matters: a view of several tensors (their concatenation) gets the smallest of
// their values.
enum class Keep : uint8_t {
  kMove,         // it may
  kStay,         // it may only slice it: a parameter
  kGatherOnUse,  // it may gather and slice it: a sharded parameter (FSDP)
};

}  // namespace dtensor
