// SPDX-License-Identifier: Apache-2.0
// The local_map() (local_map.h) that runs on the calling thread, for
// collectives.h. Private to ops.
#pragma once
#include "dtensor/placement/mesh.h"

namespace dtensor {

class LocalScope {
 public:
  // `mesh` is that of the inputs. `alone`: the function computes on whole
  // inputs, so that its collectives have one member.
  LocalScope(const Mesh& mesh, bool alone);
  ~LocalScope();
  LocalScope(const LocalScope&) = delete;
  LocalScope& operator=(const LocalScope&) = delete;

  // The innermost scope of the thread; null if there is none.
  static const LocalScope* current();
  const Mesh& mesh() const { return mesh_; }
  bool alone() const { return alone_; }

 private:
  const Mesh mesh_;
  const bool alone_;
  const LocalScope* const outer_;
};

}  // namespace dtensor
