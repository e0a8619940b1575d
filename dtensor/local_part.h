// SPDX-License-Identifier: Apache-2.0
// Functions for local tensors that hold regions (placement/region.h) of a
// global tensor. They do not communicate.
#pragma once
#include "dtensor/placement/layout.h"
#include "dtensor/tensor.h"

namespace dtensor {

// Copies the elements at the global indices `which` from `src`, which holds
// src_region, to `dst`, which holds dst_region. REQUIRES: both regions include
// `which`.
void copy_indices(const Region& which, const Tensor& dst,
                  const Region& dst_region, const Tensor& src,
                  const Region& src_region);

// Writes `value` to the elements of `dst`, which holds `region`, at the global
// indices `which`. REQUIRES: `region` includes `which`.
void fill_indices(const Region& which, const Tensor& dst, const Region& region,
                  double value);

// Returns the elements at the global indices `wants` of `local`, which holds
// `has`: a view if both regions are single boxes that are not empty, else a
// copy. REQUIRES: `has` includes `wants`.
Tensor window(const Tensor& local, const Region& has, const Region& wants);

}  // namespace dtensor
