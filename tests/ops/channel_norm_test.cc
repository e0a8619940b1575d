// SPDX-License-Identifier: Apache-2.0
// The statistics that batch_norm() and instance_norm() return, which torch's
// cases cannot show, because torch overwrites its arguments.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/ops/composed.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/random.h"
#include "dtensor/ops/view.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

constexpr int64_t kBatch = 3, kChannels = 2, kSpace = 5;

double value(int64_t b, int64_t c, int64_t s) {
  const auto i = static_cast<double>((b * kChannels + c) * kSpace + s);
  return std::sin(i) + 2 * static_cast<double>(c);
}

struct Moments {
  double mean = 0, variance = 0, unbiased = 0;
};
// The moments of one channel over the batches [from, to).
Moments moments(int64_t c, int64_t from, int64_t to) {
  Moments m;
  const auto n = static_cast<double>((to - from) * kSpace);
  for (int64_t b = from; b < to; ++b)
    for (int64_t s = 0; s < kSpace; ++s) m.mean += value(b, c, s) / n;
  for (int64_t b = from; b < to; ++b)
    for (int64_t s = 0; s < kSpace; ++s)
      m.variance += std::pow(value(b, c, s) - m.mean, 2) / n;
  m.unbiased = m.variance * n / (n - 1);
  return m;
}

// Calls f(x, running mean, running variance) in several layouts of x.
template <class F>
void on_meshes(F f) {
  std::vector<double> values;
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t c = 0; c < kChannels; ++c)
      for (int64_t s = 0; s < kSpace; ++s) values.push_back(value(b, c, s));
  for (const auto& [text, layout] :
       std::vector<std::pair<const char*, const char*>>{{"x=1", "R"},
                                                        {"x=2", "S0"},
                                                        {"x=3", "S1"},
                                                        {"x=2", "S2"},
                                                        {"x=2,y=2", "S0,S2"}}) {
    SCOPED_TRACE(std::string(text) + " " + layout);
    const Mesh mesh = Mesh::parse(text);
    run(mesh.num_ranks(), [&](Runtime&) {
      const DistTensor x = DistTensor::from_global(
          Tensor::from({kBatch, kChannels, kSpace}, values.data()), mesh,
          layout);
      f(x, full({kChannels}, 4, mesh), full({kChannels}, 9, mesh));
    });
  }
}

double at(const DistTensor& x, int64_t i) { return select(x, 0, i).item(); }

TEST(ChannelNorm, BatchNormUpdatesRunningStatisticsByTheWholeBatch) {
  on_meshes([](const DistTensor& x, const DistTensor& mean,
               const DistTensor& variance) {
    const RunningNorm n =
        batch_norm(x, mean, variance, {}, {}, true, 0.25, 1e-5);
    for (int64_t c = 0; c < kChannels; ++c) {
      const Moments m = moments(c, 0, kBatch);
      EXPECT_NEAR(at(n.running_mean, c), 0.75 * 4 + 0.25 * m.mean, 1e-6);
      EXPECT_NEAR(at(n.running_var, c), 0.75 * 9 + 0.25 * m.unbiased, 1e-6);
      EXPECT_NEAR(select(select(select(n.y, 0, 1), 0, c), 0, 3).item(),
                  (value(1, c, 3) - m.mean) / std::sqrt(m.variance + 1e-5),
                  1e-9);
    }
    EXPECT_EQ(n.running_mean.dtype(), DType::kF32);
    // The arguments stay as they are.
    EXPECT_EQ(at(mean, 0), 4);
    const RunningNorm fixed = batch_norm(x, mean, variance);
    EXPECT_EQ(at(fixed.running_var, 1), 9);
    EXPECT_FALSE(batch_norm(x, {}, {}, {}, {}, true).running_mean.defined());
  });
}

TEST(ChannelNorm, InstanceNormUpdatesRunningStatisticsByMeansOverTheBatch) {
  on_meshes([](const DistTensor& x, const DistTensor& mean,
               const DistTensor& variance) {
    const RunningNorm n =
        instance_norm(x, mean, variance, {}, {}, true, 0.25, 1e-5);
    for (int64_t c = 0; c < kChannels; ++c) {
      double means = 0, variances = 0;
      for (int64_t b = 0; b < kBatch; ++b) {
        means += moments(c, b, b + 1).mean / kBatch;
        variances += moments(c, b, b + 1).unbiased / kBatch;
      }
      EXPECT_NEAR(at(n.running_mean, c), 0.75 * 4 + 0.25 * means, 1e-6);
      EXPECT_NEAR(at(n.running_var, c), 0.75 * 9 + 0.25 * variances, 1e-6);
    }
  });
}

