// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/attention.h"

#include <algorithm>
#include <string>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/comm_event.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/owned.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

// Attention by its definition. q is [b, s, h, d], k and v are [b, t, g, d]. The
// output of a query that may attend to nothing is 0.
Array reference(const Array& q, const Array& k, const Array& v,
                const Array* mask, bool causal, double scale,
                int64_t window = 0, double soft_cap = 0) {
  const int64_t b = q.shape[0], s = q.shape[1], h = q.shape[2], d = q.shape[3];
  const int64_t t = k.shape[1], g = k.shape[2];
  Array out = zeros_like(q.shape);
  auto mask_at = [&](int64_t bi, int64_t hi, int64_t i, int64_t j) {
    const int64_t index[] = {bi, hi, i, j};
    int64_t at = 0;
    for (int x = 0; x < mask->shape.size(); ++x) {
      const int64_t n = mask->shape[x];
      at = at * n + (n == 1 ? 0 : index[4 - mask->shape.size() + x]);
    }
    return mask->at(at);
  };
  for (int64_t bi = 0; bi < b; ++bi)
    for (int64_t hi = 0; hi < h; ++hi)
      for (int64_t i = 0; i < s; ++i) {
        const int64_t gi = hi * g / h;
        std::vector<double> score;
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < t; ++j) {
          double x = 0;
          for (int64_t c = 0; c < d; ++c)
            x += q.at(((bi * s + i) * h + hi) * d + c) *
                 k.at(((bi * t + j) * g + gi) * d + c);
          x *= scale;
          if (soft_cap != 0) x = soft_cap * std::tanh(x / soft_cap);
          if (mask && mask->dtype == DType::kBool)
            x = mask_at(bi, hi, i, j) != 0 ? x : -INFINITY;
          else if (mask)
            x += mask_at(bi, hi, i, j);
          if (causal && j > i) x = -INFINITY;
          if (window != 0 && j <= i - window) x = -INFINITY;
          score.push_back(x);
          max = std::max(max, x);
        }
        if (max == -INFINITY) continue;
        for (double& x : score) sum += x = std::exp(x - max);
        for (int64_t j = 0; j < t; ++j)
          for (int64_t c = 0; c < d; ++c)
            out.at(((bi * s + i) * h + hi) * d + c) +=
                score[static_cast<size_t>(j)] / sum *
                v.at(((bi * t + j) * g + gi) * d + c);
      }
  return out;
}

struct Sizes {
  int64_t b, s, t, h, g, d;
};

Problem problem(const Sizes& n, bool causal, const Array* mask = nullptr,
                int64_t window = 0, double soft_cap = 0) {
  Problem p;
  p.inputs = {values({n.b, n.s, n.h, n.d}, 1), values({n.b, n.t, n.g, n.d}, 2),
              values({n.b, n.t, n.g, n.d}, 3)};
  if (mask) p.inputs.push_back(*mask);
  p.function = [=](const auto& x) {
    AttentionOptions options{.causal = causal, .scale = 0.6};
    options.window = window;
    options.soft_cap = soft_cap;
    return attention(x[0], x[1], x[2], options,
                     x.size() > 3 ? x[3] : DistTensor());
  };
  p.reference = [=](const auto& x) {
    return reference(x[0], x[1], x[2], x.size() > 3 ? &x[3] : nullptr, causal,
                     0.6, window, soft_cap);
  };
  return p;
}

// Heads are dimension 2, s and t dimension 1.
TEST(AttentionTest, OneKvHeadPerQueryHead) {
  for (bool causal : {false, true})
    check_problem(problem({2, 3, 3, 3, 3, 2}, causal),
                  {{"x=2", {"R", "R", "R"}},
                   {"x=2", {"S0", "S0", "S0"}},
                   {"x=2", {"S2", "S2", "S2"}},
                   {"x=3", {"S2", "S2", "S2"}},
                   {"x=2", {"S1", "R", "R"}},
                   {"x=2", {"S1", "S1", "S1"}},
                   {"x=2", {"S3", "S3", "S3"}},
                   {"x=2", {"P", "R", "P"}},
                   {"x=2,y=2", {"S0,S2", "S0,S2", "S0,S2"}},
                   {"x=2,y=2", {"S1,S2", "R,S2", "R,S2"}},
                   {"x=2,y=2", {"S2,S2", "S2,S2", "S2,S2"}}});
}

