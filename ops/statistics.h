// Figures of a tensor, or of each of its rows: over the given dimensions (all
// when empty), which are removed unless keepdim.
#pragma once
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Is any element, are all of them other than 0? bool; of nothing false and
// true.
DistTensor any(const DistTensor&, std::vector<int> dims = {},
               bool keepdim = false);
DistTensor all(const DistTensor&, std::vector<int> dims = {},
               bool keepdim = false);
// How many elements are other than 0, as i64.
DistTensor count_nonzero(const DistTensor&, std::vector<int> dims = {});
// amin and amax.
std::pair<DistTensor, DistTensor> aminmax(const DistTensor&,
                                          std::vector<int> dims = {},
                                          bool keepdim = false);

// The mean square distance from the mean, its sum divided by n - correction
// (1: Bessel's); the root of that; either with the mean.
DistTensor var(const DistTensor&, std::vector<int> dims = {},
               double correction = 1, bool keepdim = false);
DistTensor stddev(const DistTensor&, std::vector<int> dims = {},
                  double correction = 1, bool keepdim = false);
std::pair<DistTensor, DistTensor> var_mean(const DistTensor&,
                                           std::vector<int> dims = {},
                                           double correction = 1,
                                           bool keepdim = false);
std::pair<DistTensor, DistTensor> std_mean(const DistTensor&,
                                           std::vector<int> dims = {},
                                           double correction = 1,
                                           bool keepdim = false);

// log sum exp(x), without overflow; integers as f32.
DistTensor logsumexp(const DistTensor&, std::vector<int> dims = {},
                     bool keepdim = false);

// The p-norm (sum |x|^p)^(1/p) of the elements; p = inf, -inf: the largest and
// the smallest |x|; 0: how many are other than 0. The gradient where the norm
// is 0 is 0, as in torch.
DistTensor vector_norm(const DistTensor&, double p = 2,
                       std::vector<int> dims = {}, bool keepdim = false);

}  // namespace dtensor
