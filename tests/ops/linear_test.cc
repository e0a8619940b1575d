// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

// linear() by plain loops, with torch's formula of gelu_tanh.
Array reference(const Array& x, const Array& w, const Array* b,
                Activation then) {
  const int64_t n = w.shape[0], k = w.shape[1],
                rows = k ? numel(x.shape) / k : 0;
  Shape shape = x.shape;
  shape[shape.size() - 1] = n;
  Array y = zeros_like(shape);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < n; ++o) {
      double sum = b ? b->at(o) : 0;
      for (int64_t i = 0; i < k; ++i) sum += x.at(r * k + i) * w.at(o * k + i);
      if (then == Activation::kGeluTanh)
        sum *= 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) *
                                    (sum + 0.044715 * sum * sum * sum)));
      y.at(r * n + o) = sum;
    }
  return y;
}

Problem problem(const Shape& x, int64_t n, bool bias, Activation then) {
  Problem p;
  p.inputs = {values(x, 1, 0.5), values({n, x.back()}, 2, 0.5)};
  if (bias) p.inputs.push_back(values({n}, 3));
  p.function = [=](const auto& in) {
    return linear(in[0], in[1], bias ? in[2] : DistTensor(), then);
  };
  p.reference = [=](const auto& in) {
    return reference(in[0], in[1], bias ? &in[2] : nullptr, then);
  };
  return p;
}

constexpr Activation kActivations[] = {Activation::kNone,
                                       Activation::kGeluTanh};

const std::vector<Case> kCases = {
    {"x=2", {"R", "R", "R"}},
    {"x=2", {"S0"}},                        // the batch
    {"x=3", {"R", "S0", "S0"}},             // column parallel
    {"x=2", {"S2", "S1", "R"}},             // row parallel
    {"x=3", {"S2", "S1", "S0"}},            //
    {"x=2", {"P", "R", "R"}},               // sums that were not reduced
    {"x=2", {"R", "P", "P"}},               //
    {"x=2,y=2", {"S0,S1", "R", "R"}},       //
    {"x=2,y=2", {"S0,R", "R,S0", "R,S0"}},  // data and tensor parallel
    {"x=2,y=3", {"S0,S2", "R,S1", "R"}},    //
    {"x=2,y=2", {"S2,S2", "S1,S1", "R"}},   // the sum over both axes
    {"x=2,y=2", {"P,S2", "R,S1", "R,P"}}};

TEST(LinearTest, Layouts) {
  for (Activation then : kActivations)
    for (bool bias : {true, false})
      check_problem(problem({2, 4, 5}, 7, bias, then), kCases);
}

TEST(LinearTest, EmptyParts) {
  const std::vector<Case> cases = {
      {"x=3", {"S1", "S1", "R"}}, {"x=3", {"S0"}}, {"x=3", {"R", "S0", "S0"}}};
  for (Activation then : kActivations)
    check_problem(problem({2, 2}, 2, true, then), cases);
}

TEST(LinearTest, OtherRanks) {
  for (Activation then : kActivations) {
    check_problem(problem({5}, 3, true, then),
                  {{"x=2", {"S0", "S1"}}, {"x=2", {"R", "S0"}}});
    check_problem(problem({2, 1, 3, 1}, 1, true, then), {{"x=2", {"S0", "R"}}});
  }
}

// A sum of no products is the bias.
TEST(LinearTest, NothingToAddUp) {
  for (Activation then : kActivations)
    on_mesh("x=2", [&](const Mesh& mesh) {
      const Array b = values({3}, 1);
      const DistTensor x =
          put(zeros_like({4, 0}), mesh, "S0").set_requires_grad();
      const DistTensor w = put(zeros_like({3, 0}), mesh).set_requires_grad();
      const DistTensor bias = put(b, mesh).set_requires_grad();
      const DistTensor y = linear(x, w, bias, then);
      Array want = zeros_like({4, 3}), none = zeros_like({1, 1}),
            one = zeros_like({1, 1});
      for (int64_t i = 0; i < 12; ++i) {
        one.at(0) = b.at(i % 3);
        want.at(i) = reference(none, none, &one, then).at(0);
      }
      expect_near(array_of(y.full()), want, 1e-12, "value");
      const auto g = grad(sum(y), {x, w, bias});
      EXPECT_EQ(g[1].shape(), (Shape{3, 0}));
      Array slopes = zeros_like({3});
      for (int64_t i = 0; i < 3; ++i) {
        one.at(0) = b.at(i) + 1e-6;
        slopes.at(i) = reference(none, none, &one, then).at(0);
        one.at(0) = b.at(i) - 1e-6;
        slopes.at(i) -= reference(none, none, &one, then).at(0);
        slopes.at(i) *= 4 / 2e-6;
      }
      expect_near(array_of(g[2].full()), slopes, 1e-7, "gradient");
    });
}

