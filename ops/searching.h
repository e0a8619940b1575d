// SPDX-License-Identifier: Apache-2.0
// The places of values in a sorted sequence. Every rank of the mesh calls these
// functions.
#pragma once
#include "dtensor/dist_tensor.h"

namespace dtensor {

struct SearchOptions {
  bool out_int32 = false;  // the result is i32, else i64
  // A value's place is behind the elements that are equal to it, else in front
  // of them.
  bool right = false;
  // If defined, the sequence is not sorted, and these are the indices along its
  // last dimension that sort it, as from argsort().
  DistTensor sorter = {};
};

// For each value [..., k], the number of elements below it in the sorted
// sequence [..., n] of the same row or, if the sequence is a vector, in that
// vector; the values then have any shape. All elements are below a NaN. If the
// sequence is split, each rank counts in its part, and the result is a partial
// sum; nothing is sent. Throws Error for bools, or if shapes or types differ.
DistTensor searchsorted(const DistTensor& sequence, const DistTensor& values,
                        const SearchOptions& = {});
// searchsorted() in a vector of boundaries.
DistTensor bucketize(const DistTensor& values, const DistTensor& boundaries,
                     bool out_int32 = false, bool right = false);

}  // namespace dtensor
