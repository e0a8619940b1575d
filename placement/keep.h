// SPDX-License-Identifier: Apache-2.0
// How operators may move a tensor that is not where they need it.
#pragma once
#include <cstdint>

namespace dtensor {

// How an operator may move an input to the layout that it computes on. A view
// of several tensors (their concatenation) gets the smallest of their values,
// so the order of these values matters.
enum class Keep : uint8_t {
  kMove,         // it may send the input
  kStay,         // it may only slice the input: a parameter
  kGatherOnUse,  // it may gather or slice the input: a sharded parameter (FSDP)
};

}  // namespace dtensor
