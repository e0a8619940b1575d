// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/norm.h"

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/op.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

// Layer norm of rows of n elements, or RMS norm if `beta` is null.
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

// y + 0.7 x^2 for x = a + b, so that both outputs are used and their cotangents
// differ. RMS norm if `layer` is false.
Problem sum_problem(bool layer, const Shape& shape, double eps = 1e-2) {
  const Shape n{shape.back()};
  Problem p;
  p.inputs = {values(shape, 1), values(shape, 5), values(n, 2)};
  if (layer) p.inputs.push_back(values(n, 3));
  p.function = [=](const auto& in) {
    const Normed out = layer ? add_layer_norm(in[0], in[1], in[2], in[3], eps)
                             : add_rms_norm(in[0], in[1], in[2], eps);
    return out.y + square(out.x) * 0.7;
  };
  p.reference = [=](const auto& in) {
    Array x = in[0];
    for (int64_t i = 0; i < numel(x.shape); ++i) x.at(i) += in[1].at(i);
    Array y = reference(x, in[2], layer ? &in[3] : nullptr, eps);
    for (int64_t i = 0; i < numel(x.shape); ++i)
      y.at(i) += 0.7 * x.at(i) * x.at(i);
    return y;
  };
  return p;
}

// The problem of sum_problem() for x = a, without b.
Problem through_problem(bool layer, const Shape& shape, double eps = 1e-2) {
  Problem p = sum_problem(layer, shape, eps);
  p.inputs.erase(p.inputs.begin() + 1);
  p.function = [=](const auto& in) {
    const Normed out = layer ? layer_norm_through(in[0], in[1], in[2], eps)
                             : rms_norm_through(in[0], in[1], eps);
    return out.y + square(out.x) * 0.7;
  };
  const Reference of_sum = p.reference;
  p.reference = [=](std::vector<Array> in) {
    in.insert(in.begin() + 1, zeros_like(in[0].shape));
    return of_sum(in);
  };
  return p;
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

// Layouts of the two summands, and of the parameters.
const std::vector<Case> kSumCases = {
    {"x=2", {"R", "R", "R", "R"}},
    {"x=2", {"S0", "S0", "R", "R"}},
    {"x=2", {"S1", "S1", "S0", "S0"}},
    {"x=3", {"S1", "R", "R", "S0"}},
    {"x=2", {"P", "R", "R", "R"}},
    {"x=2", {"R", "P", "R", "P"}},
    {"x=2", {"P", "P", "R", "R"}},
    {"x=3", {"S0", "P", "P", "R"}},
    {"x=2,y=2", {"S0,S1", "S0,S1", "R,S0", "R,S0"}},
    {"x=2,y=2", {"S0,P", "S0,R", "R", "R"}},
    {"x=2,y=3", {"P,R", "R,P", "S0,R", "S0,R"}}};

TEST(AddNormTest, Layouts) {
  check_problem(sum_problem(true, {5, 7}), kSumCases);
  check_problem(sum_problem(false, {5, 7}), kSumCases);
}

TEST(AddNormTest, EmptyPartsAndOtherRanks) {
  const std::vector<Case> cases = {{"x=3", {"S1", "S1", "S0", "S0"}},
                                   {"x=3", {"S0", "S0"}},
                                   {"x=2,y=3", {"S0,S1", "S0,S1"}}};
  for (bool layer : {false, true}) {
    check_problem(sum_problem(layer, {2, 2}), cases);
    check_problem(sum_problem(layer, {7}), {{"x=2", {"S0", "R", "S0", "S0"}}});
    check_problem(sum_problem(layer, {2, 3, 5}),
                  {{"x=2,y=2", {"S1,S2", "S1,S2", "R,S0", "R,S0"}}});
  }
}

TEST(AddNormTest, Types) {
  check_types(sum_problem(true, {5, 7}), {"S1", "S1", "S0", "R"});
  check_types(sum_problem(false, {5, 7}), {"S0", "P", "R"});
}

TEST(NormThroughTest, LayoutsAndTypes) {
  for (bool layer : {false, true}) {
    check_problem(through_problem(layer, {5, 7}), kCases);
    check_types(through_problem(layer, {5, 7}), {"P", "R", "R"});
  }
}

// A partial summand is reduced once, for both outputs. So forward and backward
// send what separate calls of x + y and norm(x + y) would.
TEST(AddNormTest, ReducesOnce) {
  const auto collectives = [](const std::string& a, const std::string& b) {
    std::string text;
    run(2, [&](Runtime& rt) {
      const Mesh mesh = rt.mesh();
      DistTensor x = put(values({4, 8}, 1), mesh, a).set_requires_grad();
      DistTensor r = put(values({4, 8}, 2), mesh, b).set_requires_grad();
      const DistTensor gamma = put(values({8}, 3), mesh);
      rt.context().record = true;
      const Normed out = add_rms_norm(x, r, gamma);
      EXPECT_EQ(out.x.spec()->to_string(), "f64[4, 8](R)");
      EXPECT_EQ(out.y.spec(), out.x.spec());
      // The cotangents of both outputs are whole.
      grad(sum(out.y * put(values({4, 8}, 4), mesh) + out.x * out.y), {x, r});
      if (rt.rank() == 0)
        for (const CommEvent& e : rt.context().events) {
          EXPECT_EQ(e.counted, e.predicted);
          text += e.op + " " + std::to_string(e.counted) + ";";
        }
    });
    return text;
  };
  const std::string once = std::to_string(4 * 8 * 8) + ";";
  EXPECT_EQ(collectives("R", "P"), "add_rms_norm " + once);
  EXPECT_EQ(collectives("P", "R"), "add_rms_norm " + once);
  EXPECT_EQ(collectives("P", "P"), "rms_norm_through " + once);
  EXPECT_EQ(collectives("R", "R"), "");
}

// The sum, y and the statistics are saved, but neither of the summands.
TEST(AddNormTest, SavesTheSumAlone) {
  run(1, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    const int64_t bytes = 64 * 64 * 8;
    DistTensor x = put(values({64, 64}, 1), mesh).set_requires_grad();
    DistTensor r = put(values({64, 64}, 2), mesh).set_requires_grad();
    const DistTensor gamma = put(values({64}, 3), mesh);
    const auto live = [&] {
      return rt.context().allocator->stats().current_bytes;
    };
    DistTensor a = x * 2, b = r * 3;
    const int64_t before = live();
    DistTensor y = add_rms_norm(a, b, gamma).y;
    a = b = DistTensor();
    EXPECT_LT(live() - before, bytes);
    const auto g = grad(sum(y * y), {x, r});
    EXPECT_EQ(g.size(), 2u);
  });
}

