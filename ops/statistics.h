// Statistics of a tensor over the given dimensions (all if empty), which are
// removed unless keepdim. Every rank of the mesh calls these functions.
#pragma once
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Whether any element is, or all elements are, nonzero, as bool. For an empty
// set, any() is false and all() is true.
DistTensor any(const DistTensor&, std::vector<int> dims = {},
               bool keepdim = false);
DistTensor all(const DistTensor&, std::vector<int> dims = {},
               bool keepdim = false);
// The number of nonzero elements, as i64.
DistTensor count_nonzero(const DistTensor&, std::vector<int> dims = {});
// {amin, amax}.
std::pair<DistTensor, DistTensor> aminmax(const DistTensor&,
                                          std::vector<int> dims = {},
                                          bool keepdim = false);

// var: the sum of squared distances from the mean, divided by n - correction
// (1 for Bessel's correction). stddev is its square root. The pairs add the
// mean. They throw Error unless x is a float type.
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

// log(sum(exp(x))), without overflow. Integers are converted to f32.
DistTensor logsumexp(const DistTensor&, std::vector<int> dims = {},
                     bool keepdim = false);

// The p-norm (sum |x|^p)^(1/p) of the elements. For p = inf and -inf it is the
// largest and the smallest |x|, and for p = 0 the number of nonzero elements. A
// norm of 0 has the gradient 0, as in torch. Throws Error unless x is a float
// type.
DistTensor vector_norm(const DistTensor&, double p = 2,
                       std::vector<int> dims = {}, bool keepdim = false);

}  // namespace dtensor
