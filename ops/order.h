// SPDX-License-Identifier: Apache-2.0
// Functions of the order of elements, under torch's names: extremes with their
// indices, medians, quantiles, the mode, and a histogram. Every rank of the
// mesh calls them.
//
// A dimension may be split. max() and min() exchange one candidate for each
// row and range of indices, as topk() does. mode() sorts the indices, which
// sends each element at most twice (see sort()); the sorted rows stay split.
// kthvalue(), the medians and the quantiles find an element by radix selection:
// per row and element, the ranks add up 256 counts for each byte of the type,
// and for each byte of the row's largest index. Where a sort sends less, in
// short rows and for more than 32 elements of a row, they sort. A few numbers
// per row follow. The gradients go to the elements that were taken, and send a
// few numbers per row.
//
// Indices are i64. A scalar counts as a row of one element. A function along a
// dimension throws Error if the dimension does not exist or is empty. All
// functions but max() and min() throw Error for bools.
#pragma once
#include <cstdint>
#include <optional>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/reduce.h"

namespace dtensor {

// The largest / smallest element along a dimension, which is removed unless
// keepdim, and its index: the first one of equal elements, or of NaNs, if there
// are any. Only the element taken has a gradient; amax() shares it between
// equal elements.
TopK max(const DistTensor&, int dim, bool keepdim = false);
TopK min(const DistTensor&, int dim, bool keepdim = false);
// The largest / smallest of all elements.
inline DistTensor max(const DistTensor& x) { return amax(x); }
inline DistTensor min(const DistTensor& x) { return amin(x); }

// The k-th smallest element along a dimension (k = 1 is the smallest), and its
// index. NaNs count as largest. Of equal elements, the first counts as
// smallest. For a small k, the ranks exchange k candidates, as topk() does, if
// that sends the least. Throws Error unless the dimension has k elements.
TopK kthvalue(const DistTensor&, int64_t k, int dim = -1, bool keepdim = false);

// The middle element along a dimension, and its index; for an even number of
// elements, the lower one of the two. If there are NaNs, median() takes the
// first one, and nanmedian() ignores them, unless there is nothing else.
TopK median(const DistTensor&, int dim, bool keepdim = false);
TopK nanmedian(const DistTensor&, int dim, bool keepdim = false);
// The median of all elements. Equal elements share the gradient evenly, as in
// torch. The median of no elements is NaN, and for integers an Error.
DistTensor median(const DistTensor&);
DistTensor nanmedian(const DistTensor&);

// The most frequent element along a dimension (the smallest one of several) and
// the index of its last occurrence. Each NaN is an element of its own.
TopK mode(const DistTensor&, int dim = -1, bool keepdim = false);

// How quantile() treats a q that lies between two elements.
enum class QuantileInterpolation : uint8_t {
  kLinear,
  kLower,     // the lower element
  kHigher,    // the higher element
  kNearest,   // the nearer one; halfway, the one with the even rank
  kMidpoint,  // the mean of the two
};
// Returns the element at q * (n - 1) in the order of the n elements along a
// dimension, or of all elements. For a vector q, the result has its dimension
// in front. x is f32 or f64, and a tensor q has x's type. In kLinear, q has a
// gradient. If there are NaNs, quantile() is NaN, and nanquantile() ignores
// them, unless there is nothing else. Throws Error for a q outside of [0, 1]
// (for a tensor q, if an element with such an index does not exist), and for an
// f32 with n above 2^24, whose positions f32 would round.
DistTensor quantile(const DistTensor& x, const DistTensor& q,
                    std::optional<int> dim = {}, bool keepdim = false,
                    QuantileInterpolation = QuantileInterpolation::kLinear);
DistTensor quantile(const DistTensor& x, double q, std::optional<int> dim = {},
                    bool keepdim = false,
                    QuantileInterpolation = QuantileInterpolation::kLinear);
DistTensor nanquantile(const DistTensor& x, const DistTensor& q,
                       std::optional<int> dim = {}, bool keepdim = false,
                       QuantileInterpolation = QuantileInterpolation::kLinear);
DistTensor nanquantile(const DistTensor& x, double q,
                       std::optional<int> dim = {}, bool keepdim = false,
                       QuantileInterpolation = QuantileInterpolation::kLinear);

// sort() along the first dimension, without the indices.
DistTensor msort(const DistTensor&);

// Counts the elements in each of `bins` intervals of equal width from min to
// max; other elements are ignored. The result has x's type; for half types, the
// computation is in f32. Without a range (min = max), it is the range of x;
// then the counts are NaN if x has an infinity or a NaN. The ranks add up their
// counts. No gradient. Throws Error unless x is a float type, min <= max, and
// both are finite.
DistTensor histc(const DistTensor& x, int64_t bins = 100, double min = 0,
                 double max = 0);

}  // namespace dtensor
