// SPDX-License-Identifier: Apache-2.0
// Distances of vectors and sets of vectors, and cross products. Every rank of
// the mesh calls these functions.
#pragma once
#include <optional>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// The p-norm of a - b + eps along the last dimension, after broadcasting.
DistTensor pairwise_distance(const DistTensor& a, const DistTensor& b,
                             double p = 2, double eps = 1e-6,
                             bool keepdim = false);
// The p-norm of a - b over all elements, after broadcasting.
DistTensor dist(const DistTensor& a, const DistTensor& b, double p = 2);
// The p-norm of a[..., i] - b[..., j] for each pair of vectors: [..., m, k] and
// [..., n, k] give [..., m, n]. All differences are computed at once: m * n * k
// numbers. For p = 2, `by_matmul` computes |a|^2 + |b|^2 - 2 a . b instead,
// which takes less memory and is less exact; if not given, this is done if m or
// n is above 25, as in torch.
DistTensor cdist(const DistTensor& a, const DistTensor& b, double p = 2,
                 std::optional<bool> by_matmul = {});
// cdist() of the vectors x [n, k] with each other, for each pair i < j: the
// vector of (0, 1), (0, 2), ..., (n - 2, n - 1).
DistTensor pdist(const DistTensor& x, double p = 2);

// Scales each slice x[i] along `dim` whose p-norm exceeds maxnorm so that its
// norm is maxnorm. Throws Error if x has less than two dimensions.
DistTensor renorm(const DistTensor& x, double p, int dim, double maxnorm);

// The cross products of vectors along a dimension of size 3, by default the
// first such dimension of a, as in torch.cross. (The default of
// torch.linalg.cross is -1.) a and b have as many dimensions; the other ones
// broadcast.
DistTensor cross(const DistTensor& a, const DistTensor& b,
                 std::optional<int> dim = {});

}  // namespace dtensor
