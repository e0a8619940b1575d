// SPDX-License-Identifier: Apache-2.0
// Values and gradients of a reproducible run, in several layouts, compared bit
// by bit with those of one rank.
#include "dtensor/ops/exact.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "dtensor/ops/assign.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/losses.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/random.h"
#include "dtensor/ops/reduce.h"
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
  for (int64_t ranks : {2, 3, 7}) {
    const std::vector<double> all = results(ranks, fn);
    ASSERT_EQ(all.size(), one.size()) << ranks;
    size_t differ = 0, first = 0;
    for (size_t i = one.size(); i-- > 0;)
      if (all[i] != one[i]) ++differ, first = i;
    EXPECT_EQ(differ, 0u) << ranks << " ranks, first " << first << " of "
                          << one.size() << ": " << all[first] << " and "
                          << one[first];
  }
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
      // Sequences of one token: a leaf has one product.
      const DistTensor one = linear(rows(mesh, {14, 1, 6}, t), w);
      return grad(sum(z) + sum(square(one)), {w, b, gamma, scale, v});
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

// Ranks split what products sum, at leaves of 128, and some have nothing.
TEST(Exact, SplitFeaturesHaveOneValue) {
  for (DType t : {DType::kF32, DType::kBF16, DType::kF16})
    expect_equal_bits([t](const Mesh& mesh) {
      const auto features = [&](const Shape& shape, uint64_t seed) {
        const int last = static_cast<int>(shape.size()) - 1;
        return cast(randn(shape, mesh, {{"dp", Shard(last, 128)}}, DType::kF32,
                          {seed, 1}) *
                        0.1,
                    t)
            .set_requires_grad();
      };
      const DistTensor x = features({5, 3, 700}, 1), w = features({9, 700}, 2),
                       u = features({4, 5, 700}, 3),
                       b = cast(rows(mesh, {9}), t).set_requires_grad();
      const DistTensor y = linear(x, w, b), z = linear(x, w),
                       g = linear(x, w, b, Activation::kGeluTanh),
                       e = einsum("bsd,tbd->st", {x, u}),
                       m = matmul(x, transpose(w, 0, 1));
      // The columns of `up` are split, so that the gradient of z adds up
      // leaves; z is used three times.
      const DistTensor up = cast(
          randn({700, 9}, mesh, {{"dp", Shard(0, 128)}}, DType::kF32, {7, 1}),
          t);
      const DistTensor more =
          linear(z, up) + linear(z, up * up) + linear(z, up);
      std::vector<DistTensor> all = grad(
          sum(y) + sum(g * z) + sum(e) + sum(square(m)) + sum(square(more)),
          {x, w, u, b});
      for (const DistTensor& v : {y, z, g, e, m, more}) all.push_back(v);
      return all;
    });
}

// Both orders of the products need as many multiplications, so that prices of
// layouts would decide.
TEST(Exact, ProductsOfManyHaveOneOrder) {
  expect_equal_bits([](const Mesh& mesh) {
    const auto matrix = [&](const Shape& shape, const Placements& p) {
      return randn(shape, mesh, p, DType::kF32, {2, 1});
    };
    std::vector<DistTensor> all;
    for (int split : {0, 1})
      all.push_back(einsum("ab,bc,cd->ad",
                           {matrix({5, 300}, {}),
                            matrix({300, 300}, {{"dp", Shard(split, 128)}}),
                            matrix({300, 5}, {})}));
    return all;
  });
}

// Cuts inside leaves move to the next multiple of 128, or beyond.
TEST(Exact, SplitsInsideLeavesHaveOneValue) {
  expect_equal_bits([](const Mesh& mesh) {
    const DistTensor x = rows(mesh, {400, 30}),
                     w = randn({9, 30}, mesh, {{"dp", Shard(1)}}, DType::kF32,
                               {7, 1})
                             .set_requires_grad();
    const DistTensor y = linear(x.redistribute({{"dp", Shard(1)}}), w);
    return std::vector{y, grad(sum(square(linear(x, w))), {w})[0]};
  });
}

// Norms and softmax gather rows that are split.
TEST(Exact, SplitRowsHaveOneValue) {
  expect_equal_bits([](const Mesh& mesh) {
    const DistTensor x = randn({4, 300}, mesh, {{"dp", Shard(1)}}, DType::kF32,
                               {1, 1})
                             .set_requires_grad(),
                     g = randn({300}, mesh, {{"dp", Shard(0)}}, DType::kF32,
                               {2, 1})
                             .set_requires_grad();
    const DistTensor y = rms_norm(x, g), z = softmax(x, -1),
                     l = log_softmax(x, 1), n = layer_norm(x, g, g);
    std::vector<DistTensor> all = grad(sum(square(y) * z) + sum(l * n), {x, g});
    for (const DistTensor& v : {y, z, l, n}) all.push_back(v);
    return all;
  });
}

TEST(Exact, SplitVocabulariesHaveOneValue) {
  for (DType t : {DType::kF32, DType::kBF16})
    for (double smoothing : {0.0, 0.1})
      expect_equal_bits([&](const Mesh& mesh) {
        const DistTensor table =
            cast(randn({300, 130}, mesh, {{"dp", Shard(0)}}, DType::kF32,
                       {1, 1}),
                 t)
                .set_requires_grad();
        const DistTensor ids = randint(0, 300, {4, 7}, mesh),
                         targets = randint(0, 300, {4, 7}, mesh);
        const DistTensor x = embedding(table, ids);
        const DistTensor logits =
            linear(x, table.redistribute({{"dp", Shard(0, 128)}}));
        const DistTensor loss =
            cross_entropy(logits, targets, Reduction::kNone, -100, smoothing);
        // The mean of such logits is large, so that its last bit counts.
        const DistTensor high = cross_entropy(
            logits + 1000.0, targets, Reduction::kNone, -100, smoothing);
        return std::vector{x,
                           logits,
                           loss,
                           high,
                           grad(sum(loss), {logits})[0],
                           grad(sum(loss), {table})[0]};
      });
}