TEST(LinearTest, NoRows) {
  for (Activation then : kActivations)
    on_mesh("x=2", [&](const Mesh& mesh) {
      const DistTensor x =
          put(zeros_like({0, 5}), mesh, "S0").set_requires_grad();
      const DistTensor w = put(values({3, 5}, 1), mesh).set_requires_grad();
      const DistTensor b = put(values({3}, 2), mesh).set_requires_grad();
      const auto g = grad(sum(linear(x, w, b, then)), {x, w, b});
      expect_near(array_of(g[1].full()), zeros_like({3, 5}), 0, "weight");
      expect_near(array_of(g[2].full()), zeros_like({3}), 0, "bias");
    });
}

// x has as many dimensions as a tensor may have, with strides in any order.
TEST(LinearTest, StridesThatAreOneProductEach) {
  for (Activation then : kActivations)
    on_mesh("x=1", [&](const Mesh& mesh) {
      const Shape shape{2, 2, 1, 3, 2, 2, 2, 3};
      std::vector<int> turned{6, 5, 4, 3, 2, 1, 0, 7};
      const Array w = values({2, 3}, 2), b = values({2}, 3),
                  weights = values({2, 2, 2, 3, 1, 2, 2, 2}, 4);
      DistTensor x = put(values(shape, 1), mesh);
      // The same values with and without strides.
      const DistTensor strided = permute(x, turned);
      const DistTensor plain = DistTensor::from_global(
          strided.full().to_contiguous(), mesh, Placements(""));
      std::vector<Array> results[2];
      for (int i : {0, 1}) {
        DistTensor in = (i ? plain : strided).detach();
        in.set_requires_grad();
        const DistTensor wt = put(w, mesh).set_requires_grad();
        const DistTensor bt = put(b, mesh).set_requires_grad();
        const DistTensor y = linear(in, wt, bt, then);
        results[i].push_back(array_of(y.full()));
        for (const DistTensor& g :
             grad(y, {in, wt, bt}, {.cotangent = put(weights, mesh)}))
          results[i].push_back(array_of(g.full()));
      }
      for (size_t k = 0; k < 4; ++k)
        expect_near(results[0][k], results[1][k], 1e-12,
                    "result " + std::to_string(k));
      expect_near(results[1][0], reference(array_of(plain.full()), w, &b, then),
                  1e-12, "value");
    });
}

// The derivatives through the value and through its gradient add up.
TEST(LinearTest, AValueAndItsGradientTogether) {
  on_mesh("x=2", [&](const Mesh& mesh) {
    std::vector<DistTensor> in;
    for (const Array& a :
         {values({3, 4}, 1), values({5, 4}, 2), values({5}, 3)})
      in.push_back(put(a, mesh).set_requires_grad());
    const DistTensor y = linear(in[0], in[1], in[2], Activation::kGeluTanh);
    const DistTensor slope = grad(
        y, {in[0]},
        {.create_graph = true, .cotangent = put(values({3, 5}, 4), mesh)})[0];
    const DistTensor one = sum(y * put(values({3, 5}, 5), mesh)),
                     other = sum(slope * put(values({3, 4}, 6), mesh));
    const auto of_one = grad(one, in), of_other = grad(other, in),
               of_both = grad(one + other, in);
    for (size_t i = 0; i < in.size(); ++i)
      expect_near(array_of(of_both[i].full()),
                  array_of((of_one[i] + of_other[i]).full()), 1e-12,
                  "input " + std::to_string(i));
  });
}

TEST(LinearTest, Types) {
  for (Activation then : kActivations) {
    check_types(problem({4, 5}, 7, true, then), {"S0", "R", "R"});
    check_types(problem({4, 5}, 7, true, then), {"S1", "S1", "R"});
  }
}

