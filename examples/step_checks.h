// What one training step sends: that it is what was predicted, on every step.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/comm_table.h"

namespace dtensor::examples {

// Throws Error unless both are the same collectives with the same bytes, and
// the bytes counted are the bytes predicted. `ran` has counted bytes. Where
// data decide them (ops/experts.h), a dry run's are others than those of a
// step.
void check_agreement(std::span<const CommRow> predicted,
                     std::span<const CommRow> ran);

// Throws Error unless this rank received in step `step` what it received in
// step 0, but for what data decide.
void check_same_step(int64_t step, int64_t rank,
                     std::span<const CommEvent> first,
                     std::span<const CommEvent> now);

}  // namespace dtensor::examples