// Only one of the two outputs has a cotangent.
TEST(AddNormTest, OneOutput) {
  on_mesh("x=2", [](const Mesh& mesh) {
    DistTensor a = put(values({4, 8}, 1), mesh, "S0").set_requires_grad();
    DistTensor b = put(values({4, 8}, 2), mesh, "S0").set_requires_grad();
    DistTensor gamma = put(values({8}, 3), mesh).set_requires_grad();
    const Array w = values({4, 8}, 4);
    const GradOptions options{.cotangent = put(w, mesh, "S0")};
    auto g = grad(add_rms_norm(a, b, gamma).x, {a, b, gamma}, options);
    expect_near(array_of(g[0].full()), w, 0, "a");
    expect_near(array_of(g[1].full()), w, 0, "b");
    expect_near(array_of(g[2].full()), zeros_like({8}), 0, "gamma");
    g = grad(add_rms_norm(a, b, gamma).y, {a, b, gamma}, options);
    auto want = grad(rms_norm(a + b, gamma), {a, b, gamma}, options);
    for (size_t i = 0; i < 3; ++i)
      expect_near(array_of(g[i].full()), array_of(want[i].full()), 1e-14, "y");
  });
}

TEST(AddNormTest, Errors) {
  const auto of = [](const Shape& a, const Shape& b, DType t, const char* at) {
    return error_of(2, [&](const Mesh& m) {
      add_rms_norm(put(values(a, 1), m, at), put(values(b, 1), m, at, t),
                   put(values({3}, 1), m));
    });
  };
  for (const char* at : {"", "P"}) {
    EXPECT_EQ(of({2, 3}, {3}, DType::kF64, at),
              "[add_rms_norm] adds [2, 3] and [3], which it does not "
              "broadcast; pass both in one shape");
    EXPECT_EQ(of({2, 3}, {2, 3}, DType::kF32, at),
              "[add_rms_norm] input 0 is f64 and input 1 is f32; cast both to "
              "one float type");
  }
  EXPECT_EQ(
      error_of(2,
               [](const Mesh& m) {
                 DistTensor x = put(values({2, 3}, 1), m);
                 x.set_requires_grad();
                 const Op& op = *find_op("add_rms_norm");
                 std::vector in{x, x, put(values({3}, 1), m)};
                 grad(sum(apply(op, in, op.samples()[0].attrs)[2]), {x});
               }),
      "[add_rms_norm] output 2, a statistic of the rows, has no gradient; "
      "detach() it");
}

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
            "[rms_norm] input 0 is f64 and input 1 is f32; cast both to "
            "one float type");
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
                       const Op& op = *op_family("norm")[1];
                       const Attrs attrs = op.samples()[0].attrs;
                       grad(sum(apply(op, in, attrs)[1]), {x});
                     }),
            "[rms_norm] output 1, a statistic of the rows, has no gradient; "
            "detach() it");
}