// Values and gradients in every type against f64, on one rank.
TEST(LinearTest, GradientsInAllTypes) {
  for (Activation then : kActivations) {
    const Problem p = problem({33, 17}, 9, true, then);
    const Array weights = values({33, 9}, 91);
    std::vector<Array> want;
    for (DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
      on_mesh("x=1", [&](const Mesh& mesh) {
        std::vector<DistTensor> in;
        for (const Array& a : p.inputs)
          in.push_back(put(a, mesh, "", t).set_requires_grad());
        const DistTensor y = p.function(in);
        std::vector<DistTensor> got =
            grad(y, in, {.cotangent = put(weights, mesh, "", t)});
        got.push_back(y);
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_EQ(name(got[i].dtype()), name(t));
          if (t == DType::kF64) {
            want.push_back(array_of(got[i].full()));
            continue;
          }
          const double tolerance = t == DType::kF32   ? 2e-5
                                   : t == DType::kF16 ? 1e-2
                                                      : 6e-2;
          expect_near(array_of(got[i].full()), want[i], tolerance,
                      std::string(name(t)) + " " + std::to_string(i));
        }
      });
  }
}

TEST(LinearTest, TypesArePromotedAndIntegersWrapAround) {
  on_mesh("x=2", [&](const Mesh& mesh) {
    const Array x = values({3, 4}, 1), w = values({2, 4}, 2),
                b = values({2}, 3);
    const DistTensor y =
        linear(put(x, mesh, "S0", DType::kBF16), put(w, mesh, "", DType::kF32),
               put(b, mesh, "", DType::kF16), Activation::kGeluTanh);
    EXPECT_EQ(name(y.dtype()), "f32");
    expect_near(array_of(y.full()), reference(x, w, &b, Activation::kGeluTanh),
                4e-2, "mixed");
    const DistTensor z = linear(put(integers({1, 2}, {3, 4}), mesh),
                                put(integers({1, 2}, {5, 6}), mesh),
                                put(integers({1}, {7}), mesh));
    EXPECT_EQ(name(z.dtype()), "i64");
    EXPECT_EQ(z.full().at(0), 3 * 5 + 4 * 6 + 7);
  });
}

TEST(LinearTest, AWeightOfOneOutput) {
  for (Activation then : kActivations)
    on_mesh("x=2", [&](const Mesh& mesh) {
      const Array x = values({3, 4}, 1), w = values({4}, 2);
      Array row = w, b = zeros_like({1});
      row.shape = {1, 4};
      b.at(0) = 0.25;
      const DistTensor y = linear(put(x, mesh, "S1"), put(w, mesh),
                                  put({{}, {0.25}}, mesh), then);
      Array want = reference(x, row, &b, then);
      want.shape = {3};
      expect_near(array_of(y.full()), want, 1e-12, "value");
    });
}

// --- Layouts and what is sent
// -------------------------------------------------

struct Sent {
  std::string layout;
  int64_t forward = 0, backward = 0;
  std::vector<std::string> operators;
};

// Runs a layer with these layouts of x [8, 16], weight [32, 16] and bias [32],
// forward and backward. Weight and bias are parameters, which do not move.
Sent send(const std::string& x, const std::string& w, const std::string& b,
          Activation then, bool composed = false) {
  Sent sent;
  run(2, [&](Runtime& rt) {
    RankContext& context = rt.context();
    const Mesh mesh = rt.mesh();
    DistTensor in = put(values({8, 16}, 1), mesh, x).set_requires_grad();
    DistTensor weight = put(values({32, 16}, 2), mesh, w);
    DistTensor bias = put(values({32}, 3), mesh, b);
    for (DistTensor* p : {&weight, &bias}) {
      p->as_parameter();
      p->set_requires_grad();
    }
    Sent mine;
    context.record = true;
    const OnOp observe(
        context, [&](const OpRan& op) { mine.operators.emplace_back(op.op); });
    const auto bytes = [&] {
      int64_t n = 0;
      for (const CommEvent& e : context.events) n += e.predicted;
      return n;
    };
    DistTensor y;
    if (composed) {
      y = einsum("...i,oi->...o", {in, weight}) + bias;
      if (then == Activation::kGeluTanh) y = gelu_tanh(y);
    } else {
      y = linear(in, weight, bias, then);
    }
    mine.layout = y.spec()->layout().to_string(mesh);
    mine.forward = bytes();
    grad(y, {in, weight, bias},
         {.cotangent = put(values({8, 32}, 4), mesh,
                           mine.layout == "P" ? "" : mine.layout)});
    mine.backward = bytes() - mine.forward;
    if (rt.rank() == 0) sent = mine;
  });
  return sent;
}

