// SPDX-License-Identifier: Apache-2.0
// Differences of neighbouring elements, derivatives and integrals along a
// dimension, under torch's names. Every rank of the mesh calls these functions.
// They throw Error if a dimension does not exist.
//
// If the dimension is split, a rank gets from others only the elements next to
// its own.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Replaces the elements along a dimension by the differences x[i + 1] - x[i],
// n times. For bools, the difference is "not equal". `prepend` and `append`
// (may be undefined) are first concatenated with x. If n is 0, returns x alone.
DistTensor diff(const DistTensor& x, int64_t n = 1, int dim = -1,
                const DistTensor& prepend = {}, const DistTensor& append = {});

// Estimates the derivative of x along each of these dimensions (all if empty).
// `spacing` is the distance of neighbouring elements, or has the distance along
// each dimension. Inside, the estimate is exact for polynomials up to degree 2,
// and at both ends for those up to degree `edge_order`, 1 or 2. Integers are
// converted to f32. Throws Error for bools, or if a dimension has fewer than
// edge_order + 1 elements.
std::vector<DistTensor> gradient(const DistTensor& x, double spacing = 1,
                                 const std::vector<int>& dims = {},
                                 int edge_order = 1);
std::vector<DistTensor> gradient(const DistTensor& x,
                                 const std::vector<double>& spacing,
                                 const std::vector<int>& dims = {},
                                 int edge_order = 1);
// As above. coordinates[i] is a vector with the position of each element along
// dims[i].
std::vector<DistTensor> gradient(const DistTensor& x, TensorList coordinates,
                                 const std::vector<int>& dims = {},
                                 int edge_order = 1);

// The integral of y along a dimension, by the trapezoidal rule: the sum of
// (y[i] + y[i + 1]) / 2 times the distance, which is dx, or x[i + 1] - x[i]. x
// is a vector, or broadcasts to y. Integers give f32. Throws Error for bools,
// or if x has more dimensions than y.
DistTensor trapezoid(const DistTensor& y, double dx = 1, int dim = -1);
DistTensor trapezoid(const DistTensor& y, const DistTensor& x, int dim = -1);
// The running sums of the same terms. Their number is one less than that of the
// elements.
DistTensor cumulative_trapezoid(const DistTensor& y, double dx = 1,
                                int dim = -1);
DistTensor cumulative_trapezoid(const DistTensor& y, const DistTensor& x,
                                int dim = -1);

}  // namespace dtensor
