// SPDX-License-Identifier: Apache-2.0
// Random numbers beyond randn(), uniform(), randint() and dropout() (create.h),
// under torch's names. The value of an element depends only on its global index
// in the tensor, the arguments and the generator, so it is the same on every
// mesh and in every layout. Only randperm() and orthogonal() send anything, and
// normal() if its mean and deviation have different layouts or shapes. Every
// rank of the mesh calls these functions.
#pragma once
#include <cstdint>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/create.h"

namespace dtensor {

// uniform() in [0, 1).
DistTensor rand(const Shape&, const Mesh&, const Placements& = {},
                DType = DType::kF32, Generator = kGlobalGenerator);
// Numbers of x's shape and type, split as x is, and replicated over mesh axes
// over which x is partial.
DistTensor rand_like(const DistTensor& x, Generator = kGlobalGenerator);
DistTensor randn_like(const DistTensor& x, Generator = kGlobalGenerator);
DistTensor randint_like(const DistTensor& x, int64_t lo, int64_t hi,
                        Generator = kGlobalGenerator);

// The numbers 0 to n-1 in random order, as i32 or i64. They are the order of n
// random keys of 54 bits, which sort() computes.
DistTensor randperm(int64_t n, const Mesh&, const Placements& = {},
                    DType = DType::kI64, Generator = kGlobalGenerator);

// 1 with the probability that each element of p states, else 0, in p's type.
// The probability is exact to 2^-24, for f64 to 2^-53.
DistTensor bernoulli(const DistTensor& p, Generator = kGlobalGenerator);
// Normal numbers with the mean and the standard deviation of each element. The
// two broadcast. Both are differentiable.
DistTensor normal(const DistTensor& mean, const DistTensor& std,
                  Generator = kGlobalGenerator);
DistTensor normal(const DistTensor& mean, double std = 1,
                  Generator = kGlobalGenerator);
DistTensor normal(double mean, const DistTensor& std,
                  Generator = kGlobalGenerator);

// The types of the functions below are float types.

// The exponential distribution, with density rate * exp(-rate * x).
DistTensor exponential(const Shape&, const Mesh&, const Placements& = {},
                       DType = DType::kF32, Generator = kGlobalGenerator,
                       double rate = 1);
// The normal distribution, restricted to [lo, hi], by the inverse of its
// distribution function, as in torch. Throws Error unless lo < hi.
DistTensor trunc_normal(const Shape&, const Mesh&, const Placements& = {},
                        DType = DType::kF32, Generator = kGlobalGenerator,
                        double mean = 0, double std = 1, double lo = -2,
                        double hi = 2);

// A matrix [rows, ...] whose rows, or columns if these are fewer, are
// orthonormal, times `gain`; dimensions behind the first count as one. It is
// the first factor of the QR decomposition of a normal matrix, uniform among
// such matrices (Mezzadri, arXiv math-ph/0609050). Every rank computes it
// whole. Throws Error for half types and vectors.
DistTensor orthogonal(const Shape&, const Mesh&, const Placements& = {},
                      DType = DType::kF32, Generator = kGlobalGenerator,
                      double gain = 1);

// ---- Dropout ----

// dropout() of whole channels: x is [n, channels, ...] with one, two or three
// dimensions behind, or without n.
DistTensor dropout1d(const DistTensor& x, double p,
                     Generator = kGlobalGenerator);
DistTensor dropout2d(const DistTensor& x, double p,
                     Generator = kGlobalGenerator);
DistTensor dropout3d(const DistTensor& x, double p,
                     Generator = kGlobalGenerator);
// Keeps the mean 0 and the variance 1 of inputs that have them (Klambauer et
// al., arXiv 1706.02515): an element becomes selu's lower bound with
// probability p, and then all are scaled and shifted.
DistTensor alpha_dropout(const DistTensor& x, double p,
                         Generator = kGlobalGenerator);

}  // namespace dtensor