// 6 query heads and 2 heads of k and v on 2, 3 and 4 ranks.
TEST(AttentionTest, GroupedQueries) {
  for (bool causal : {false, true})
    check_problem(problem({1, 2, 4, 6, 2, 2}, causal),
                  {{"x=2", {"S2", "S2", "S2"}},
                   {"x=3", {"S2", "S2", "S2"}},
                   {"x=4", {"S2", "S2", "S2"}},
                   {"x=4", {"S2", "R", "R"}},
                   {"x=3", {"S2", "R", "S2"}},
                   {"x=2,y=2", {"S2,S2", "S2,S2", "S2,S2"}},
                   {"x=2,y=2", {"S2,S2", "S2,R", "S2,R"}},
                   {"x=2,y=2", {"S2,S2", "R,S2", "R,S2"}},
                   {"x=2,y=3", {"S1,S2", "R,S2", "R,S2"}}});
}

// The first of two ranks has 0, 1, 4 and 5 of eight query heads. These use
// heads 0 and 2 of k and v.
TEST(AttentionTest, HeadsInSeveralRanges) {
  const std::string q = "S2(2 h=4:h)", kv = "S2(2 h=2:h)";
  check_problem(problem({1, 2, 3, 8, 4, 2}, false), {{"x=2", {q, kv, kv}},
                                                     {"x=2", {q, "S2", "S2"}},
                                                     {"x=2", {q, "R", kv}},
                                                     {"x=3", {q, kv, kv}}});
}

TEST(AttentionTest, OneKvHeadForAll) {
  check_problem(problem({2, 3, 5, 4, 1, 3}, false),
                {{"x=2", {"S2", "S2", "S2"}},
                 {"x=3", {"S2", "R", "R"}},
                 {"x=2,y=2", {"S2,S0", "S2,S0", "S2,S0"}}});
}

TEST(AttentionTest, EmptyParts) {
  check_problem(problem({1, 1, 2, 2, 1, 2}, true),
                {{"x=3", {"S2", "S2", "S2"}},
                 {"x=3", {"S1", "S1", "S1"}},
                 {"x=3", {"S0", "S0", "S0"}},
                 {"x=2,y=3", {"S1,S2", "R,S2", "R,S2"}}});
}

TEST(AttentionTest, Masks) {
  Array may = zeros_like({6, 2, 4}, DType::kBool);
  for (int64_t i = 0; i < numel(may.shape); ++i) may.at(i) = i % 3 != 0;
  for (int64_t j = 0; j < 4; ++j) may.at(4 + j) = 0;  // a query without keys
  const std::vector<Case> cases = {{"x=2", {"S2", "S2", "S2", "S0"}},
                                   {"x=4", {"S2", "S2", "S2", "R"}},
                                   {"x=2", {"S1", "R", "R", "S1"}},
                                   {"x=2,y=2", {"S1,S2", "R,S2", "R,S2"}}};
  check_problem(problem({1, 2, 4, 6, 2, 2}, false, &may), cases);
  check_problem(problem({1, 2, 4, 6, 2, 2}, true, &may), cases);

  // Masks of numbers, whose gradients are compared too.
  for (const Shape& shape :
       {Shape{2, 4}, Shape{6, 1, 4}, Shape{1, 1, 2, 1}, Shape{4}}) {
    const Array bias = values(shape, 4);
    check_problem(
        problem({1, 2, 4, 6, 2, 2}, false, &bias),
        {{"x=2", {"S2", "S2", "S2"}}, {"x=2,y=2", {"S1,S2", "R,S2", "R,S2"}}});
  }
}