// Sums of rows, of which several have one mean (batch norm) or each its own.
struct Loss {
  bool batch;
  int64_t space;
  std::vector<double> w;

  // The sum of w * y.
  double of(const std::vector<double>& x) const {
    double loss = 0;
    for (int64_t c = 0; c < kChannels; ++c)
      for (int64_t set = 0; set < (batch ? 1 : kBatch); ++set) {
        std::vector<size_t> all;
        for (int64_t b = 0; b < kBatch; ++b)
          for (int64_t s = 0; s < space; ++s)
            if (batch || b == set)
              all.push_back(
                  static_cast<size_t>((b * kChannels + c) * space + s));
        const auto n = static_cast<double>(all.size());
        double mean = 0, variance = 0;
        for (size_t i : all) mean += x[i] / n;
        for (size_t i : all) variance += (x[i] - mean) * (x[i] - mean) / n;
        for (size_t i : all)
          loss += w[i] * (x[i] - mean) / std::sqrt(variance + 1e-2);
      }
    return loss;
  }
};

TEST(ChannelNorm, GradientsAreThoseOfDifferences) {
  constexpr double kStep = 1e-3;
  for (const bool batch : {true, false})
    for (const int64_t space : {3, 18})  // short rows, and long ones
      for (const char* layout : {"R", "S0", "S1", "S2"}) {
        SCOPED_TRACE(std::string(layout) + " " + std::to_string(space) +
                     (batch ? " batch_norm" : " instance_norm"));
        const auto size = static_cast<size_t>(kBatch * kChannels * space);
        Loss loss{batch, space, std::vector<double>(size)};
        std::vector<double> x(size), v(size);
        for (size_t i = 0; i < size; ++i) {
          const auto a = static_cast<double>(i);
          loss.w[i] = std::cos(3 * a), x[i] = std::sin(a),
          v[i] = std::sin(7 * a);
        }
        // By element i, and by that of the derivative in the direction v.
        std::vector<double> first(size), second(size);
        const auto moved = [&](size_t i, double by, double along) {
          std::vector<double> at = x;
          at[i] += by;
          for (size_t j = 0; j < size; ++j) at[j] += along * v[j];
          return loss.of(at);
        };
        for (size_t i = 0; i < size; ++i) {
          first[i] = (moved(i, kStep, 0) - moved(i, -kStep, 0)) / (2 * kStep);
          second[i] = (moved(i, kStep, kStep) - moved(i, kStep, -kStep) -
                       moved(i, -kStep, kStep) + moved(i, -kStep, -kStep)) /
                      (4 * kStep * kStep);
        }
        run(2, [&](Runtime& rt) {
          const auto tensor = [&](const std::vector<double>& values) {
            return DistTensor::from_global(
                Tensor::from({kBatch, kChannels, space}, values.data()),
                rt.mesh(), layout);
          };
          DistTensor t = tensor(x);
          t.set_requires_grad();
          const DistTensor y =
              batch ? batch_norm(t, {}, {}, {}, {}, true, 0.1, 1e-2).y
                    : instance_norm(t, {}, {}, {}, {}, true, 0.1, 1e-2).y;
          const DistTensor w = tensor(loss.w);
          const auto near = [](const DistTensor& got,
                               const std::vector<double>& want) {
            const std::vector<double> g = got.full().to_doubles();
            for (size_t i = 0; i < want.size(); ++i)
              ASSERT_NEAR(g[i], want[i], 2e-5) << "element " << i;
          };
          near(grad(y, {t}, {.cotangent = w})[0], first);
          const DistTensor again =
              grad(y, {t}, {.create_graph = true, .cotangent = w})[0];
          near(again, first);
          near(grad(again, {t}, {.cotangent = tensor(v)})[0], second);
        });
      }
}

