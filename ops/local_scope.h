// SPDX-License-Identifier: Apache-2.0
// The local_map() (local_map.h) that runs on the calling thread, for
// collectives.h. Private to ops.
#pragma once
#include <string_view>

#include "dtensor/dist_tensor.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// Throws Error, headed by `op`, unless the part is on local_mesh().
void check_local(std::string_view op, const DistTensor& part);

class LocalScope {
 public:
  // The inputs of the local_map(), which outlive the scope. `alone`: the
  // function computes on whole inputs, so that its collectives have one member.
  LocalScope(TensorList inputs, bool alone);
  ~LocalScope();
  LocalScope(const LocalScope&) = delete;
  LocalScope& operator=(const LocalScope&) = delete;

  // The innermost scope of the thread; null if there is none.
  static const LocalScope* current();
  TensorList inputs() const { return inputs_; }
  const Mesh& mesh() const { return inputs_[0].mesh(); }
  bool alone() const { return alone_; }

 private:
  const TensorList inputs_;
  const bool alone_;
  const LocalScope* const outer_;
};

}  // namespace dtensor