// Heads that are split unevenly, some queries without keys, and the gradient of
// a mask, which is added after the cap.
TEST(AttentionTest, WindowsAndSoftCaps) {
  const std::vector<Case> cases = {{"x=2", {"S2", "S2", "S2"}},
                                   {"x=4", {"S2", "S2", "S2"}},
                                   {"x=3", {"S1", "R", "R"}},
                                   {"x=2", {"S1", "S1", "S1"}},
                                   {"x=2", {"S0", "S0", "S0"}},
                                   {"x=2", {"P", "R", "P"}},
                                   {"x=2,y=2", {"S1,S2", "R,S2", "R,S2"}}};
  check_problem(problem({1, 6, 6, 6, 2, 2}, true, nullptr, 3), cases);
  check_problem(problem({1, 5, 5, 6, 2, 2}, true, nullptr, 1), cases);
  check_problem(problem({1, 5, 3, 6, 2, 2}, true, nullptr, 2, 0.4), cases);
  check_problem(problem({1, 3, 3, 2, 2, 2}, true, nullptr, INT64_MAX),
                {{"x=2", {"S1", "S1", "S1"}}});
  check_problem(problem({1, 3, 5, 6, 2, 2}, false, nullptr, 0, 0.7), cases);
  check_problem(problem({1, 3, 5, 6, 2, 2}, true, nullptr, 2, 1.3), cases);
  Array may = zeros_like({6, 4, 4}, DType::kBool);
  for (int64_t i = 0; i < numel(may.shape); ++i) may.at(i) = i % 3 != 0;
  const Array bias = values({6, 4, 4}, 4);
  for (const Array* mask : {&std::as_const(may), &bias}) {
    check_problem(problem({1, 4, 4, 6, 2, 2}, true, mask, 2, 0.5), cases);
    check_problem(problem({1, 4, 4, 6, 2, 2}, false, mask, 0, 0.5), cases);
  }
  check_types(problem({2, 5, 5, 4, 2, 2}, true, nullptr, 3, 0.5),
              {"S2", "S2", "S2"});
}

// A mask of minus infinity forbids attention, and its gradient is 0.
TEST(AttentionTest, InfiniteMask) {
  Problem p = problem({1, 2, 3, 2, 1, 2}, false);
  Array bias = values({2, 3}, 4);
  bias.at(1) = -INFINITY;
  for (int64_t j = 3; j < 6; ++j) bias.at(j) = -INFINITY;
  on_mesh("x=2", [&](const Mesh& mesh) {
    std::vector<DistTensor> x;
    for (const Array& a : p.inputs)
      x.push_back(
          put(a, mesh, a.shape[2] == 2 ? "S2" : "R").set_requires_grad());
    for (bool wanted : {false, true}) {
      DistTensor mask = put(bias, mesh);
      mask.set_requires_grad(wanted);
      DistTensor y = attention(x[0], x[1], x[2], {false, 0.6}, mask);
      expect_near(
          array_of(y.full()),
          reference(p.inputs[0], p.inputs[1], p.inputs[2], &bias, false, 0.6),
          1e-12, "value");
      std::vector<DistTensor> inputs = x;
      if (wanted) inputs.push_back(mask);
      for (const DistTensor& g : grad(sum(square(y)), inputs))
        for (double v : array_of(g.full()).v) EXPECT_TRUE(std::isfinite(v));
    }
  });
}

