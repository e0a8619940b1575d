// SPDX-License-Identifier: Apache-2.0
// Views of a tensor in another shape or order, windows, concatenation, and
// functions that rearrange or repeat elements. Every rank of the mesh calls
// them.
#pragma once
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// ---- Shape and order ----
//
// Only reshape() and squeeze() may send anything, if the layout cannot be
// expressed in the new shape, and expand(), if a dimension that it repeats is
// split. A partial mean is an exception: view() and unsqueeze() throw Error for
// it, and the other functions combine it first.

// The elements in another shape; one size may be -1. A rank's part is a view if
// its strides allow it, else a copy. Throws Error if the layout cannot be
// expressed in that shape; the message names a redistribute() that helps.
DistTensor view(const DistTensor&, const Shape&);
// As view(), but if necessary moves the elements to the nearest layout that can
// be expressed in the new shape.
DistTensor reshape(const DistTensor&, const Shape&);
// Dimension d of the result is dimension order[d] of the input.
DistTensor permute(const DistTensor&, const std::vector<int>& order);
DistTensor transpose(const DistTensor&, int a, int b);
// Removes this dimension, these dimensions, or all dimensions, if their global
// size is 1. Dimensions of other sizes stay, as in torch.
DistTensor squeeze(const DistTensor&, int dim);
DistTensor squeeze(const DistTensor&, const std::vector<int>& dims);
DistTensor squeeze(const DistTensor&);
DistTensor unsqueeze(const DistTensor&, int dim);
// Repeats dimensions of size 1, and adds new ones in front. -1 keeps a size.
DistTensor expand(const DistTensor&, const Shape&);
inline DistTensor broadcast_to(const DistTensor& x, const Shape& shape) {
  return expand(x, shape);
}

// ---- Windows ----
//
// A window is the part of a tensor with some indices of one dimension. Taking
// one sends nothing: every rank keeps its part of the window, which may be
// empty. Its gradient sends nothing either, if the cotangent has the window's
// layout. There are exceptions:
// - select() gathers if its result is a scalar and the dimension is split,
//   because no layout can put a scalar on one rank only.
// - slice() gathers if its step does not fit the sub-dimensions of a split
//   dimension.
// - A partial mean is combined first.
// - Functions that write a window may move what they write.

// The indices lo, lo + step, ... below hi of a dimension. lo and hi are
// clamped, and count from the end if negative, as in Python. Throws Error if
// step < 1.
DistTensor slice(const DistTensor&, int dim, int64_t lo, int64_t hi,
                 int64_t step = 1);
// The `length` indices from `start` on, which counts from the end if negative.
// Throws Error if some of them do not exist.
DistTensor narrow(const DistTensor&, int dim, int64_t start, int64_t length);
// Writes `rows` into x in place, at the indices of `dim` from `start` on. This
// is for a cache that is filled step by step, such as keys and values (see
// AttentionOptions::length). Every rank gets all rows, cut like its part of x
// in the other dimensions, and writes those within its part. So the move does
// not depend on `start`. Throws Error if the rows do not fit, if x is partial,
// or while autograd records x or `rows`.
void copy_into(const DistTensor& x, const DistTensor& rows, int dim,
               int64_t start);
// Like the function above, but row i goes to index at[i] (i32 or i64), or
// nowhere if at[i] is -1. No index may occur twice, except -1. The move does
// not depend on the indices, even if x is split along `dim`. Throws Error if an
// index does not exist, as index_select() does.
void copy_into(const DistTensor& x, const DistTensor& rows, int dim,
               const DistTensor& at);
// Selects one index of a dimension, and removes the dimension. Throws Error if
// the index does not exist.
DistTensor select(const DistTensor&, int dim, int64_t index);
// Consecutive pieces of these sizes, which must add up to the dimension's size.
std::vector<DistTensor> split(const DistTensor&,
                              const std::vector<int64_t>& sizes, int dim = 0);
// Consecutive pieces of this size; the last one may be smaller. An empty
// dimension gives one empty piece.
std::vector<DistTensor> split(const DistTensor&, int64_t size, int dim = 0);
// At most `chunks` pieces of ceil(size / chunks); the last one may be smaller.
// An empty dimension gives `chunks` empty pieces.
std::vector<DistTensor> chunk(const DistTensor&, int64_t chunks, int dim = 0);
// Returns x with `src` in the place of slice(x, dim, lo, hi, step) or of
// select(x, dim, index), like an assignment to a slice. `src` has the shape of
// that slice, and x's type. Nothing is sent if `src` has the layout of that
// slice, unless x is partial by a reduction other than sum and avg.
DistTensor slice_scatter(const DistTensor& x, const DistTensor& src, int dim,
                         int64_t lo, int64_t hi, int64_t step = 1);
