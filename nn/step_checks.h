// Checks that every training step sends what was predicted.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/program/comm_table.h"

namespace dtensor::nn {

// Throws Error unless both have the same collectives with the same bytes, and
// the counted bytes equal the predicted ones. The events behind `ran` must have
// been counted. Predicted bytes are not compared for operators whose bytes
// depend on the data (ops/experts.h).
void check_agreement(std::span<const CommRow> predicted,
                     std::span<const CommRow> ran);

// Throws Error unless this rank received as much in step `step` as in the first
// step, apart from operators whose bytes depend on the data.
void check_same_step(int64_t step, int64_t rank,
                     std::span<const CommEvent> first,
                     std::span<const CommEvent> now);

}  // namespace dtensor::nn
