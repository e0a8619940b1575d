// SPDX-License-Identifier: Apache-2.0
// Functions for local tensors that hold regions of a global tensor. They do not
// communicate.
#pragma once
#include "dtensor/placement/layout.h"
#include "dtensor/tensor.h"

namespace dtensor {

// Copies the global indices `which` from a local tensor that holds src_region
// to one that holds dst_region. REQUIRES: both regions include them.
void copy_indices(const Region& which, const Tensor& dst,
                  const Region& dst_region, const Tensor& src,
                  const Region& src_region);

// Writes `value` to the global indices `which` of a local tensor that holds
// `region`. REQUIRES: `region` includes them.
void fill_indices(const Region& which, const Tensor& dst, const Region& region,
                  double value);

// Returns the global indices `wants` of a local tensor that holds `has`: a view
// if both regions are single boxes, else a copy. REQUIRES: `has` includes them.
Tensor window(const Tensor& local, const Region& has, const Region& wants);

}  // namespace dtensor
