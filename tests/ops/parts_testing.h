// SPDX-License-Identifier: Apache-2.0
// Compares every rank's part of a tensor with the whole tensor, and makes
// layouts of every kind for small tensors.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/grad.h"
#include "dtensor/runtime.h"
#include "tests/ops/structured_testing.h"
#include "tests/placement/indices.h"

namespace dtensor::testing {

// 1, 2, 3, ... in row-major order, so that all elements are different.
inline Array counted(const Shape& shape, int from = 1) {
  Array a = zeros_like(shape);
  for (int64_t i = 0; i < numel(shape); ++i)
    a.at(i) = static_cast<double>(i + from);
  return a;
}

inline DistTensor put(const Array& a, const Mesh& mesh, const Layout& layout) {
  return DistTensor::from_global(tensor_of(a, DType::kF64), mesh, layout);
}

// Expects that this rank's part has the elements of `want` that its layout
// says. If x is partial, it is reduced first, and every rank has to call this.
inline void expect_parts(const DistTensor& x, const Array& want,
                         const std::string& what) {
  ASSERT_EQ(to_string(x.shape()), to_string(want.shape)) << what;
  Layout settled = x.layout();
  settled.partials.clear();
  const DistTensor y = x.redistribute(settled);
  const Region region = y.region();
  const Tensor& part = y.local();
  ASSERT_EQ(to_string(part.shape()), to_string(local_shape(region))) << what;
  const std::vector<int64_t> at = indices(region, want.shape);
  for (size_t i = 0; i < at.size(); ++i)
    ASSERT_EQ(part.at(static_cast<int64_t>(i)), want.at(at[i]))
        << what << ": local element " << i << " of " << x.spec()->to_string();
}

// Makes layouts of `shape`. First, every layout in which each mesh axis does
// one of R, S(d) and, if asked for, P. Then variants of these, for each
// dimension that is split: with its axes in the other order, with empty parts,
// and as a concatenation and a product (Dim).
inline std::vector<Layout> every_layout(const Mesh& mesh, const Shape& shape,
                                        bool partials = true) {
  std::vector<Layout> all;
  const int ndim = shape.size(), ways = ndim + (partials ? 2 : 1);
  int total = 1;
  for (int a = 0; a < mesh.num_axes(); ++a) total *= ways;
  for (int code = 0; code < total; ++code) {
    std::vector<std::vector<int>> axes(static_cast<size_t>(ndim));
    Layout l = Layout::replicated(shape);
    for (int a = 0, rest = code; a < mesh.num_axes(); ++a, rest /= ways) {
      int way = rest % ways;
      if (way < ndim)
        axes[static_cast<size_t>(way)].push_back(a);
      else if (way > ndim)
        l.partials.push_back({a, ReduceOp::kSum});
    }
    for (int d = 0; d < ndim; ++d)
      l.dims[static_cast<size_t>(d)] =
          Dim(shape[d], Split::over(axes[static_cast<size_t>(d)]));
    all.push_back(l);
    for (int d = 0; d < ndim; ++d) {
      const int64_t n = shape[d];
      std::vector<int> list = axes[static_cast<size_t>(d)];
      if (list.empty()) continue;
      auto offer = [&](Dim dim) {
        Layout other = l;
        other.dims[static_cast<size_t>(d)] = std::move(dim);
        all.push_back(std::move(other));
      };
      const Split split = Split::over(list);
      const int64_t parts = split.parts(mesh);
      // Splits with empty parts: the last rank has all indices, or the second
      // one has.
      std::vector<int64_t> last(static_cast<size_t>(parts), 0), middle = last;
      for (size_t i = 2; i < middle.size(); ++i) middle[i] = n;
      last.push_back(n), middle.push_back(n);
      offer(Dim(n, Split::at(list, last, mesh)));
      if (parts > 2) offer(Dim(n, Split::at(list, middle, mesh)));
      if (list.size() > 1)
        offer(Dim(n, Split::over({list.rbegin(), list.rend()})));
      const int64_t k = n / 3;
      offer(Dim::concat({Dim(k, split), Dim(n - k, split)}));
      if (k > 0) offer(Dim::concat({Dim(k), Dim(n - k, split)}));
      for (int64_t inner : {2, 3})
        if (n % inner == 0 && n > inner)
          offer(Dim::product({Dim(n / inner), Dim(inner, split)}));
    }
  }
  return all;
}

// The gradient of y with respect to x, for the cotangent `dy`.
inline DistTensor gradient_of(const DistTensor& y, const DistTensor& x,
                              const DistTensor& dy) {
  GradOptions options;
  options.cotangent = dy;
  return grad(y, {x}, options)[0];
}

// A cotangent with the values `a` in y's layout, without partials.
inline DistTensor cotangent_like(const DistTensor& y, const Array& a) {
  Layout l = y.layout();
  l.partials.clear();
  return put(a, y.mesh(), l);
}

}  // namespace dtensor::testing
