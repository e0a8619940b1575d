// SPDX-License-Identifier: Apache-2.0
// Checks that every training step sends what was predicted.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/comm_table.h"

namespace dtensor::nn {

// Throws Error unless `predicted` and `ran` have the same collectives with the
// same bytes, and the counted bytes of `ran` equal its predicted ones. The
// events of `ran` must have been counted. If the bytes of an operator depend on
// the data (ops/experts.h), its predicted bytes are not compared.
void check_agreement(std::span<const CommRow> predicted,
                     std::span<const CommRow> ran);

// Throws Error unless this rank received as much in step `step` as in the first
// step, not counting operators whose bytes depend on the data.
void check_same_step(int64_t step, int64_t rank,
                     std::span<const CommEvent> first,
                     std::span<const CommEvent> now);

}  // namespace dtensor::nn