// The sum of exponentials, beside a plain loop in f64.
TEST(Exact, CrossEntropyIsThatOfAPlainLoop) {
  RunOptions options;
  options.world = 3;
  options.reproducible = true;
  run(options, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"tp", 3}});
    DistTensor x = randn({6, 1000}, mesh, {{"tp", Shard(1)}}, DType::kF32);
    x = x * full({6, 1}, 5, mesh, {}, DType::kF32);
    const DistTensor targets = randint(0, 1000, {6}, mesh);
    const Tensor loss = cross_entropy(x, targets, Reduction::kNone).full(),
                 all = x.full(), picked = targets.full();
    for (int64_t r = 0; r < 6; ++r) {
      double most = -INFINITY, sum = 0;
      for (int64_t v = 0; v < 1000; ++v)
        most = std::max(most, all.at(r * 1000 + v));
      for (int64_t v = 0; v < 1000; ++v)
        sum += std::exp(all.at(r * 1000 + v) - most);
      const double want = std::log(sum) + most -
                          all.at(r * 1000 + static_cast<int64_t>(picked.at(r)));
      EXPECT_NEAR(loss.at(r), want, 2e-6 * (1 + std::abs(want)));
    }
    const DistTensor nan = masked_fill(x, gt(x, 2.0), NAN);
    const Tensor none = cross_entropy(nan, targets, Reduction::kNone).full();
    for (int64_t r = 0; r < 6; ++r) EXPECT_TRUE(std::isnan(none.at(r))) << r;
  });
}

// Moves parts of an exact sum, whose rounded values are known.
TEST(Exact, PartialSumsMoveToEveryLayout) {
  RunOptions options;
  options.world = 6;
  options.reproducible = true;
  for (DType t : {DType::kF32, DType::kBF16})
    run(options, [t](Runtime& rt) {
      const Mesh mesh = rt.mesh({{"a", 2}, {"b", 3}}),
                 other = rt.mesh({{"c", 5}});
      // Part i of element j; the sum is exact in f64.
      const auto value = [](int64_t i, int64_t j) {
        return std::ldexp(static_cast<double>(1 + i * 7 + j),
                          static_cast<int>(3 * i - j)) *
               (i % 2 ? -1 : 1);
      };
      Tensor part = Tensor::full({7, 2}, DType::kF32, 0);
      std::vector<double> want;
      for (int64_t j = 0; j < 14; ++j) {
        part.mutable_ptr<float>()[j] = static_cast<float>(value(rt.rank(), j));
        double sum = 0;
        for (int64_t i = 0; i < 6; ++i) sum += value(i, j);
        const float rounded = static_cast<float>(sum);
        want.push_back(t == DType::kF32 ? rounded : float(bf16(rounded)));
      }
      const auto expect = [&](const DistTensor& y) {
        EXPECT_EQ(y.dtype(), t);
        const Tensor all = y.full();
        for (size_t j = 0; j < want.size(); ++j)
          EXPECT_EQ(all.at(static_cast<int64_t>(j)), want[j])
              << y.spec()->to_string() << " " << j;
      };
      const DistTensor x = DistTensor::wrap(
          part, Spec::get(mesh, {7, 2},
                          parse_layout("P(exact),P(exact)", mesh, {7, 2}), t));
      for (const char* to :
           {"R,R", "S0,R", "S0,S1", "S1,S0", "S0,S0", "P(exact),R",
            "S0,P(exact)", "P(exact),P(exact)"}) {
        expect(x.redistribute(to));
        expect(x.redistribute_async(to));
        EXPECT_EQ(
            x.redistribute(to).local().dtype(),
            std::string(to).find('P') == std::string::npos ? t : DType::kExact);
      }
      if (rt.rank() < 6)
        expect(x.redistribute(other, {}).redistribute(mesh, {}));
      // From values that are not partial.
      const DistTensor y = x.redistribute("S0,R").redistribute("P(exact),R");
      EXPECT_TRUE(y.spec()->exact());
      expect(y);
      const DistTensor wide =
          x.redistribute("R,R", {.forward_dtype = DType::kF64});
      for (size_t j = 0; j < want.size(); ++j)
        EXPECT_EQ(wide.local().at(static_cast<int64_t>(j)), want[j]);
      // Each is a copy of x in its graph.
      DistTensor leaf = x.redistribute("P(exact),P(exact)");
      leaf = leaf.detach().set_requires_grad();
      const DistTensor g =
          grad(sum(square(leaf.redistribute("R,S0"))), {leaf})[0];
      const Tensor slopes = g.full();
      for (size_t j = 0; j < want.size(); ++j)
        EXPECT_NEAR(slopes.at(static_cast<int64_t>(j)), 2 * want[j],
                    std::abs(want[j]) * (t == DType::kF32 ? 1e-6 : 0.02));
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

// Numbers below the least normal float are neither lost nor rounded to it.
TEST(Exact, KeepsDenormalNumbers) {
  expect_equal_bits([](const Mesh& mesh) {
    const DistTensor x = full({5}, 3e-45, mesh, {}, DType::kF32);
    const Tensor back = cast(cast(x, DType::kExact), DType::kF32).full();
    EXPECT_EQ(back.at(4), x.full().at(4));
    EXPECT_NE(back.at(4), 0);
    return std::vector{x};
  });
}

}  // namespace
}  // namespace dtensor
