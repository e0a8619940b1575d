// SPDX-License-Identifier: Apache-2.0
// Runs a function on every rank of a mesh and brings values out.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/runtime.h"
#include "tests/array.h"

namespace dtensor {

using testing::values;

// fn(mesh) on every rank; returns what rank 0 returned.
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

// The meshes on which everything must come out as on one rank.
inline const std::vector<std::string>& test_meshes() {
  static const std::vector<std::string> meshes = {
      "dp=2", "tp=2", "tp=3", "tp=4", "dp=2,tp=2", "dp=3,tp=2"};
  return meshes;
}

}  // namespace dtensor