TEST(LinearTest, SendsWhatItsPartsWould) {
  for (Activation then : kActivations)
    for (const auto& [x, w, b] :
         std::vector<std::array<std::string, 3>>{{"S0", "", ""},
                                                 {"", "S0", "S0"},
                                                 {"S0", "S0", "S0"},
                                                 {"S1", "S1", ""},
                                                 {"P", "", ""},
                                                 {"S0", "S1", ""},
                                                 {"S1", "S0", "S0"},
                                                 {"S1", "", ""}}) {
      SCOPED_TRACE(x + ", " + w + ", " + b);
      const Sent one = send(x, w, b, then), parts = send(x, w, b, then, true);
      EXPECT_EQ(one.layout, parts.layout);
      EXPECT_LE(one.forward, parts.forward);
      EXPECT_LE(one.backward, parts.backward);
    }
}

TEST(LinearTest, ARowParallelSumStaysPartialWithTheBiasInOneOfItsParts) {
  const Sent sent = send("S1", "S1", "", Activation::kNone);
  EXPECT_EQ(sent.layout, "P");
  EXPECT_EQ(sent.forward, 0);
}

using Names = std::vector<std::string>;

TEST(LinearTest, IsOneOperatorForwardAndAFewBack) {
  EXPECT_EQ(send("", "S0", "S0", Activation::kNone).operators,
            (Names{"linear", "linear", "linear_weight_gradient"}));
  EXPECT_EQ(send("", "S0", "S0", Activation::kGeluTanh).operators,
            (Names{"linear_gelu_tanh", "gelu_tanh'", "linear",
                   "linear_weight_gradient"}));
  // A split sum is reduced before the activation.
  EXPECT_EQ(
      send("S1", "S1", "", Activation::kGeluTanh).operators,
      (Names{"linear", "gelu_tanh", "gelu_tanh'", "linear", "linear", "sum"}));
}

// --- Two layers
// -----------------------------------------------------------------------------

// Two layers. `in` is x, w1, w2, b2 and, if `bias` is set, b1.
DistTensor feed_forward(const std::vector<DistTensor>& in, bool bias) {
  const DistTensor y =
      linear(in[0], in[1], bias ? in[4] : DistTensor(), Activation::kGeluTanh);
  return linear(y, in[2], in[3]);
}

std::vector<Array> feed_forward_inputs(const Shape& x, int64_t hidden,
                                       int64_t n) {
  return {values(x, 1, 0.5), values({hidden, x.back()}, 2, 0.5),
          values({n, hidden}, 3, 0.5), values({n}, 4), values({hidden}, 5)};
}

// Each element by plain loops, in double precision.
Problem feed_forward_problem(const Shape& x, int64_t hidden, int64_t n,
                             bool bias) {
  Problem p;
  p.inputs = feed_forward_inputs(x, hidden, n);
  if (!bias) p.inputs.pop_back();
  p.function = [=](const auto& in) { return feed_forward(in, bias); };
  p.reference = [=](const auto& in) {
    const Array y =
        reference(in[0], in[1], bias ? &in[4] : nullptr, Activation::kGeluTanh);
    return reference(y, in[2], &in[3], Activation::kNone);
  };
  return p;
}

// Layouts of x, w1, w2, b2, b1.
const std::vector<Case> kTwoLayers = {
    {"x=3", {}},
    {"x=3", {"S0"}},                         // the batch
    {"x=3", {"R", "S0", "S1", "R", "S0"}},   // column, then row parallel
    {"x=2", {"R", "S0", "S0", "S0", "S0"}},  // both column parallel
    {"x=2", {"R", "R", "S0", "S0"}},         // a partial gradient
    {"x=2", {"R", "S0", "P", "R", "S0"}},    //
    {"x=2", {"S2", "S1", "S1"}},             // a sum before the activation
    {"x=2,y=3", {"S0,R", "R,S0", "R,S1", "R", "R,S0"}},
    {"x=3,y=2", {"R,S1", "S0,R", "S1,R", "R", "S0,R"}},
    {"x=2,y=2", {"R", "S0,S0", "S1,S1", "R", "S0,S0"}},
    {"x=2,y=2", {"R", "S0,R", "S1,S0", "R,S0", "S0,R"}},
    {"x=2,y=2,z=2", {"S0,R,R", "R,S0,S0", "R,S1,S1", "R", "R,S0,S0"}}};

