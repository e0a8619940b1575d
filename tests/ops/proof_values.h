// SPDX-License-Identifier: Apache-2.0
// Tensors and their parts, as the proof driver makes and reads them: one number
// at a time, by index, without the library's own data movement.
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

// Makes the values of a sample's input: neither symmetric nor of zero mean, all
// different, none at a kink of a piecewise function, and with few significant
// bits, so that part_of() is exact. `coarse`: few values, of which many are
// equal, for functions that compare. Inputs with another `which` have other
// values.
Array make_values(const SampleInput&, int which, bool coarse);

// The part of `whole` that the rank at `c` holds under `spec`. The parts of a
// partial combine to the value v by the partial's operation, and by no other.
// On two ranks, the parts of a sum are 3 v + a and -2 v - a; on more, they are
// 3 v + a, -4 v + b, ..., and what is left of v. Other inputs have other
// numbers. In a maximum, one rank's part is v, and the others are smaller; the
// index, the input and the other axes decide which rank that is. All parts are
// exact in f64. In other types, they would not be, so one part of a sum is v,
// and the others are 0.
Array part_of(const Array& whole, const Spec* spec, const Coord& c, int which);

// Rounds f64 values to values that a float of this type has. Integers do not
// change.
Array rounded(Array, DType);

// The distance of the parts (by mesh rank) from `want` under `spec`: the
// largest difference, divided by the largest value. Infinity if a part does not
// have the shape that the spec says, an index is missing, copies differ, or a
// value is NaN. Integers must be equal. `why` names the worst difference. (For
// halves, the largest value counts as at least 1.)
double distance(const Spec* spec, const std::vector<Array>& parts,
                const Array& want, std::string& why);

// The same for one array.
double distance(const Array& got, const Array& want, std::string& why);

}  // namespace dtensor::proof