DistTensor select_scatter(const DistTensor& x, const DistTensor& src, int dim,
                          int64_t index);

// ---- Concatenation ----
//
// In the dimension of the concatenation, every rank keeps its own parts of all
// tensors, end to end, unless another dimension or a partial needs their axes.
// So nothing is sent if no tensor is partial and the layouts agree in all other
// dimensions.

// Concatenates along a dimension, in which the sizes may differ. If the layouts
// of other dimensions differ, tensors are moved to that of one of them, at the
// least cost. An empty vector [0] fits everything, as in torch. Every rank of
// the mesh calls it. Throws Error for an empty list, or if shapes or dtypes do
// not fit.
DistTensor cat(TensorList, int dim = 0);
inline DistTensor concat(TensorList list, int dim = 0) {
  return cat(list, dim);
}
// Joins tensors of equal shapes along a new dimension at `dim`.
DistTensor stack(TensorList, int dim = 0);

// ---- Rearranging, under torch's names ----
//
// Most functions below call a few of those above, whose comments say when they
// send anything. All throw Error if a tensor is undefined, or (unless it has no
// dimensions) if a dimension does not exist.

// Merges dimensions start to end. A tensor without dimensions becomes [1].
DistTensor flatten(const DistTensor&, int start = 0, int end = -1);
// Splits one dimension into several. One of the sizes may be -1.
DistTensor unflatten(const DistTensor&, int dim, const Shape& sizes);
// Moves dimension from[i] to position to[i]. Other dimensions keep their order.
DistTensor movedim(const DistTensor&, const std::vector<int>& from,
                   const std::vector<int>& to);
// Transposes a matrix. Vectors and scalars are returned unchanged.
DistTensor transpose(const DistTensor&);
// Adds dimensions of size 1 until there are at least 1, 2 or 3. A vector [n]
// becomes [n], [1, n] or [1, n, 1], and a matrix [m, n] becomes [m, n, 1].
DistTensor atleast_1d(const DistTensor&);
DistTensor atleast_2d(const DistTensor&);
DistTensor atleast_3d(const DistTensor&);

// Returns one tensor, without the dimension, for each index of the dimension.
std::vector<DistTensor> unbind(const DistTensor&, int dim = 0);
// Like numpy.array_split: splits into `sections` pieces, the first of which may
// be larger by one. The form with indices cuts in front of each index.
std::vector<DistTensor> tensor_split(const DistTensor&, int64_t sections,
                                     int dim = 0);
std::vector<DistTensor> tensor_split(const DistTensor&,
                                     const std::vector<int64_t>& indices,
                                     int dim = 0);

// vstack() concatenates along dimension 0, after atleast_2d(); hstack() along
// dimension 1, or 0 for vectors; dstack() along dimension 2, after
// atleast_3d(). column_stack() makes vectors columns of a matrix.
DistTensor vstack(TensorList);
DistTensor hstack(TensorList);
DistTensor dstack(TensorList);
DistTensor column_stack(TensorList);

// Expands all tensors to the shape that they broadcast to.
std::vector<DistTensor> broadcast_tensors(TensorList);
// Returns one tensor per vector. Tensor i has the values of vector i along
// dimension i, and repeats them along the other dimensions. `xy` swaps the
// first two dimensions.
std::vector<DistTensor> meshgrid(TensorList, bool xy = false);

// Repeats the whole tensor times[d] times along dimension d. The last number is
// for the last dimension. repeat() needs at least one number per dimension; for
// tile(), missing numbers are 1.
DistTensor repeat(const DistTensor&, const std::vector<int64_t>& times);
DistTensor tile(const DistTensor&, const std::vector<int64_t>& times);
// Repeats every index of a dimension `times` times, or index i times[i] times;
// the copies follow each other. Without a dimension, repeats the elements of
// the flat tensor.
DistTensor repeat_interleave(const DistTensor&, int64_t times, int dim);
DistTensor repeat_interleave(const DistTensor&,
                             const std::vector<int64_t>& times, int dim);
DistTensor repeat_interleave(const DistTensor&, int64_t times);
// Reverses the order of the indices of these dimensions. If any of them is
// split, every rank fetches the indices that mirror its own, in one exchange.
DistTensor flip(const DistTensor&, const std::vector<int>& dims);
// Moves index i of a dimension to i + shift, wrapping around the end.
DistTensor roll(const DistTensor&, const std::vector<int64_t>& shifts,
                const std::vector<int>& dims);

// Adds `value` around dimensions. The widths start at the last dimension:
// {left, right, top, bottom, ...}. Negative widths cut.
DistTensor pad(const DistTensor&, const std::vector<int64_t>& widths,
               double value = 0);

}  // namespace dtensor
