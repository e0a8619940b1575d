// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "dtensor/dist_tensor_impl.h"
#include "dtensor/nn/module.h"
#include "dtensor/ops/create.h"
#include "dtensor/placement/hash.h"
#include "dtensor/redistribute.h"

namespace dtensor::nn {

Init Init::fan_in(int64_t fan_in) {
  return normal(1 / std::sqrt(static_cast<double>(fan_in)));
}

DistTensor make_parameter(std::string_view name, const Shape& shape,
                          const Mesh& mesh, const Layout& layout, DType dtype,
                          const Init& init, uint64_t seed) {
  const Spec* spec = Spec::get(mesh, shape, layout, dtype);
  DistTensor p;
  if (init.kind == Init::Kind::kNone) {
    p = DistTensor::empty(spec);
  } else if (init.kind == Init::Kind::kZeros ||
             init.kind == Init::Kind::kOnes) {
    p = full(shape, init.kind == Init::Kind::kOnes ? 1 : 0, mesh, layout,
             dtype);
  } else {
    // In f64, other random words are drawn than in f32 (bf16 and f16 draw the
    // same ones), so an f64 parameter is drawn in f32 and converted.
    const DType drawn = dtype == DType::kF64 ? DType::kF32 : dtype;
    const Generator random{seed, hash_text(name)};
    p = init.kind == Init::Kind::kNormal
            ? randn(shape, mesh, layout, drawn, random, 0, init.std)
            : uniform(shape, mesh, layout, drawn, random, -init.std, init.std);
    if (drawn != dtype) {
      // Converted on the local parts: cast() could choose another layout.
      p = DistTensor::wrap(converted(p.impl()->part(), dtype), spec);
    }
  }
  p.as_parameter();
  return p;
}

}  // namespace dtensor::nn
