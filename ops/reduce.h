// SPDX-License-Identifier: Apache-2.0
// Reductions other than the sum (contraction.h), running sums, softmax,
// statistics, and the order of elements.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/create.h"

namespace dtensor {

// The largest / smallest value over the dimensions (all if empty), which are
// removed unless keepdim. Equal extreme values share the gradient evenly.
// Throws Error if a reduced dimension is empty. Every rank of the mesh calls
// it.
DistTensor amax(const DistTensor&, std::vector<int> dims = {},
                bool keepdim = false);
DistTensor amin(const DistTensor&, std::vector<int> dims = {},
                bool keepdim = false);

// Running sums along one dimension: y[i] = x[0] + ... + x[i]. Integers and
// bools give i64. Floats are summed in f64 and keep their dtype.
DistTensor cumsum(const DistTensor&, int dim);
// Running products, in the same types as the sums.
DistTensor cumprod(const DistTensor&, int dim);
// Running maxima and minima, and the i64 index of each: the last one of equal
// elements, as in torch. From a NaN on, the values are NaN. Throws Error for
// bools.
std::pair<DistTensor, DistTensor> cummax(const DistTensor&, int dim);
std::pair<DistTensor, DistTensor> cummin(const DistTensor&, int dim);
// Logarithms of running sums of exponentials, without overflow: y[i] =
// log(exp(x[0]) + ... + exp(x[i])), summed in f64. As long as all elements are
// -inf, so is y, and their gradient is 0. Throws Error unless x is a float
// type.
DistTensor logcumsumexp(const DistTensor&, int dim);

// ---- Softmax ----
//
// If the dimension of a softmax is split, the ranks exchange one maximum and
// one sum per row (Milakov and Gimelshein, arXiv 1805.02867), never the rows.
// In the backward pass they exchange one sum per row.

// Every rank of the mesh calls both. They throw Error unless x is a float type.
DistTensor softmax(const DistTensor&, int dim);
DistTensor log_softmax(const DistTensor&, int dim);

// ---- Statistics ----
//
// All but bincount() reduce the given dimensions (all if empty), which are
// removed unless keepdim. Every rank of the mesh calls these functions.

// any() says whether some element is nonzero, and all() whether all are, as
// bools. For an empty set, any() is false and all() is true.
DistTensor any(const DistTensor&, std::vector<int> dims = {},
               bool keepdim = false);
DistTensor all(const DistTensor&, std::vector<int> dims = {},
               bool keepdim = false);
// The number of nonzero elements, as i64.
DistTensor count_nonzero(const DistTensor&, std::vector<int> dims = {});
// Counts how often each of 0, 1, 2, ... occurs in a vector of integers, in i64.
// With weights, it adds up the weights instead, in f32 if they are f32, else in
// f64. An empty vector gives i64, as in torch. The result has max(x) + 1
// elements, but at least `minlength`; every rank waits for the value of max(x).
// Throws Error for a negative element.
DistTensor bincount(const DistTensor& x, const DistTensor& weights = {},
                    int64_t minlength = 0);
// Returns {amin, amax}.
std::pair<DistTensor, DistTensor> aminmax(const DistTensor&,
                                          std::vector<int> dims = {},
                                          bool keepdim = false);

// var() is the sum of squared distances of n elements from their mean, divided
// by max(0, n - correction), where 1 is Bessel's correction. stddev() is its
// square root. var_mean() and std_mean() also return the mean. All throw Error
// unless x is a float type.
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

// log(sum(exp(x))), without overflow. Integers and bools are converted to f32.
DistTensor logsumexp(const DistTensor&, std::vector<int> dims = {},
                     bool keepdim = false);

// The p-norm (sum |x|^p)^(1/p) of the elements. For p = inf and -inf it is the
// largest and the smallest |x|, and for p = 0 the number of nonzero elements.
// For p >= 1, a norm of 0 has the gradient 0, as in torch. Throws Error unless
// x is a float type.
DistTensor vector_norm(const DistTensor&, double p = 2,
                       std::vector<int> dims = {}, bool keepdim = false);

// ---- Largest elements, and order ----

struct TopK {
  DistTensor values, indices;  // best first; indices are i64
};

// The k largest (or smallest) elements along a dimension. If the dimension is
// split, the ranks exchange at most k candidates for each range of indices that
// they hold, never whole rows. A NaN counts as largest. If elements are equal,
// the first ones are taken, in any layout.
// Gradients of the values go to the elements taken; the indices have none.
// Every rank of the mesh calls it. Throws Error if the dimension has fewer than
// k elements, or for bools.
TopK topk(const DistTensor&, int64_t k, int dim = -1, bool largest = true);

// All elements along a dimension in order, smallest first, and their indices.
// NaNs count as largest, and equal elements keep their order. If the dimension
// is split, so is the result. Each element is then sent at most twice, with its
// index. If the parts have equal sizes, a rank never holds more than about
// twice its share. Throws Error for bools.
TopK sort(const DistTensor&, int dim = -1, bool descending = false);
DistTensor argsort(const DistTensor&, int dim = -1, bool descending = false);
// The index of the largest or smallest element along a dimension, which is
// removed unless keepdim, or, without a dimension, in the flat tensor. The
// first of equal elements is taken. A NaN counts as both largest and smallest.
// Ranks send only their best elements. Throws Error if there is no element, or
// for bools.
DistTensor argmax(const DistTensor&, int dim, bool keepdim = false);
DistTensor argmin(const DistTensor&, int dim, bool keepdim = false);
DistTensor argmax(const DistTensor&);
DistTensor argmin(const DistTensor&);

// Draws n indices with probabilities proportional to the weights [..., m];
// returns [..., n] in i64. Without replacement, it takes the indices of the n
// largest numbers weight / -log(uniform) (Efraimidis and Spirakis, 2006). With
// replacement, it takes the index of the largest of these numbers, n times,
// with new random numbers each time. An index whose weight is not positive is
// drawn only after all others. Throws Error if n > m without replacement.
DistTensor multinomial(const DistTensor& weights, int64_t n,
                       bool replacement = false, Generator = kGlobalGenerator);

}  // namespace dtensor