TEST(TwoLayersTest, Layouts) {
  for (bool bias : {true, false})
    check_problem(feed_forward_problem({2, 5, 3}, 7, 4, bias), kTwoLayers);
}

TEST(TwoLayersTest, EmptyParts) {
  check_problem(feed_forward_problem({2, 2}, 2, 2, true),
                {{"x=3", {"S0"}}, {"x=3", {"R", "S0", "S1", "R", "S0"}}});
}

TEST(TwoLayersTest, OtherUsesOfWhatTheActivationMade) {
  const Array more = values({2, 5, 7}, 6);
  for (bool bias : {true, false}) {
    Problem p = feed_forward_problem({2, 5, 3}, 7, 4, bias);
    p.function = [=](const auto& in) {
      const DistTensor y = linear(in[0], in[1], bias ? in[4] : DistTensor(),
                                  Activation::kGeluTanh);
      // Two more layers use the activation's result, and so does a sum.
      const DistTensor sums =
          sum(y * put(more, y.mesh()), std::vector<int>{2}, true);
      return linear(y, in[2], in[3]) + linear(y, in[2] * 0.5, in[3]) * 2 + sums;
    };
    p.reference = [=](const auto& in) {
      const Array y = reference(in[0], in[1], bias ? &in[4] : nullptr,
                                Activation::kGeluTanh);
      Array half = in[2], all = reference(y, in[2], &in[3], Activation::kNone);
      for (double& w : half.v) w *= 0.5;
      const Array other = reference(y, half, &in[3], Activation::kNone);
      for (int64_t i = 0; i < numel(all.shape); ++i) {
        all.at(i) += 2 * other.at(i);
        for (int64_t j = 0; j < 7; ++j)
          all.at(i) += y.at(i / 4 * 7 + j) * more.at(i / 4 * 7 + j);
      }
      return all;
    };
    p.second_order = false;
    check_problem(p, {{"x=3", {"S1"}},
                      {"x=2,y=3", {"S0,R", "R,S0", "R,S1", "R", "R,S0"}}});
  }
}

// --- What it refuses
// ----------------------------------------------------------

std::string error(const Shape& x, const Shape& w, const Shape& b) {
  return error_of(2, [&](const Mesh& mesh) {
    linear(put(values(x, 1), mesh), put(values(w, 1), mesh),
           put(values(b, 1), mesh));
  });
}

TEST(LinearTest, SaysWhatDoesNotFit) {
  EXPECT_EQ(
      error({2, 3}, {5, 4}, {5}),
      "[linear] x is f64[2, 3](R) and the weight f64[5, 4](R): their last "
      "dimensions have to be the same");
  EXPECT_EQ(error({}, {5, 4}, {5}),
            "[linear] x is f64[](R) and the weight f64[5, 4](R): their last "
            "dimensions have to be the same");
  EXPECT_EQ(error({2, 4}, {5, 4}, {4}),
            "[linear] the bias is f64[4](R), for the weight f64[5, 4](R); its "
            "shape has to be [5]");
  EXPECT_EQ(error({2, 4}, {4}, {1}),
            "[linear] the bias is f64[1](R), for the weight f64[4](R); its "
            "shape has to be []");
  EXPECT_EQ(
      error({2, 4}, {2, 5, 4}, {5}),
      "[linear] the weight is f64[2, 5, 4](R); it has to be [n, k] or [k]");
}

