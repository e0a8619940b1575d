// SPDX-License-Identifier: Apache-2.0
// Runs a function on every rank of a mesh, and returns rank 0's result.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/runtime.h"
#include "tests/array.h"

namespace dtensor {

using testing::values;

// Calls fn(mesh) on every rank of the mesh; returns the result of rank 0.
template <class T>
T on_mesh(const std::string& text, const std::function<T(const Mesh&)>& fn) {
  T result{};
  const Mesh mesh = Mesh::parse(text);
  run(mesh.num_ranks(), [&](Runtime& rt) {
    T mine = fn(mesh);
    if (rt.rank() == 0) result = std::move(mine);
  });
  return result;
}

// Meshes on which results must be the same as on one rank.
inline const std::vector<std::string>& test_meshes() {
  static const std::vector<std::string> meshes = {
      "dp=2", "tp=2", "tp=3", "tp=4", "dp=2,tp=2", "dp=3,tp=2"};
  return meshes;
}

}  // namespace dtensor
