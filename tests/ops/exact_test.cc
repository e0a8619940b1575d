// SPDX-License-Identifier: Apache-2.0
// Values and gradients of a reproducible run, in several layouts, compared bit
// by bit with those of one rank.
#include "dtensor/ops/exact.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/random.h"
#include "dtensor/ops/view.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

// The elements of all tensors that fn returns, on the ranks of a mesh whose
// axis dp splits the rows.
std::vector<double> results(
    int64_t ranks,
    const std::function<std::vector<DistTensor>(const Mesh&)>& fn) {
  std::vector<double> values;
  RunOptions options;
  options.world = ranks;
  options.reproducible = true;
  run(options, [&](Runtime& rt) {
    const std::vector<DistTensor> all = fn(rt.mesh({{"dp", ranks}}));
    for (const DistTensor& x : all) {
      const Tensor whole = x.full();
      for (int64_t i = 0; rt.rank() == 0 && i < whole.numel(); ++i)
        values.push_back(whole.at(i));
    }
  });
  return values;
}

void expect_equal_bits(
    const std::function<std::vector<DistTensor>(const Mesh&)>& fn) {
  const std::vector<double> one = results(1, fn);
  ASSERT_FALSE(one.empty());
  for (int64_t ranks : {2, 3, 7}) EXPECT_EQ(results(ranks, fn), one) << ranks;
}

DistTensor rows(const Mesh& mesh, const Shape& shape, DType t = DType::kF32) {
  return cast(randn(shape, mesh, {{"dp", Shard(0)}}, DType::kF32, {1, 5}), t);
}

TEST(Exact, IsForFloatsOfReproducibleRuns) {
  RunOptions options;
  run(options, [](Runtime&) { EXPECT_FALSE(reproducible(DType::kF32)); });
  options.reproducible = true;
  run(options, [](Runtime&) {
    EXPECT_TRUE(reproducible(DType::kBF16));
    EXPECT_FALSE(reproducible(DType::kI64));
  });
}

TEST(Exact, SumsAndMeansHaveOneValue) {
  expect_equal_bits([](const Mesh& mesh) {
    const DistTensor x = rows(mesh, {50, 7});
    return std::vector{
        sum(x),           mean(x, {0}),      sum(x, {1}),
        sum(x, {}, true), sum_to(x, {1, 7}), sum(cast(x, DType::kBF16), {0})};
  });
}

TEST(Exact, GradientsOfWeightsHaveOneValue) {
  for (DType t : {DType::kF32, DType::kBF16})
    expect_equal_bits([t](const Mesh& mesh) {
      const auto weight = [&](const Shape& shape, uint64_t seed) {
        return cast(randn(shape, mesh, {}, DType::kF32, {seed, 1}), t)
            .set_requires_grad();
      };
      const DistTensor x = rows(mesh, {14, 9, 6}, t), w = weight({5, 6}, 1),
                       b = weight({5}, 2), gamma = weight({5}, 3),
                       scale = weight({9, 1}, 4), v = weight({6, 5}, 5);
      const DistTensor y =
          layer_norm(linear(x, w, b, Activation::kGeluTanh), gamma, b) * scale;
      // w and b are used twice; v is the second operand of a matmul.
      const DistTensor z = linear(x, w, b) * y + matmul(x, v);
      return grad(sum(z), {w, b, gamma, scale, v});
    });
}

TEST(Exact, GradientsOfTablesHaveOneValue) {
  expect_equal_bits([](const Mesh& mesh) {
    const DistTensor table =
        randn({11, 4}, mesh, {}, DType::kF32, {1, 1}).set_requires_grad();
    const DistTensor ids = randint(0, 11, {28, 3}, mesh, {{"dp", Shard(0)}});
    return grad(sum(square(embedding(table, ids))), {table});
  });
}

// The gradient passes a cast, a view and a sum of other gradients.
TEST(Exact, GradientsPassOtherOperators) {
  expect_equal_bits([](const Mesh& mesh) {
    const DistTensor master =
        randn({30}, mesh, {}, DType::kF32, {1, 1}).set_requires_grad();
    const DistTensor w = cast(reshape(master * 2, {5, 6}), DType::kBF16);
    const DistTensor x = rows(mesh, {21, 4, 6}, DType::kBF16);
    return grad(sum(square(linear(x, w))) + sum(square(master)), {master});
  });
}

TEST(Exact, SecondGradientsHaveOneValue) {
  expect_equal_bits([](const Mesh& mesh) {
    const DistTensor w =
        randn({5, 6}, mesh, {}, DType::kF32, {1, 1}).set_requires_grad();
    const DistTensor x = rows(mesh, {14, 9, 6});
    const auto first =
        grad(sum(tanh(linear(x, w))), {w}, {.create_graph = true});
    return grad(sum(square(first[0])), {w});
  });
}

TEST(Exact, AddsCotangentsOfBothKinds) {
  RunOptions options;
  options.world = 2;
  options.reproducible = true;
  run(options, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"dp", 2}});
    const DistTensor a = full({3}, 0.1, mesh, {}, DType::kF32),
                     b = full({3}, 0.2, mesh, {}, DType::kF32);
    EXPECT_EQ(add_cotangents(a, b).dtype(), DType::kF32);
    const DistTensor exact = cast(a, DType::kExact);
    for (const DistTensor& sum :
         {add_cotangents(exact, b), add_cotangents(b, exact)}) {
      EXPECT_EQ(sum.dtype(), DType::kExact);
      EXPECT_EQ(sum.full().at(1), double{0.1f} + double{0.2f});
    }
  });
}

}  // namespace
}  // namespace dtensor
