// SPDX-License-Identifier: Apache-2.0
// Checks that the training steps communicate as was predicted.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/comm_table.h"

namespace dtensor::nn {

// Throws Error unless `predicted` and `ran` have the same collectives with the
// same predicted bytes, and each row of `ran` has as many counted as predicted
// bytes. If the bytes of an operator depend on the data (ops/experts.h), its
// predicted bytes are not compared. REQUIRES: the bytes of `ran` were counted.
void check_agreement(std::span<const CommRow> predicted,
                     std::span<const CommRow> ran);

// Throws Error unless this rank took part in as many collectives in step `step`
// as in the first step, and received as many bytes in them. The bytes of an
// operator are left out if they depend on the data.
void check_same_step(int64_t step, int64_t rank,
                     std::span<const CommEvent> first,
                     std::span<const CommEvent> now);

}  // namespace dtensor::nn
