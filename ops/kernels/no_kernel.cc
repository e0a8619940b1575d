// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/kernel.h"
#include "dtensor/ops/kernels/optim.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/rotary.h"
#include "dtensor/placement/error.h"

namespace dtensor {

void kernels::no_kernel(std::string_view where, DType t) {
  fail(where, "does not take {} on this device; cast to another type", name(t));
}

void kernels::check_gradient_type(std::string_view where, DType param,
                                  DType grad) {
  DT_CHECK(grad == param || grad == stat_of(param), where,
           "does not take a gradient of {} with a parameter of {}; cast the "
           "gradient to {}",
           name(grad), name(param), name(param));
}

void kernels::check_rotary(const Rotary& a) {
  DT_CHECK(a.of.dims % 2 == 0 && a.of.dims <= a.d, "rotary",
           "dims is {}, but must be even and at most d, which is {}", a.of.dims,
           a.d);
}

}  // namespace dtensor
