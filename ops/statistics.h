// SPDX-License-Identifier: Apache-2.0
// Products, sums that skip NaNs, covariances, and reductions under a mask.
// Every rank of the mesh calls these functions.
#pragma once
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// The product over the dimensions (all if empty), which are removed unless
// keepdim. Products of integers and bools are i64. An empty product is 1. If a
// dimension is split, the result is partial by a product.
DistTensor prod(const DistTensor&, const std::vector<int>& dims = {},
                bool keepdim = false);

// sum() and mean() of the elements that are not NaN. If all are NaN, the sum
// is 0 and the mean is NaN. nanmean() throws Error unless x is a float type.
DistTensor nansum(const DistTensor&, const std::vector<int>& dims = {},
                  bool keepdim = false);
DistTensor nanmean(const DistTensor&, const std::vector<int>& dims = {},
                   bool keepdim = false);

// The covariances of the rows of x [variables, observations], as [variables,
// variables]; a vector is one variable, and gives a scalar. Observation i
// counts fweights[i] times (integers) and has the weight aweights[i]; either
// may be undefined. With the sum w of the weights, the divisor is w -
// correction or, with aweights, w - correction * sum(fweights aweights^2) / w,
// and at least 0. Other types than floats become f32. Throws Error if shapes or
// types do not fit.
DistTensor cov(const DistTensor& x, double correction = 1,
               const DistTensor& fweights = {},
               const DistTensor& aweights = {});
// The covariances divided by both standard deviations, and kept in [-1, 1].
DistTensor corrcoef(const DistTensor& x);

// ---- Under a mask: torch.masked ----
//
// The functions of these names without "masked_", over the elements for which
// the mask (bool) is true; it broadcasts to x, and an undefined mask is true
// everywhere. The sum of no element is 0, the mean and the variance NaN, and
// the maximum is -inf, or the lowest integer. masked_softmax() gives 0 where
// the mask is false, and NaN in rows without an element. masked_mean() and
// masked_var() of integers are f32. masked_logsumexp() has x's type, as in
// torch.
DistTensor masked_sum(const DistTensor& x, const DistTensor& mask,
                      const std::vector<int>& dims = {}, bool keepdim = false);
DistTensor masked_mean(const DistTensor& x, const DistTensor& mask,
                       const std::vector<int>& dims = {}, bool keepdim = false);
DistTensor masked_var(const DistTensor& x, const DistTensor& mask,
                      const std::vector<int>& dims = {}, double correction = 1,
                      bool keepdim = false);
DistTensor masked_amax(const DistTensor& x, const DistTensor& mask,
                       const std::vector<int>& dims = {}, bool keepdim = false);
DistTensor masked_softmax(const DistTensor& x, const DistTensor& mask, int dim);
DistTensor masked_log_softmax(const DistTensor& x, const DistTensor& mask,
                              int dim);
DistTensor masked_logsumexp(const DistTensor& x, const DistTensor& mask,
                            const std::vector<int>& dims = {},
                            bool keepdim = false);

}  // namespace dtensor