// The backward operators of the norms and of cross entropy took statistics
// that broadcast against their rows, and the kernel read past their end.

TEST(NormBackwardRows, DoNotBroadcast) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const DistTensor x = ones({4, 3}, mesh), gamma = ones({3}, mesh);
    const DistTensor one = ones({1}, mesh), dy = ones({1, 3}, mesh);
    const Op& layer = *find_op("layer_norm_backward");
    const DistTensor in[] = {x, gamma, one, one, dy};
    EXPECT_THROW(apply(layer, in), Error);
    const Op& rms = *find_op("rms_norm_backward");
    const DistTensor few[] = {x, gamma, one, x};
    EXPECT_THROW(apply(rms, few), Error);
  });
}

// The kernel reads gamma, dy and what is added to dx as elements of x's type.
TEST(NormBackwardTypes, AreOne) {
  const Mesh mesh = Mesh::parse("a=1");
  run(1, [&](Runtime&) {
    for (const bool layer : {true, false})
      for (const bool more : {true, false}) {
        const std::string name =
            std::string(layer ? "layer_norm" : "rms_norm") +
            (more ? "_backward_add" : "_backward");
        const DistTensor x = ones({4, 3}, mesh), rows = ones({4}, mesh);
        std::vector<DistTensor> in = {x, ones({3}, mesh), rows};
        if (layer) in.push_back(rows);
        const size_t dy = in.size();
        in.push_back(x);
        if (more) in.push_back(x);
        const Op& op = *find_op(name);
        const Attrs attrs = op.samples()[0].attrs;
        EXPECT_EQ(apply(op, in, attrs)[0].shape(), x.shape());
        for (const size_t i : {size_t{1}, dy, in.size() - 1}) {
          std::vector<DistTensor> other = in;
          other[i] = cast(in[i], DType::kBF16);
          const std::string error = error_of([&] { apply(op, other, attrs); });
          EXPECT_NE(error.find("is bf16; cast both to one float type"),
                    error.npos)
              << name << " with another input " << i << ": " << error;
        }
      }
  });
}

}  // namespace
}  // namespace dtensor::testing