TEST(AttentionTest, DefaultScaleAndTransposedMemory) {
  const Array q = values({2, 3, 2, 4}, 1), k = values({2, 5, 2, 4}, 2);
  on_mesh("x=2", [&](const Mesh& mesh) {
    // The memory is in the order [b, h, s, d]; the tensor is a transposed view.
    auto turned = [&](const Array& a) {
      Tensor t = tensor_of(a, DType::kF64).transpose(1, 2).to_contiguous();
      return DistTensor::from_local(t.transpose(1, 2), mesh, "R", a.shape);
    };
    expect_near(array_of(attention(turned(q), turned(k), turned(k)).full()),
                reference(q, k, k, nullptr, false, 0.5), 1e-12, "out");
  });
}

TEST(AttentionTest, Types) {
  check_types(problem({2, 3, 3, 4, 2, 2}, true), {"S2", "S2", "S2"});
  const Array bias = values({3, 3}, 4);
  check_types(problem({2, 3, 3, 4, 2, 2}, true, &bias), {"S1", "R", "R", "S0"});
}

// 4 ranks have 1, 2, 1 and 2 of 6 query heads, and 0, 1, 0 and 1 of 2 heads of
// k and v. Each rank fetches the head of k and v that it needs, and holds no
// other.
TEST(AttentionTest, NoRankHoldsMoreKvHeadsThanItNeeds) {
  const int64_t t = 128, d = 4;
  run(4, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    DistTensor q = put(values({1, 2, 6, d}, 1), mesh, "S2").set_requires_grad();
    DistTensor k = put(values({1, t, 2, d}, 2), mesh, "S2").set_requires_grad();
    DistTensor v = put(values({1, t, 2, d}, 3), mesh, "S2").set_requires_grad();
    rt.context().record = true;
    DistTensor y = attention(q, k, v);
    EXPECT_EQ(y.spec()->to_string(), "f64[1, 2, 6, 4](S2)");
    int64_t bytes = 0;
    for (const CommEvent& e : rt.context().events) {
      EXPECT_EQ(e.op, "attention");
      bytes += e.counted;
    }
    // Ranks 0 and 2 hold no head, and rank 1 and 3 the one that they need.
    EXPECT_EQ(bytes, rt.rank() % 2 == 0 ? 2 * t * d * 8 : 0);
    grad(sum(y), {q, k, v});
    const auto stats = rt.context().allocator->stats().largest_by_tag;
    EXPECT_LE(stats.at("attention"), t * d * 8);
    EXPECT_LE(stats.at("attention_backward"), t * d * 8);
  });
}

// When every rank holds the heads that it needs, nothing is sent.
TEST(AttentionTest, AlignedHeadsSendNothing) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    DistTensor q = put(values({1, 2, 6, 2}, 1), mesh, "S2").set_requires_grad();
    DistTensor k = put(values({1, 3, 2, 2}, 2), mesh, "S2").set_requires_grad();
    rt.context().record = true;
    DistTensor y = attention(q, k, k, {true, 0});
    auto g = grad(y, {q, k},
                  {.cotangent = put(values({1, 2, 6, 2}, 4), mesh, "S2")});
    EXPECT_TRUE(rt.context().events.empty());
    EXPECT_EQ(g[1].spec(), k.spec());
  });
}

// Every rank has all the keys and values that its queries need.
TEST(AttentionTest, QueriesSplitAloneSendNothing) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    const DistTensor q = put(values({2, 8, 4, 2}, 1), mesh, "S1"),
                     k = put(values({2, 8, 4, 2}, 2), mesh, "R");
    rt.context().record = true;
    EXPECT_EQ(attention(q, k, k).spec(), q.spec());
    EXPECT_TRUE(rt.context().events.empty());
  });
}