// apply() does not promote types, so it refuses operands of two types.
TEST(LinearTest, AnOperatorTakesOneType) {
  for (const Op* op : op_family("linear")) {
    const std::vector<SampleInput> inputs = op->samples()[0].inputs;
    if (inputs.size() < 3) continue;
    const std::string message = error_of(1, [&](const Mesh& mesh) {
      std::vector<DistTensor> in;
      for (const SampleInput& input : inputs)
        in.push_back(put(values(input.shape, 1), mesh, "",
                         in.size() == 1 ? DType::kF32 : DType::kF64));
      dtensor::apply(*op, in);
    });
    EXPECT_NE(message.find("input 0 is f64 and input 1 is f32; cast both to "
                           "one float type"),
              std::string::npos)
        << message;
  }
}

// The scale is the largest magnitude of a row over 127. Halves are rounded to
// even; a row of zeros stays zero.
TEST(Int8LinearTest, WeightsAreMultiplesOfTheirScale) {
  const float w[] = {1, -2, 127, 0.5, 1.5, -254, 0, 0, 0, 0.25, 0.125, -0.25};
  for (const char* layout : {"R", "S0", "S1"})
    run(2, [&](Runtime& rt) {
      const DistTensor all = DistTensor::from_global(
          Tensor::from({4, 3}, w), rt.mesh({{"x", 2}}), layout);
      const Int8Weight q = to_int8(all);
      EXPECT_EQ(q.weight.layout(), all.layout());
      EXPECT_EQ(q.weight.dtype(), DType::kI8);
      EXPECT_EQ(q.scale.dtype(), DType::kF32);
      EXPECT_EQ(values(q.weight),
                (std::vector<double>{1, -2, 127, 0, 1, -127, 0, 0, 0, 127, 64,
                                     -127}));
      EXPECT_EQ(values(q.scale), (std::vector<double>{1, 2, 0, 0.25f / 127}));
    });
}

// torch 2.15's _weight_int8pack_mm(x, w, scale) of these, in f32.
TEST(Int8LinearTest, IsTorchs) {
  Array x = zeros_like({2, 32}, DType::kF32),
        w = zeros_like({4, 32}, DType::kI8);
  for (int64_t i = 0; i < 64; ++i)
    x.at(i) = static_cast<double>(i % 13 - 6) / 8;
  for (int64_t i = 0; i < 128; ++i)
    w.at(i) = static_cast<double>(i * 37 % 255 - 127);
  const Array scale{{4}, {0.5, 0.25, 0.01, 0.003}, DType::kF32},
      bias{{4}, {1, 2, 3, 4}, DType::kF32};
  const double want[] = {
      79.25,    -68.0,     3.1750001907348633,  -0.5302500128746033,
      122.5625, -53.09375, 0.31374990940093994, -0.13087497651576996};
  run(2, [&](Runtime& rt) {
    const Mesh m = rt.mesh({{"x", 2}});
    const DistTensor a = put(x, m, "S1"), b = put(w, m, "S1"),
                     s = put(scale, m);
    const auto y = values(int8_linear(a, b, s)),
               more = values(int8_linear(a, b, s, put(bias, m)));
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(y[i], want[i], 1e-6) << i;
      EXPECT_NEAR(more[i], want[i] + bias.v[i % 4], 1e-6) << i;
    }
  });
}

// Sums without the scale do not fit into f16, and neither does a gradient times
// a small scale.
TEST(Int8LinearTest, GradientsOfF16AreSummedInF32) {
  run(2, [](Runtime& rt) {
    const Mesh m = rt.mesh({{"x", 2}});
    const int64_t k = 512;
    DistTensor x = full({1, k}, 256, m, {}, DType::kF16);
    const DistTensor w = full({4, k}, 127, m, "S0", DType::kI8);
    DistTensor scale = full({4}, 0x1p-17, m);
    x.set_requires_grad();
    scale.set_requires_grad();
    const DistTensor dy = full({1, 4}, 0x1p-14, m, {}, DType::kF16);
    const auto grads =
        grad(int8_linear(x, w, scale), {x, scale}, {.cotangent = dy});
    // 4 x 127 / 2^31 is above the smallest number of f16, 2^-24.
    EXPECT_NEAR(values(grads[0])[0], 4 * 127 * 0x1p-31, 0x1p-25);
    EXPECT_EQ(values(grads[1]),
              std::vector<double>(4, 0x1p-14 * 256 * 127 * k));
  });
}

