#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/placement/error.h"

namespace dtensor {

void kernels::no_kernel(std::string_view where, DType t) {
  fail(where, "there is no kernel for {} on this device", name(t));
}

}  // namespace dtensor