TEST(AttentionTest, Errors) {
  auto with = [](const Shape& q, const Shape& k, const Shape& mask) {
    return error_of(2, [=](const Mesh& m) {
      attention(put(values(q, 1), m), put(values(k, 1), m),
                put(values(k, 1), m), {}, put(values(mask, 1), m));
    });
  };
  EXPECT_EQ(with({1, 2, 6, 4}, {1, 2, 4, 4}, {2, 2}),
            "[attention] the number of heads is 6 in q and 4 in k; pass k and "
            "v with a number of heads that divides that of q");
  EXPECT_EQ(with({1, 2, 6, 4}, {1, 2, 2, 4}, {3, 2}),
            "[attention] dimension 0 of the mask, whose shape is [3, 2], does "
            "not broadcast to [b, h, s, t] = [1, 6, 2, 2]; pass a mask whose "
            "dimension 0 is 1 or 2");
  EXPECT_NE(with({1, 2, 6, 4}, {1, 2, 2, 3}, {2, 2}).find("'d' of the rule"),
            std::string::npos);
  EXPECT_NE(with({2, 6, 4}, {2, 2, 4}, {2, 2}).find("[b, t, kv_heads, d]"),
            std::string::npos);
  auto of_types = [](DType k, DType mask) {
    return error_of(2, [=](const Mesh& m) {
      const Array x = values({1, 2, 1, 4}, 1);
      attention(put(x, m), put(x, m, "", k), put(x, m), {},
                put(zeros_like({2, 2}, mask), m));
    });
  };
  EXPECT_EQ(of_types(DType::kF32, DType::kBool),
            "[attention] input 0 is f64 and input 1 is f32; cast both to "
            "one float type");
  EXPECT_EQ(of_types(DType::kF64, DType::kF32),
            "[attention] q is f64 and the mask is f32; write a mask of bool or "
            "f64");
}

// rotary() by its definition. Row i has the position i / h % s + offset, or the
// one in in[1].
Array rotated(const std::vector<Array>& in, const Rope& r, int64_t offset) {
  const Array& x = in[0];
  const int64_t b = x.shape[0], s = x.shape[1], h = x.shape[2], d = x.shape[3];
  const int64_t dims = r.dims > 0 ? r.dims : d;
  Array y = x;
  for (int64_t i = 0; i < b * s * h; ++i)
    for (int64_t j = 0; j < dims / 2; ++j) {
      const double position = in.size() > 1
                                  ? in[1].at(i / h)
                                  : static_cast<double>(i / h % s + offset);
      double frequency = std::pow(
          r.theta, -2.0 * static_cast<double>(j) / static_cast<double>(dims));
      // As _compute_llama3_parameters() of transformers.
      const double wavelength = 2 * std::acos(-1) / frequency;
      if (const auto n = static_cast<double>(r.original_positions); n > 0) {
        const double smooth = (n / wavelength - r.low_freq_factor) /
                              (r.high_freq_factor - r.low_freq_factor);
        if (wavelength > n / r.low_freq_factor)
          frequency /= r.factor;
        else if (wavelength >= n / r.high_freq_factor)
          frequency = (1 - smooth) * frequency / r.factor + smooth * frequency;
      } else if (r.factor != 0) {
        frequency /= r.factor;
      }
      const double angle = position * frequency;
      const double x1 = x.at(i * d + j), x2 = x.at(i * d + dims / 2 + j);
      y.at(i * d + j) = x1 * std::cos(angle) - x2 * std::sin(angle);
      y.at(i * d + dims / 2 + j) = x2 * std::cos(angle) + x1 * std::sin(angle);
    }
  return y;
}

// rotary(), squared so that it has a second derivative. The second input, if
// there is one, gives the positions.
Problem rotary_problem(std::vector<Array> inputs, const Rope& r) {
  return {std::move(inputs),
          [r](const auto& x) {
            return square(x.size() > 1 ? rotary(x[0], r, x[1])
                                       : rotary(x[0], r, 3));
          },
          [r](const auto& x) {
            Array y = rotated(x, r, 3);
            for (double& v : y.v) v *= v;
            return y;
          }};
}