TEST(Int8LinearTest, TypesThatDoNotFitAreSentences) {
  run(2, [](Runtime& rt) {
    const Mesh m = rt.mesh({{"x", 2}});
    const DistTensor x = full({2, 3}, 1, m),
                     w = full({4, 3}, 2, m, "S0", DType::kI8),
                     s = full({4}, 1, m), f = full({4, 3}, 1, m);
    EXPECT_EQ(values(int8_linear(x, w, s)), std::vector<double>(8, 6));
    EXPECT_EQ(error_of([&] { int8_linear(x, f, s); }),
              "[int8_linear] the weight is f32, but must be i8; make it with "
              "to_int8(), or call linear()");
    EXPECT_NE(error_of([&] {
                int8_linear(cast(x, DType::kI64), w, s);
              }).find("takes f32, f64, bf16 or f16, but got i64"),
              std::string::npos);
    EXPECT_EQ(error_of([&] { int8_linear(x, w, cast(s, DType::kI64)); }),
              "[int8_linear] the scale is i64, but must be f32, f64, bf16 or "
              "f16; make it with to_int8()");
    const std::string none =
        "i8 holds weights and has no arithmetic; write cast(x, DType::kF32)";
    const std::function<void()> refused[] = {
        [&] { linear(x, w); },
        [&] { add(w, w); },
        [&] { mul(w, 2); },
        [&] {
          matmul(w, view(w.redistribute("R"), {3, 4}));
        },
        [&] { amax(w); },
        [&] { exp(w); },
        [&] { mul(x, w); },
        [&] {
          DistTensor::from_local(w.local(), m, "P", w.local().shape())
              .redistribute("R");
        }};
    for (const auto& call : refused)
      EXPECT_NE(error_of(call).find(none), std::string::npos) << error_of(call);
  });
}

// A row-parallel product plus its bias was all-reduced at once, because two
// ways to add a partial and a whole tensor had the same price. So it could not
// be reduce-scattered later, into a sequence-parallel layout.

DistTensor numbers(const Shape& s, const Mesh& m, const Placements& p,
                   uint64_t stream) {
  return randn(s, m, p, DType::kF64, {3, stream});
}

void expect_near(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < want.numel(); ++i)
    EXPECT_NEAR(got.at(i), want.at(i), 1e-12);
}

TEST(PartialPlusWhole, RowParallelWithABiasIsReduceScattered) {
  const Mesh mesh = Mesh::parse("tp=4");
  run(4, [&](Runtime& rt) {
    DistTensor x = numbers({8, 12}, mesh, "S1", 1);
    DistTensor w = numbers({12, 6}, mesh, "S0", 2).as_parameter();
    DistTensor b = numbers({6}, mesh, "R", 3).as_parameter();
    x.set_requires_grad();
    rt.context().record = true;
    auto& events = rt.context().events;
    events.clear();
    const DistTensor sum = add(matmul(x, w), b);
    EXPECT_TRUE(events.empty());
    EXPECT_EQ(sum.layout().to_string(mesh), "P");
    const DistTensor y = sum.redistribute("S0");
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, StepKind::kReduceScatter);
    EXPECT_EQ(events[0].predicted, 3 * 2 * 6 * 8);
    EXPECT_EQ(events[0].counted, 3 * 2 * 6 * 8);

    // The value and the gradients, against those of whole tensors.
    DistTensor wx = numbers({8, 12}, mesh, "R", 1);
    DistTensor ww = numbers({12, 6}, mesh, "R", 2);
    DistTensor wb = numbers({6}, mesh, "R", 3);
    for (DistTensor* t : {&wx, &ww, &wb}) t->set_requires_grad();
    const DistTensor whole = add(matmul(wx, ww), wb);
    const DistTensor weight = numbers({8, 6}, mesh, "R", 4);
    expect_near(y.full(), whole.full());
    const auto got = grad(dtensor::sum(mul(mul(y, y), weight)), {x, w, b});
    const auto want =
        grad(dtensor::sum(mul(mul(whole, whole), weight)), {wx, ww, wb});
    for (size_t i = 0; i < want.size(); ++i)
      expect_near(got[i].full(), want[i].full());
    EXPECT_EQ(got[1].layout().to_string(mesh), "S0");
    EXPECT_EQ(got[2].layout().to_string(mesh), "R");
  });
}

}  // namespace
}  // namespace dtensor::testing
