// SPDX-License-Identifier: Apache-2.0
// Reads tensors that may be on the host (Storage::offload()).
#pragma once
#include <utility>

#include "dtensor/dist_tensor_impl.h"

namespace dtensor {

// Whether this rank's part is on the host.
inline bool is_away(const DistTensor& x) {
  const DistTensor::Impl& impl = *x.impl();
  return !impl.pending && impl.local.defined() && impl.local.storage()->away();
}

// Returns fn(part) for this rank's part (undefined on a rank outside the mesh).
// A part that was on the host goes back there.
template <class Fn>
auto visit_part(const DistTensor& x, Fn&& fn) {
  const bool away = is_away(x);
  auto result = std::forward<Fn>(fn)(x.impl()->part());
  if (away) x.impl()->local.storage()->offload();
  return result;
}

}  // namespace dtensor
