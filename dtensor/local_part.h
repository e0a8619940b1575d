// Local tensors that hold regions of a global one. Nothing here communicates.
#pragma once
#include "dtensor/placement/layout.h"
#include "dtensor/tensor.h"

namespace dtensor {

// Copies the indices `which` of a local tensor that holds src_region to one
// that holds dst_region. REQUIRES: both hold all of them.
void copy_indices(const Region& which, const Tensor& dst,
                  const Region& dst_region, const Tensor& src,
                  const Region& src_region);

// Writes one value to the indices `which` of a local tensor that holds
// `region`. REQUIRES: it holds all of them.
void fill_indices(const Region& which, const Tensor& dst, const Region& region,
                  double value);

// The indices `wants` (all of which `has` includes) of a local tensor that
// holds `has`: a view where they lie side by side, else a copy.
Tensor window(const Tensor& local, const Region& has, const Region& wants);

}  // namespace dtensor
