// What operators may do with a tensor that lies elsewhere than they need it.
#pragma once
#include <cstdint>

namespace dtensor {

// May an operator move an input to where it computes? In this order: views of
// several tensors (their concatenation) are kept as the first of theirs is.
enum class Keep : uint8_t {
  kMove,         // yes
  kStay,         // no, it may only slice it: a parameter
  kGatherOnUse,  // it may gather it, and slice: a parameter in parts (FSDP)
};

}  // namespace dtensor
