// SPDX-License-Identifier: Apache-2.0
// The statistics that batch_norm() and instance_norm() return, which torch's
// cases cannot show, because torch overwrites its arguments.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "dtensor/ops/create.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/pointwise.h"
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
    EXPECT_EQ(testing::error_of([&] { batch_norm(x, {}, {}); }),
              "[batch_norm] the running mean and variance are not given; pass "
              "them, or have those of the input taken");
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