TEST(RotaryTest, Layouts) {
  Problem p = rotary_problem({values({2, 5, 3, 4}, 1)}, {.theta = 100});
  check_problem(p, {{"x=2", {"S0"}},
                    {"x=2", {"S1"}},
                    {"x=3", {"S1"}},
                    {"x=2", {"S2"}},
                    {"x=2", {"S3"}},
                    {"x=2", {"P"}},
                    {"x=2,y=2", {"S1,S1"}},
                    {"x=2,y=3", {"S2,S1"}}});
  p.inputs = {values({1, 2, 1, 2}, 1)};
  check_problem(p, {{"x=3", {"S1"}}});
  check_types(p, {"S1"});
}

// One of three frequencies stays, one is interpolated and one is divided.
// The last two numbers of a head are not rotated.
const Rope kLlama3 = {.theta = 50,
                      .dims = 6,
                      .factor = 8,
                      .low_freq_factor = 1,
                      .high_freq_factor = 4,
                      .original_positions = 28};

TEST(RotaryTest, ScaledFrequencies) {
  for (const Rope& r : {kLlama3, Rope{.theta = 50, .factor = 3}}) {
    const Problem p = rotary_problem({values({2, 5, 3, 8}, 1)}, r);
    check_problem(p, {{"x=2", {"S1"}}, {"x=2,y=3", {"S2,S1"}}});
    check_types(p, {"S1"});
  }
}

TEST(RotaryTest, PositionsOfEachRow) {
  for (DType t : {DType::kI32, DType::kI64}) {
    const Problem p = rotary_problem(
        {values({2, 5, 3, 8}, 1),
         integers({2, 5}, {7, 0, 3, 3, 40, 11, 12, 13, 14, 15}, t)},
        kLlama3);
    check_problem(p, {{"x=2", {"R", "R"}},
                      {"x=2", {"S0", "S0"}},
                      {"x=3", {"S1", "R"}},
                      {"x=2", {"S2", "S1"}},
                      {"x=2", {"P", "R"}},
                      {"x=2", {"S1@0|2|5", "R"}},
                      {"x=2,y=3", {"S2,S1", "S0,R"}}});
    check_types(p, {"S1", "S0"});
  }
}

TEST(RotaryTest, Errors) {
  const auto error = [](const Shape& x, const Rope& r) {
    return error_of(2, [=](const Mesh& m) { rotary(put(values(x, 1), m), r); });
  };
  EXPECT_EQ(error({1, 2, 1, 3}, {}),
            "[rotary] x has shape [1, 2, 1, 3]; write [b, s, heads, d] with an "
            "even d");
  for (int64_t dims : {-2, 3, 6})
    EXPECT_EQ(error({1, 2, 1, 4}, {.dims = dims}),
              "[rotary] dims is " + std::to_string(dims) +
                  ", but a head of x has 4 numbers; write an even number from "
                  "0 to 4");
  EXPECT_EQ(error({1, 2, 1, 4}, {.factor = -1}),
            "[rotary] factor is -1 and original_positions is 0; write a factor "
            "above 0 to scale the frequencies, or 0 for both");
  EXPECT_EQ(error({1, 2, 1, 4}, {.original_positions = 8}),
            "[rotary] factor is 0 and original_positions is 8; write a factor "
            "above 0 to scale the frequencies, or 0 for both");
  EXPECT_EQ(error({1, 2, 1, 4}, {.factor = 2, .original_positions = 8}),
            "[rotary] original_positions is 8, low_freq_factor 0 and "
            "high_freq_factor 0; write original_positions = 0, or a number "
            "above 0 with a low factor below the high one");
  const auto at = [](const Shape& shape, DType t) {
    return error_of(2, [=](const Mesh& m) {
      rotary(put(values({1, 2, 1, 4}, 1), m), {}, put(zeros_like(shape, t), m));
    });
  };
  EXPECT_EQ(at({1, 2}, DType::kF64),
            "[rotary] the positions are f64, but must be i32 or i64; write "
            "cast(positions, DType::kI64)");
  EXPECT_NE(at({1, 3}, DType::kI64).find("'s' of the rule"), std::string::npos);
}

