// SPDX-License-Identifier: Apache-2.0
// Ten steps of each model on odd meshes, against torch's losses and gradients.
#include "tests/models/models.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "dtensor/dtensor.h"
#include "dtensor/rank_context.h"

namespace dtensor::testing {
namespace {

void expect_close(double got, double want, double tolerance,
                  const std::string& label) {
  EXPECT_NEAR(got, want, tolerance * std::max(1.0, std::abs(want))) << label;
}

void check_model(const std::string& name, DistTensor (*model)(Parameters&)) {
  std::ifstream file("tests/models/expected.json");
  const nlohmann::json want = nlohmann::json::parse(file)[name];
  const double rate = want["rate"];
  for (const char* mesh : {"dp=1", "dp=2", "sp=3", "tp=3", "dp=3,sp=2",
                           "sp=2,tp=2", "dp=2,sp=2,tp=2"}) {
    RunOptions options;
    options.world = Mesh::parse(mesh).num_ranks();
    run(options, [&](Runtime& rt) {
      Parameters p(Mesh::parse(mesh));
      const bool says = rt.rank() == 0;
      for (size_t step = 0; step < want["losses"].size(); ++step) {
        const DistTensor loss = model(p);
        std::vector<DistTensor> of;
        for (const NamedTensor& t : p.all()) of.push_back(t.tensor);
        const std::vector<DistTensor> g = grad(loss, of);
        const double got = loss.item();
        if (says)
          expect_close(got, want["losses"][step], 1e-8,
                       name + " on " + mesh + ", step " + std::to_string(step));
        for (size_t i = 0; i < g.size(); ++i) {
          NamedTensor& t = p.all()[i];
          if (step == 0) {
            const Array all = array_of(g[i].full());
            const Array other = numbers(all.shape, 7);
            double total = 0, product = 0;
            for (size_t e = 0; e < all.v.size(); ++e) {
              total += all.v[e];
              product += all.v[e] * other.v[e];
            }
            const std::string label = name + " on " + mesh + ", " + t.name;
            if (says) {
              expect_close(total, want["gradients"][t.name][0], 1e-9, label);
              expect_close(product, want["gradients"][t.name][1], 1e-9, label);
            }
          }
          const DistTensor next =
              t.tensor.detach() -
              g[i].redistribute(Placements(t.tensor.layout())) * rate;
          t.tensor = next.detach().set_requires_grad();
        }
      }
      if (says) {
        EXPECT_EQ(p.all().size(), want["gradients"].size());
      }
    });
  }
}

// The bytes of the rows that rank `rank` of two lacks, if x [.., rows, ...] and
// the result of a window of k rows are split in half; a row has `bytes`. Sets
// `rows` to those of the result.
int64_t halo(int rank, int64_t& rows, int64_t bytes, int64_t k, int64_t stride,
             int64_t pad) {
  const auto half = [](int64_t n, int r) { return n * r / 2; };
  const int64_t out = (rows + 2 * pad - k) / stride + 1;
  int64_t lacking = 0;
  std::vector<bool> seen(static_cast<size_t>(rows));
  for (int64_t m = half(out, rank); m < half(out, rank + 1); ++m)
    for (int64_t i = m * stride - pad; i < m * stride - pad + k; ++i) {
      if (i < 0 || i >= rows || seen[static_cast<size_t>(i)]) continue;
      seen[static_cast<size_t>(i)] = true;
      lacking += i < half(rows, rank) || i >= half(rows, rank + 1);
    }
  rows = out;
  return lacking * bytes;
}

// The forward pass of ResNet-50 over images whose rows are split.
TEST(ModelsTest, ResnetSendsOnlyHalos) {
  RunOptions options;
  options.world = 2;
  run(options, [&](Runtime& rt) {
    Parameters p(Mesh::parse("sp=2"));
    RankContext& ctx = rt.context();
    ctx.record = true;
    resnet(p);
    ctx.record = false;
    int64_t counted = 0;
    for (const CommEvent& e : ctx.events)
      if (e.kind == StepKind::kAllToAll || e.kind == StepKind::kAllGather)
        counted += e.counted;
    int64_t rows = 40, columns = 36;
    const auto of = [&](int64_t channels, int64_t k, int64_t stride,
                        int64_t pad) {
      const int64_t bytes =
          halo(rt.rank(), rows, 5 * channels * columns * 8, k, stride, pad);
      columns = (columns + 2 * pad - k) / stride + 1;
      return bytes;
    };
    int64_t want = of(3, 7, 2, 3) + of(4, 3, 2, 1);
    constexpr int kBlocks[] = {3, 4, 6, 3};
    for (int stage = 0; stage < 4; ++stage)
      for (int i = 0; i < kBlocks[stage]; ++i) {
        const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        if (stride == 2) {
          int64_t all = rows;  // the shortcut, which has one row in a window
          want += halo(rt.rank(), all, 5 * (int64_t{8} << stage) * columns * 8,
                       1, 2, 0);
        }
        want += of(int64_t{4} << stage, 3, stride, 1);
      }
    EXPECT_EQ(counted, want);
  });
}

TEST(ModelsTest, Unet) {
  check_model("unet", [](Parameters& p) { return unet(p); });
}
TEST(ModelsTest, Resnet) {
  check_model("resnet", [](Parameters& p) { return resnet(p); });
}
TEST(ModelsTest, Dlrm) { check_model("dlrm", dlrm); }
TEST(ModelsTest, Ctc) { check_model("ctc", ctc); }
TEST(ModelsTest, DiffusionTransformer) { check_model("dit", dit); }
TEST(ModelsTest, GaussianProcess) {
  check_model("gaussian_process", gaussian_process);
}

}  // namespace
}  // namespace dtensor::testing