// The gradients of the statistics, which torch's cases have, but not in rows
// that are long enough for the operators of the gradient.
TEST(ChannelNorm, StatisticsHaveGradients) {
  run(2, [](Runtime& rt) {
    DistTensor x = randn({3, 2, 18}, rt.mesh(), "S0", DType::kF64, {.seed = 3});
    x.set_requires_grad();
    const NormWithStats n = native_group_norm(x, 2);
    const DistTensor flat = mean(x, {2});
    const DistTensor centered = sub(x, mean(x, {2}, true));
    const DistTensor rstd =
        rsqrt(add(mean(square(centered), {2}, false), 1e-5));
    // Each statistic alone, and both.
    for (const auto& [has_mean, has_rstd] :
         {std::pair{true, false}, {false, true}, {true, true}}) {
      const auto of = [&](const DistTensor& y, const DistTensor& m,
                          const DistTensor& r) {
        DistTensor all = sum(mul(y, sin(x.detach())));
        if (has_mean) all = add(all, sum(square(m)));
        if (has_rstd) all = add(all, sum(square(r)));
        return grad(all, {x})[0].full().to_doubles();
      };
      const auto got = of(n.y, n.mean, n.rstd),
                 want = of(mul(centered, unsqueeze(rstd, -1)), flat, rstd);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], want[i], 1e-9) << has_mean << has_rstd;
    }
  });
}

// The sum of 1000 numbers near 8 has no more than one or two digits in bf16.
TEST(ChannelNorm, StatisticsOfHalvesAreF32) {
  run(2, [](Runtime& rt) {
    const DistTensor x =
        add(randn({4, 2, 500}, rt.mesh(), "S0", DType::kF32, {.seed = 1}), 8);
    const DistTensor half = cast(x, DType::kBF16);
    const RunningNorm y = batch_norm(half, {}, {}, {}, {}, true);
    EXPECT_EQ(y.y.dtype(), DType::kBF16);
    const NormWithStats n = native_group_norm(half, 1);
    EXPECT_EQ(n.mean.dtype(), DType::kF32);
    // Running statistics of halves, whose rstd has more digits.
    const DistTensor none = zeros({2}, rt.mesh(), {}, DType::kBF16),
                     three = none + 3, one = ones({1, 2, 1}, rt.mesh());
    EXPECT_NEAR(batch_norm(one, none, three).y.full().at(0),
                1 / std::sqrt(3 + 1e-5), 1e-6);
    EXPECT_NEAR(at(select(n.mean, 1, 0), 0), 8, 0.1);
  });
}

TEST(ChannelNorm, ErrorsSayWhatToWrite) {
  run(2, [](Runtime& rt) {
    const DistTensor x = ones({1, 6}, rt.mesh()), v = ones({6}, rt.mesh()),
                     w = ones({5}, rt.mesh());
    EXPECT_EQ(testing::error_of([&] { group_norm(x, 4); }),
              "[group_norm] 4 groups do not divide the 6 channels of "
              "f32[1, 6](R); write a divisor of 6");
    EXPECT_EQ(testing::error_of([&] { group_norm(x, 2, w); }),
              "[group_norm] the vector f32[5](R) does not fit f32[1, 6](R); "
              "pass one of size 6");
    EXPECT_EQ(testing::error_of([&] { batch_norm(v, v, v); }),
              "[batch_norm] f32[6](R) has no channels; pass a tensor "
              "[b, channels, space...]");
    EXPECT_EQ(testing::error_of([&] { batch_norm(x, v, {}); }),
              "[batch_norm] the running variance is not given; pass both, or "
              "training = true for the statistics of the input");
    EXPECT_EQ(testing::error_of([&] { batch_norm(x, {}, v); }),
              "[batch_norm] the running mean is not given; pass both, or "
              "training = true for the statistics of the input");
    EXPECT_EQ(testing::error_of([&] { batch_norm(x); }),
              "[batch_norm] the running mean and variance are not given; pass "
              "both, or training = true for the statistics of the input");
    EXPECT_EQ(
        testing::error_of([&] { instance_norm(x, {}, {}, {}, {}, false); }),
        "[instance_norm] the running mean and variance are not given; "
        "pass both, or use_input_stats = true for the statistics of the "
        "input");
    const DistTensor y = randn({4, 6}, rt.mesh());
    EXPECT_TRUE(equal(batch_norm(y, {}, {}, {}, {}, true).y,
                      batch_norm(y, v, v, {}, {}, true).y)
                    .item<bool>());
    EXPECT_EQ(testing::error_of([&] { batch_norm(x, v, v, {}, {}, true); }),
              "[batch_norm] f32[1, 6](R) has no variance, because each mean is "
              "over one element; pass more elements, or use the running "
              "statistics");
    EXPECT_EQ(testing::error_of([&] { local_response_norm(x, 2); }),
              "[local_response_norm] f32[1, 6](R) has no channels and space; "
              "pass a tensor [b, channels, space...]");
  });
}

}  // namespace
}  // namespace dtensor
