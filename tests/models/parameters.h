// SPDX-License-Identifier: Apache-2.0
// The parameters and inputs of models whose losses torch has computed, too:
// tools/model_cases.py makes the same numbers.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "tests/array.h"

namespace dtensor::testing {

// Numbers in [-scale, scale), which look random: a hash of the index.
inline Array numbers(const Shape& shape, uint64_t seed, double scale = 1) {
  Array a = zeros_like(shape);
  for (uint64_t i = 0; i < a.v.size(); ++i) {
    uint64_t x = (i * 2654435761u + seed * 40503u + 12345u) & 0xffffffffu;
    x = ((x ^ (x >> 15)) * 739982445u) & 0xffffffffu;
    x = ((x ^ (x >> 12)) * 695872825u) & 0xffffffffu;
    x = x ^ (x >> 15);
    a.v[i] = (static_cast<double>(x) / 0x1p31 - 1) * scale;
  }
  return a;
}
inline Array integers(const Shape& shape, uint64_t seed, int64_t below) {
  Array a = numbers(shape, seed);
  for (double& v : a.v)
    v = static_cast<double>(
        static_cast<int64_t>((v + 1) / 2 * static_cast<double>(below)));
  a.dtype = DType::kI64;
  return a;
}

// Makes a parameter when a model first asks for it. Axis "tp" splits its first
// dimension. Inputs are split over "dp" in dimension 0, and over "sp" in the
// dimension that the model names.
class Parameters {
 public:
  explicit Parameters(const Mesh& mesh, DType dtype = DType::kF64)
      : mesh_(mesh), dtype_(dtype) {}
  const Mesh& mesh() const { return mesh_; }

  // Numbers of the formula in [around - scale, around + scale). By default, the
  // scale is sqrt(3 / the number of elements of an index of dimension 0).
  DistTensor operator()(const std::string& name, const Shape& shape,
                        std::optional<double> scale = {}, double around = 0);
  DistTensor input(const Array&, std::optional<int> space = {}) const;

  std::vector<NamedTensor>& all() { return all_; }

 private:
  DistTensor split(Array,
                   const std::vector<std::pair<std::string, Placement>>&) const;

  const Mesh mesh_;
  const DType dtype_;
  std::vector<NamedTensor> all_;
};

}  // namespace dtensor::testing
