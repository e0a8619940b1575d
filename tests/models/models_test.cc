// SPDX-License-Identifier: Apache-2.0
// Ten steps of each model on odd meshes, against torch's losses and gradients.
#include "tests/models/models.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "dtensor/dtensor.h"

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

TEST(ModelsTest, Unet) { check_model("unet", unet); }
TEST(ModelsTest, Resnet) { check_model("resnet", resnet); }
TEST(ModelsTest, Dlrm) { check_model("dlrm", dlrm); }
TEST(ModelsTest, Ctc) { check_model("ctc", ctc); }
TEST(ModelsTest, DiffusionTransformer) { check_model("dit", dit); }
TEST(ModelsTest, GaussianProcess) {
  check_model("gaussian_process", gaussian_process);
}

}  // namespace
}  // namespace dtensor::testing