TEST(AttentionTest, WindowsAndSoftCapsThatAreRefused) {
  const auto with = [](const AttentionOptions& options) {
    return error_of(2, [&](const Mesh& m) {
      const DistTensor x = put(values({1, 2, 1, 4}, 1), m);
      attention(x, x, x, options);
    });
  };
  EXPECT_EQ(with({.causal = true, .window = -3}),
            "[attention] window is -3; write the number of keys that a query "
            "attends to, or 0 (no window)");
  EXPECT_EQ(with({.window = 3}),
            "[attention] window is 3, but causal is false; set causal, or "
            "write a window of 0");
  for (const double cap : {-1.5, HUGE_VAL})
    EXPECT_EQ(with({.soft_cap = cap}),
              "[attention] soft_cap is " +
                  std::string(cap < 0 ? "-1.5" : "inf") +
                  "; write a finite number above 0 to bound the scores, or 0 "
                  "(no cap)");
}

TEST(AttentionTest, LengthsThatAreRefused) {
  const auto with = [](int64_t queries, bool causal, int64_t length) {
    return error_of(2, [&](const Mesh& m) {
      const DistTensor k = put(values({1, 3, 1, 2}, 1), m);
      attention(put(values({1, queries, 1, 2}, 1), m), k, k,
                {.causal = causal, .length = length});
    });
  };
  EXPECT_EQ(with(2, true, 1),
            "[attention] length is 1 for causal attention of q [1, 2, 1, 2] "
            "and k [1, 3, 1, 2]; write 0 (all keys), or 2 to 3");
  EXPECT_EQ(with(2, false, 4),
            "[attention] length is 4 for attention of q [1, 2, 1, 2] and k "
            "[1, 3, 1, 2]; write 0 (all keys), or 1 to 3");
  EXPECT_TRUE(with(3, true, 2).ends_with("; write 0 (all keys), or 3"));
  EXPECT_TRUE(with(4, true, 3).ends_with("; write 0 (all keys)"));
}

// Without a length, the keys stay split, and this ring skips a step in which no
// query sees a key. With one, queries are at other positions.
TEST(AttentionTest, ALengthDoesNotShareTheRingOfACallWithoutOne) {
  const Array q = values({1, 4, 1, 2}, 1), k = values({1, 8, 1, 2}, 2),
              v = values({1, 8, 1, 2}, 3);
  Array mask = zeros_like({4, 8});  // query i is at position i + 4
  mask.dtype = DType::kBool;
  for (int64_t i = 0; i < 4; ++i) mask.at(i * 8 + i + 4) = 1;
  const Array want = reference(q, k, v, &mask, false, 1);
  run(4, [&](Runtime& rt) {
    const Mesh m = rt.mesh({{"cp", 4}});
    AttentionOptions o{.causal = true,
                       .scale = 1,
                       .context = ContextParallel::kRing,
                       .window = 1};
    const auto result = [&] {
      return testing::values(
          attention(put(q, m, "S1"), put(k, m, "S1"), put(v, m, "S1"), o));
    };
    result();
    o.length = 8;
    const std::vector<double> got = result();
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], want.at(static_cast<int64_t>(i)), 1e-12) << i;
  });
}

