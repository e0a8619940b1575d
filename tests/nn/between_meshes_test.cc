// SPDX-License-Identifier: Apache-2.0
// onto(): moves a tensor to the mesh of another pipeline stage, in the same
// layout if the axes are the same.
#include "dtensor/nn/between_meshes.h"

#include <gtest/gtest.h>

#include "dtensor/nn/parallel.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "tests/nn/on_mesh.h"

namespace dtensor::nn {
namespace {

Mesh stage(const char* axes, int64_t first) {
  const Mesh at = Mesh::parse(axes);
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < at.num_ranks(); ++r) ranks.push_back(first + r);
  std::vector<MeshAxis> list;
  for (int a = 0; a < at.num_axes(); ++a)
    list.push_back({at.axis_name(a), at.axis_size(a)});
  return Mesh(list, ranks);
}

std::vector<double> numbers(int64_t n) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(0.5 * static_cast<double>(i));
  return v;
}

// The values of x, on every rank of the run.
std::vector<double> everywhere(Runtime& rt, const DistTensor& x) {
  const Mesh all = rt.mesh({{"all", rt.world_size()}});
  return values(x.redistribute(all, Placements("R")));
}

DistTensor matrix(const Mesh& mesh, const Placements& layout) {
  return DistTensor::from_global(Tensor::from({5, 3}, numbers(15).data()), mesh,
                                 layout);
}

TEST(BetweenMeshes, SameAxes) {
  const Mesh a = stage("dp=2,tp=3", 0);
  EXPECT_TRUE(same_axes(a, stage("dp=2,tp=3", 6)));
  EXPECT_FALSE(same_axes(a, stage("dp=3,tp=2", 6)));
  EXPECT_FALSE(same_axes(a, stage("tp=3,dp=2", 6)));
  EXPECT_FALSE(same_axes(a, stage("dp=2", 6)));
}

TEST(BetweenMeshes, TheLayoutStaysWhereItCan) {
  const Mesh from = stage("dp=2,tp=2", 0), like = stage("dp=2,tp=2", 4),
             other = stage("tp=3", 4);
  run(8, [&](Runtime&) {
    const Spec* x = matrix(from, "S0,P").spec();
    EXPECT_EQ(spec_onto(like, x)->to_string(),
              Spec::get(like, {5, 3}, Placements("S0,R").resolve(like, {5, 3}),
                        DType::kF64)
                  ->to_string());
    const Spec* whole = spec_onto(other, x);
    EXPECT_EQ(whole->mesh(), other);
    EXPECT_EQ(whole->layout(), Layout::replicated({5, 3}));
  });
}

// The value moves to the other mesh, and its gradient moves back.
TEST(BetweenMeshes, ValuesAndGradientsTravel) {
  for (const char* axes : {"dp=2", "tp=3"}) {
    const Mesh from = stage("dp=2", 0), to = stage(axes, 2);
    run(5, [&](Runtime& rt) {
      const DistTensor x = matrix(from, "S0").set_requires_grad();
      EXPECT_TRUE(onto(from, x).same_as(x));
      const DistTensor there = onto(to, x);
      EXPECT_EQ(there.mesh(), to);
      EXPECT_EQ(everywhere(rt, there), numbers(15));
      const DistTensor g = grad(sum(square(there)), {x})[0];
      EXPECT_EQ(g.mesh(), from);
      std::vector<double> twice = numbers(15);
      for (double& v : twice) v *= 2;
      EXPECT_EQ(everywhere(rt, g), twice);
    });
  }
}

TEST(BetweenMeshes, ABatchIsSplitAsBatchesAre) {
  const Mesh from = stage("dp=2", 0), to = stage("dp=2,cp=2", 2);
  run(6, [&](Runtime& rt) {
    const DistTensor x = matrix(from, "S0"), there = batch_onto(to, x);
    EXPECT_TRUE(batch_onto(from, x).same_as(x));
    EXPECT_EQ(there.layout(), batch_layout(to, {5, 3}));
    EXPECT_EQ(everywhere(rt, there), numbers(15));
  });
}

}  // namespace
}  // namespace dtensor::nn
