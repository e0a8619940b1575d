#include "dtensor/ops/norm.h"

#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

// Layer norm of rows of n, or RMS norm where `beta` is null.
Array reference(const Array& x, const Array& gamma, const Array* beta,
                double eps) {
  const int64_t n = x.shape.back(),
                rows = numel(x.shape) / std::max<int64_t>(n, 1);
  Array y = x;
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, square = 0;
    for (int64_t i = 0; beta && i < n; ++i)
      mean += x.at(r * n + i) / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i)
      square += std::pow(x.at(r * n + i) - mean, 2) / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i)
      y.at(r * n + i) =
          (x.at(r * n + i) - mean) / std::sqrt(square + eps) * gamma.at(i) +
          (beta ? beta->at(i) : 0);
  }
  return y;
}

Problem layer_problem(const Shape& x, double eps = 1e-2) {
  const Shape n{x.back()};
  return {{values(x, 1), values(n, 2), values(n, 3)},
          [=](const auto& in) { return layer_norm(in[0], in[1], in[2], eps); },
          [=](const auto& in) { return reference(in[0], in[1], &in[2], eps); }};
}

Problem rms_problem(const Shape& x, double eps = 1e-2) {
  return {
      {values(x, 1), values({x.back()}, 2)},
      [=](const auto& in) { return rms_norm(in[0], in[1], eps); },
      [=](const auto& in) { return reference(in[0], in[1], nullptr, eps); }};
}

const std::vector<Case> kCases = {{"x=2", {"R", "R", "R"}},
                                  {"x=2", {"S0", "R", "R"}},
                                  {"x=2", {"S1", "S0", "S0"}},
                                  {"x=3", {"S1", "R", "S0"}},
                                  {"x=2", {"P", "R", "R"}},
                                  {"x=2", {"S0", "P", "P"}},
                                  {"x=2,y=2", {"S0,S1", "R,S0", "R,S0"}},
                                  {"x=2,y=2", {"S1,S1", "S0,S0", "R"}},
                                  {"x=2,y=3", {"S1,S0", "S0,R", "S0,R"}}};

TEST(LayerNormTest, Layouts) { check_problem(layer_problem({5, 7}), kCases); }
TEST(RmsNormTest, Layouts) { check_problem(rms_problem({5, 7}), kCases); }

TEST(LayerNormTest, EmptyParts) {
  const std::vector<Case> cases = {{"x=3", {"S1", "S0", "S0"}},
                                   {"x=3", {"S0"}},
                                   {"x=2,y=3", {"S0,S1", "R", "R"}}};
  check_problem(layer_problem({2, 2}), cases);
  check_problem(rms_problem({2, 2}), cases);
}

TEST(LayerNormTest, OtherRanks) {
  check_problem(layer_problem({7}), {{"x=2", {"S0", "S0", "S0"}}});
  check_problem(rms_problem({7}), {{"x=3", {"S0", "R"}}});
  check_problem(layer_problem({2, 3, 5}),
                {{"x=2,y=2", {"S0,S1", "R", "R"}},
                 {"x=2,y=2", {"S1,S2", "R,S0", "R,S0"}}});
}

TEST(LayerNormTest, NoRows) {
  for (const char* layout : {"S0", "S1"})
    on_mesh("x=2", [&](const Mesh& mesh) {
      DistTensor x = put(zeros_like({0, 5}), mesh, layout).set_requires_grad();
      DistTensor gamma = put(values({5}, 1), mesh).set_requires_grad();
      DistTensor beta = put(values({5}, 2), mesh).set_requires_grad();
      auto g = grad(sum(layer_norm(x, gamma, beta)), {x, gamma, beta});
      for (int i : {1, 2})
        expect_near(array_of(g[static_cast<size_t>(i)].full()), zeros_like({5}),
                    0, layout);
    });
}

TEST(LayerNormTest, Types) {
  check_types(layer_problem({5, 7}), {"S1", "S0", "R"});
  check_types(rms_problem({5, 7}), {"S0", "R"});
}

// A large mean does not drown the variance, split or not.
TEST(LayerNormTest, LargeMean) {
  Array x = values({3, 8}, 1);
  for (double& v : x.v) v += 1e6;
  const Array gamma = values({8}, 2), beta = values({8}, 3);
  const Array want = reference(x, gamma, &beta, 1e-5);
  for (const char* layout : {"R", "S1"})
    on_mesh("x=2", [&](const Mesh& mesh) {
      expect_near(array_of(layer_norm(put(x, mesh, layout), put(gamma, mesh),
                                      put(beta, mesh))
                               .full()),
                  want, 1e-8, layout);
    });
}

// With the rows split over one axis and the batch over the other, the
// parameters' gradients are partial sums over the batch's axis.
TEST(LayerNormTest, ParameterGradientsStayPartial) {
  run(4, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"dp", 2}, {"tp", 2}});
    DistTensor x = put(values({4, 8}, 1), mesh, "S0,S1").set_requires_grad();
    DistTensor gamma = put(values({8}, 2), mesh, "R,S0").set_requires_grad();
    DistTensor beta = put(values({8}, 3), mesh, "R,S0").set_requires_grad();
    DistTensor y = layer_norm(x, gamma, beta);
    rt.context().record = true;
    auto g = grad(y, {x, gamma, beta},
                  {.keep_partial = true,
                   .cotangent = put(values({4, 8}, 4), mesh, "S0,S1")});
    EXPECT_EQ(g[1].spec()->to_string(), "f64[8](P,S0)");
    EXPECT_EQ(g[2].spec()->to_string(), "f64[8](P,S0)");
    ASSERT_EQ(rt.context().events.size(), 1u);
    // Two sums for each of the two rows here, in one message.
    EXPECT_EQ(rt.context().events[0].op, "layer_norm_backward");
    EXPECT_EQ(rt.context().events[0].counted, 2 * 2 * 8);
  });
}

TEST(LayerNormTest, Errors) {
  EXPECT_EQ(error_of(2,
                     [](const Mesh& m) {
                       rms_norm(put(values({2, 3}, 1), m),
                                put(values({3}, 1), m, "", DType::kF32));
                     }),
            "[rms_norm] input 0 is f64 and input 1 is f32; cast one to the "
            "other's type");
  EXPECT_NE(
      error_of(2,
               [](const Mesh& m) {
                 rms_norm(put(values({2, 3}, 1), m), put(values({2}, 1), m));
               })
          .find("'n' of the rule"),
      std::string::npos);
  EXPECT_EQ(error_of(2,
                     [](const Mesh& m) {
                       DistTensor x = put(values({2, 3}, 1), m);
                       x.set_requires_grad();
                       std::vector in{x, put(values({3}, 1), m)};
                       const Attrs attrs = norm_ops()[1]->samples()[0].attrs;
                       grad(sum(apply(*norm_ops()[1], in, attrs)[1]), {x});
                     }),
            "[rms_norm] output 1, a statistic of the rows, has no gradient; "
            "detach() it");
}

}  // namespace
}  // namespace dtensor::testing