// Compares score_pairs() with counting. In zig-zag order, which is made for
// this, all ranks have about the same number of pairs.
TEST(ScorePairsTest, AreCountedAndBalanced) {
  const IntervalList queries = {{1, 4}, {6, 7}}, keys = {{0, 2}, {3, 8}};
  for (bool causal : {false, true})
    for (int64_t window = 0; window < (causal ? 9 : 1); ++window) {
      int64_t count = 0;
      for (const Interval& q : queries)
        for (int64_t i = q.lo; i < q.hi; ++i)
          for (const Interval& k : keys)
            for (int64_t j = k.lo; j < k.hi; ++j)
              count += (!causal || j <= i) && (!window || j > i - window);
      EXPECT_EQ(score_pairs(queries, keys, causal, window), count);
    }
  EXPECT_EQ(score_pairs(queries, keys, true, INT64_MAX),
            score_pairs(queries, keys, true));
  for (int p : {2, 3, 4, 8}) {
    const Mesh mesh = Mesh::parse("cp=" + std::to_string(p));
    const auto spread = [&](const Dim& d) {
      int64_t most = 0, least = int64_t{1} << 60, all = 0;
      for (const IntervalList& q : parts_of(d, mesh)) {
        const int64_t n = score_pairs(q, {{0, d.size()}}, true);
        most = std::max(most, n);
        least = std::min(least, n);
        all += n;
      }
      EXPECT_EQ(all, d.size() * (d.size() + 1) / 2);
      return static_cast<double>(most) / static_cast<double>(least);
    };
    for (int64_t n : {4096, 4099, 10007}) {
      EXPECT_LE(spread(zigzag(n, mesh, 0)), 1.02) << p << " ranks, " << n;
      EXPECT_GE(spread(Dim(n, Split::over({0}))), 2.9);
    }
  }
}

// Attention refused keys or queries with an index that several ranks hold,
// though only one owner computes on each index.

using Values = std::vector<std::vector<double>>;

// The output and the gradients of q, k and v in these layouts.
Values attend(const Mesh& m, const std::vector<const char*>& layouts,
              const AttentionOptions& options) {
  std::vector<DistTensor> in;
  for (size_t i = 0; i < 3; ++i)
    in.push_back(randn({2, 5, 4, 2}, m, layouts[i], DType::kF64, {7, i})
                     .set_requires_grad());
  const DistTensor y = attention(in[0], in[1], in[2], options);
  Values all{y.full().to_doubles()};
  for (const DistTensor& g : grad(sum(y * y * y), in))
    all.push_back(g.full().to_doubles());
  return all;
}

TEST(Attention, OfSeveralOwners) {
  const std::vector<std::vector<const char*>> cases[] = {
      {{"S1", "[{},(1{a}|4),{},{}]", "R"},
       {"[{},(1{a}|4),{},{}]", "[{},(2{a}|3),{},{}]", "[{},(4|1{a}),{},{}]"},
       {"S1", "S1", "[{},{},(1|3{a}),{}]"},
       {"[{},(3|2{a}),{},{}]", "S1", "S1"}},
      {{"S1,R", "[{},(1{a,b}|4{b,a}),{},{}]", "R,R"},
       {"[{},(2{a,b}|3{b}),{},{}]", "[{},(2{a}|3{b,a}),{},{}]", "S1,S2"},
       {"S1,S2", "S1,R", "[{},{a},(1|3{b}),{}]"},
       {"[{},{a},(2{b}|2),{}]", "[{},{a},(3{b}|1),{}]", "S1,R"}}};
  for (const bool causal : {false, true})
    for (const auto context : {ContextParallel::kAuto, ContextParallel::kRing,
                               ContextParallel::kAllToAll}) {
      AttentionOptions options;
      options.causal = causal;
      options.context = context;
      Values want;
      run(1, [&](Runtime&) {
        want = attend(Mesh::parse("a=1"), {"R", "R", "R"}, options);
      });
      const auto check = [&](const char* mesh, const auto& list) {
        const Mesh m = Mesh::parse(mesh);
        run(m.num_ranks(), [&](Runtime&) {
          for (const auto& layouts : list) {
            const Values got = attend(m, layouts, options);
            for (size_t i = 0; i < want.size(); ++i)
              for (size_t k = 0; k < want[i].size(); ++k)
                ASSERT_NEAR(got[i][k], want[i][k], 1e-12)
                    << layouts[0] << " " << layouts[1] << " " << layouts[2];
          }
        });
      };
      check("a=2", cases[0]);
      check("a=2,b=2", cases[1]);
    }
}

}  // namespace
}  // namespace dtensor::testing
