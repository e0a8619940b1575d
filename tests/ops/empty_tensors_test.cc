// SPDX-License-Identifier: Apache-2.0
// Guards a fix: cat() dropped pieces of shape [0] together with their place in
// the graph. So pad() of an empty tensor, which calls cat(), had no gradient.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "dtensor/dtensor.h"

namespace dtensor {
namespace {

TEST(GradientsOfEmptyTensors, HaveTheShapeOfTheirTensor) {
  for (const char* layout : {"R", "S0"})
    run(2, [&](Runtime&) {
      const Mesh m = Mesh::parse("a=2");
      const auto empty = [&] {
        return zeros({0}, m, parse_layout(layout, m, {0}), DType::kF64)
            .set_requires_grad();
      };
      const DistTensor x = empty(), row = ones({2}, m, {}, DType::kF64),
                       matrix = ones({2, 3}, m, {}, DType::kF64);
      const std::pair<const char*, DistTensor> made[] = {
          {"pad", pad(x, {2, 0}, 1.5)},
          {"cat before", cat({x, row})},
          {"cat behind", cat({row, x})},
          {"cat of a matrix", cat({matrix, x}, 1)},
          {"cat of empty ones", cat({zeros({0}, m, {}, DType::kF64), x})},
          {"hstack", hstack({row, x})},
          {"stack", stack({x, x})},
          {"roll", roll(x, {1}, {0})},
          {"repeat", repeat(x, {3})},
          {"slice", slice(x, 0, 0, 0)},
          {"flatten", flatten(x)},
          {"exp", exp(x)},
          {"add", x + x},
          {"mean", sum(x)},
          {"cumsum", cumsum(x, 0)},
          {"logcumsumexp", logcumsumexp(x, 0)},
          {"softmax", softmax(x, 0)},
          {"outer", outer(row, x)},
          {"dot", dot(x, x)}};
      for (const auto& [name, y] : made) {
        ASSERT_TRUE(y.requires_grad()) << name << ", " << layout;
        const auto g = grad(sum(y), {x});
        EXPECT_EQ(g[0].shape(), Shape{0}) << name << ", " << layout;
      }
    });
}

// Operators of several inputs, each of which has a gradient of its own shape,
// full or empty, whichever dimension is empty.
TEST(GradientsOfEmptyTensors, OfOperatorsOfSeveralInputs) {
  for (const char* axis : {"", "S0", "S1"})
    run(2, [&](Runtime&) {
      const Mesh m = Mesh::parse("a=2");
      using List = std::vector<DistTensor>;
      const auto f = [&](const Shape& shape) {
        const bool split = axis[0] != 0 && shape.size() > axis[1] - '0';
        return full(shape, 0.5, m,
                    split ? parse_layout(axis, m, shape)
                          : Layout::replicated(shape),
                    DType::kF64)
            .set_requires_grad();
      };
      const auto ids = [&](const Shape& shape) {
        return zeros(shape, m, {}, DType::kI64);
      };
      struct Case {
        const char* name;
        List inputs;
        std::function<DistTensor(const List&)> run;
      };
      std::vector<Case> cases;
      for (const Shape& s : {Shape{0, 4}, Shape{3, 0}, Shape{0, 0}}) {
        const Shape last = {s[1]}, rows = {s[0]};
        cases.insert(
            cases.end(),
            {{"layer_norm",
              {f(s), f(last), f(last)},
              [](const List& x) { return layer_norm(x[0], x[1], x[2]); }},
             {"layer_norm without weights",
              {f(s)},
              [](const List& x) { return layer_norm(x[0]); }},
             {"rms_norm",
              {f(s), f(last)},
              [](const List& x) { return rms_norm(x[0], x[1]); }},
             {"add_layer_norm",
              {f(s), f(s), f(last), f(last)},
              [](const List& x) {
                const Normed y = add_layer_norm(x[0], x[1], x[2], x[3]);
                return y.y + y.x;
              }},
             {"add_rms_norm",
              {f(s), f(s), f(last)},
              [](const List& x) {
                const Normed y = add_rms_norm(x[0], x[1], x[2]);
                return y.y + y.x;
              }},
             {"linear",
              {f(s), f({5, s[1]}), f({5})},
              [](const List& x) { return linear(x[0], x[1], x[2]); }},
             {"linear to nothing",
              {f(s), f({0, s[1]}), f({0})},
              [](const List& x) { return linear(x[0], x[1], x[2]); }},
             {"linear and gelu",
              {f(s), f({5, s[1]}), f({5})},
              [](const List& x) {
                return linear(x[0], x[1], x[2], Activation::kGeluTanh);
              }},
             {"linear without bias",
              {f(s), f({5, s[1]})},
              [](const List& x) { return linear(x[0], x[1]); }},
             {"matmul",
              {f(s), f({s[1], 2})},
              [](const List& x) { return matmul(x[0], x[1]); }},
             {"matmul of a batch",
              {f({2, s[0], s[1]}), f({2, s[1], 3})},
              [](const List& x) { return matmul(x[0], x[1]); }},
             {"einsum of three",
              {f(s), f({s[1], 2}), f({2, 3})},
              [](const List& x) { return einsum("ab,bc,cd->ad", x); }},
             {"mse_loss",
              {f(s), f(s)},
              [](const List& x) {
                return mse_loss(x[0], x[1], Reduction::kSum);
              }},
             {"l1_loss",
              {f(s), f(s)},
              [](const List& x) {
                return l1_loss(x[0], x[1], Reduction::kMean);
              }},
             {"huber_loss",
              {f(s), f(s)},
              [](const List& x) {
                return huber_loss(x[0], x[1], Reduction::kNone);
              }},
             {"binary_cross_entropy",
              {f(s), f(s)},
              [](const List& x) {
                return binary_cross_entropy(x[0], x[1], Reduction::kSum);
              }},
             {"binary_cross_entropy_with_logits",
              {f(s), f(s)},
              [](const List& x) {
                return binary_cross_entropy_with_logits(x[0], x[1],
                                                        Reduction::kMean);
              }},
             {"kl_div",
              {f(s), f(s)},
              [](const List& x) {
                return kl_div(x[0], x[1], Reduction::kSum);
              }},
             {"cosine_similarity",
              {f(s), f(s)},
              [](const List& x) { return cosine_similarity(x[0], x[1], 1); }},
             {"where",
              {f(s), f(s)},
              [](const List& x) { return where(gt(x[0], x[1]), x[0], x[1]); }},
             {"where of a row",
              {f(s), f(last)},
              [](const List& x) { return where(gt(x[0], 0), x[0], x[1]); }},
             {"swiglu",
              {f(s), f(s)},
              [](const List& x) { return swiglu(x[0], x[1]); }},
             {"log_softmax",
              {f(s)},
              [](const List& x) { return log_softmax(x[0], -1); }},
             {"embedding",
              {f({3, s[1]})},
              [&, rows](const List& x) { return embedding(x[0], ids(rows)); }},
             {"topk of no values", {f(s)}, [](const List& x) {
                return topk(x[0], 0).values;
              }}});
        if (s[1] > 0)
          cases.insert(cases.end(),
                       {{"topk",
                         {f(s)},
                         [](const List& x) { return topk(x[0], 2).values; }},
                        {"cross_entropy",
                         {f(s)},
                         [&, rows](const List& x) {
                           return cross_entropy(x[0], ids(rows),
                                                Reduction::kSum);
                         }},
                        {"nll_loss", {f(s)}, [&, rows](const List& x) {
                           return nll_loss(x[0], ids(rows), Reduction::kNone);
                         }}});
      }
      for (const Case& c : cases) {
        const std::string at = fmt::format(
            "{} of {}, {}", c.name, to_string(c.inputs[0].shape()), axis);
        try {
          const DistTensor y = c.run(c.inputs);
          ASSERT_TRUE(y.requires_grad()) << at;
          const std::vector<DistTensor> g = grad(sum(y), c.inputs);
          for (size_t i = 0; i < g.size(); ++i) {
            EXPECT_EQ(g[i].shape(), c.inputs[i].shape()) << at << ", " << i;
            const Tensor whole = g[i].full();
            for (int64_t k = 0; k < whole.numel(); ++k)
              EXPECT_TRUE(std::isfinite(whole.at(k))) << at << ", " << i;
          }
        } catch (const Error& e) {
          ADD_FAILURE() << at << ": " << e.what();
        }
      }
    });
}

}  // namespace
}  // namespace dtensor
