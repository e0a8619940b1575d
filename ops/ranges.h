// SPDX-License-Identifier: Apache-2.0
// Spaced numbers, powers and lists of indices, under torch's names. Every rank
// of the mesh calls these functions.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// linspace() between two tensors without dimensions, on their mesh. The program
// does not wait for their values. For an integer type, the ends are first
// rounded towards 0.
DistTensor linspace(const DistTensor& start, const DistTensor& end, int64_t n,
                    const Placements& = {}, DType = DType::kF32);
// base to the power of each number of linspace(). As in torch, the ends are not
// rounded if n is 1.
DistTensor logspace(double start, double end, int64_t n, const Mesh&,
                    double base = 10, const Placements& = {},
                    DType = DType::kF32);
DistTensor logspace(const DistTensor& start, const DistTensor& end, int64_t n,
                    double base = 10, const Placements& = {},
                    DType = DType::kF32);

// The powers 0 to n - 1 of each element of x [..., m], as [..., m, n]; n is m
// if it is not given. Integers give i64. A scalar counts as a vector. Throws
// Error if n is below 2.
DistTensor vander(const DistTensor& x, std::optional<int64_t> n = {});

// The row numbers, and below them the column numbers, of the elements that
// tril() or triu() keeps of a matrix, row by row: [2, count] in i32 or i64.
// Every rank makes the whole list, and keeps its part.
DistTensor tril_indices(int64_t rows, int64_t columns, int64_t offset,
                        const Mesh&, const Placements& = {},
                        DType = DType::kI64);
DistTensor triu_indices(int64_t rows, int64_t columns, int64_t offset,
                        const Mesh&, const Placements& = {},
                        DType = DType::kI64);
// Turns indices of the elements of a flat tensor into indices of each dimension
// of a tensor of this shape, as i64 tensors.
std::vector<DistTensor> unravel_index(const DistTensor& indices, const Shape&);

}  // namespace dtensor
