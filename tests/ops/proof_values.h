// SPDX-License-Identifier: Apache-2.0
// Whole values and their parts, as the proof driver makes and reads them: by
// index, one number at a time, without the library's own data movement.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/op.h"
#include "dtensor/placement/spec.h"
#include "tests/array.h"

namespace dtensor::proof {

using testing::Array;

// What a sample's input holds: neither symmetric nor of zero mean, no value
// twice, none where a piecewise function has a kink, few significant bits (so
// that the parts below are exact). `coarse`: few values, of which many are
// equal, for functions that compare. `which` tells inputs apart.
Array make_values(const SampleInput&, int which, bool coarse);

// The part of `whole` that the rank at `c` holds under `spec`. A partial's
// parts combine to the value, and to nothing else: of a sum they are 3 v + a
// and -2 v - a, or 3 v + a, -4 v + b and the rest, with other numbers in every
// input; of a maximum one part is the value and the others are smaller, which
// one depends on the index, the input, and the other axes. All are exact; where
// a shorter float than f64 could not be, one part of a sum is the value too,
// and the others are 0.
Array part_of(const Array& whole, const Spec* spec, const Coord& c, int which);

// f64 values that a float of this type has; integers as they are.
Array rounded(Array, DType);

// How far the parts (by mesh rank) are from being `want` under `spec`: the
// largest difference over the largest value, infinity when a part has not the
// shape that the spec says, an index is missing, copies differ, or a value is
// no number. Integers must be equal. `why` says what was worst. (Of halves the
// largest value counts as 1 when it is less.)
double distance(const Spec* spec, const std::vector<Array>& parts,
                const Array& want, std::string& why);

// As distance(), of one array.
double distance(const Array& got, const Array& want, std::string& why);

}  // namespace dtensor::proof
