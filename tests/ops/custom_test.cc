// SPDX-License-Identifier: Apache-2.0
// Functions with a gradient of one's own.
#include "dtensor/ops/custom.h"

#include <cmath>
#include <string>
#include <vector>

#include "dtensor/ops/collectives.h"
#include "dtensor/ops/local_map.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/scopes.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

using Tensors = std::vector<DistTensor>;

// x * tanh(w), with its own gradient.
const TensorFunction& gated() {
  static const TensorFunction f = custom_function(
      [](const Tensors& in) -> Tensors { return {in[0] * tanh(in[1])}; },
      [](const CustomCall& c) -> Tensors {
        const DistTensor t = tanh(c.inputs[1]), g = c.cotangents[0];
        return {g * t, g * c.inputs[0] * (1 - t * t)};
      });
  return f;
}

TEST(CustomFunction, Gradients) {
  check_problem({.inputs = {values({5, 3}, 1), values({5, 3}, 2)},
                 .function = [](const Tensors& x) { return gated()(x)[0]; },
                 .reference =
                     [](const std::vector<Array>& in) {
                       Array y = in[0];
                       for (int64_t i = 0; i < 15; ++i)
                         y.at(i) *= std::tanh(in[1].at(i));
                       return y;
                     }},
                {{"x=2", {"S0", "S1"}}, {"x=3", {"R", "S0"}}, {"x=9", {}}});
}

// exp, whose gradient uses the output.
TEST(CustomFunction, OutputsInTheGradient) {
  check_problem(
      {.inputs = {values({7}, 1)},
       .function =
           [](const Tensors& x) {
             return custom_function(
                 [](const Tensors& in) -> Tensors {
                   return {exp(in[0]), in[0]};
                 },
                 [](const CustomCall& c) -> Tensors {
                   return {c.cotangents[0] * c.outputs[0] + c.cotangents[1]};
                 })(x)[0];
           },
       .reference =
           [](const std::vector<Array>& in) {
             Array y = in[0];
             for (double& v : y.v) v = std::exp(v);
             return y;
           }},
      {{"x=3", {"S0"}}});
}

// A gradient that differs from the function's is used, as with a
// straight-through estimator.
TEST(CustomFunction, IsNotDifferentiatedItself) {
  run(2, [](Runtime&) {
    const Mesh m({{"x", 2}});
    const auto f = custom_function([](const DistTensor& x) { return round(x); },
                                   [](const DistTensor& g) { return g * 5; });
    DistTensor x = put(values({3}, 1), m, "S0").set_requires_grad();
    EXPECT_EQ(array_of(grad(sum(f(x)), x)[0].full()).v,
              (std::vector<double>{5, 5, 5}));
    // The identity returns its input, but not the same tensor.
    const auto same =
        custom_function([](const DistTensor& x) { return x; },
                        [](const DistTensor& g) { return g * 7; });
    EXPECT_EQ(array_of(grad(sum(same(x) + x), x)[0].full()).v,
              (std::vector<double>{8, 8, 8}));
    EXPECT_FALSE(f(x.detach()).requires_grad());
  });
}

// Megatron's conjugate functions: a column- and a row-parallel product.
TEST(CustomFunction, ConjugateFunctions) {
  const Array x = values({3, 4}, 1), w = values({4, 6}, 2),
              v = values({6, 2}, 3);
  const auto loss = [](const DistTensor& y) { return sum(y * y); };
  Array want_x, want_w;
  run(1, [&](Runtime&) {
    const Mesh m({{"tp", 1}});
    DistTensor a = put(x, m).set_requires_grad(),
               b = put(w, m).set_requires_grad();
    const auto g = grad(loss(matmul(tanh(matmul(a, b)), put(v, m))), {a, b});
    want_x = array_of(g[0].full());
    want_w = array_of(g[1].full());
  });
  run(3, [&](Runtime&) {
    const Mesh m({{"tp", 3}});
    const auto keep = [](const DistTensor& t) { return t; };
    const auto reduce = [m](const DistTensor& t) {
      return all_reduce(t, {m, "tp"});
    };
    const auto f = custom_function(keep, reduce),
               g = custom_function(reduce, keep);
    DistTensor a = to_local(put(x, m)), b = to_local(put(w, m, "S1"));
    a.set_requires_grad();
    b.set_requires_grad();
    const DistTensor y =
        g(matmul(tanh(matmul(f(a), b)), to_local(put(v, m, "S0"))));
    const auto got = grad(loss(y), {a, b});
    expect_near(array_of(got[0].full()), want_x, 1e-12, "x");
    expect_near(array_of(from_local(got[1], m, "S1").full()), want_w, 1e-12,
                "w");
  });
}

TEST(CustomFunction, Errors) {
  const auto error = [](const std::function<void(DistTensor&)>& fn) {
    return error_of([&] {
      on_mesh("x=2", [&](const Mesh& m) {
        DistTensor x = put(values({5}, 1), m, "S0").set_requires_grad();
        fn(x);
      });
    });
  };
  const auto twice = [](const DistTensor& t) { return t * 2; };
  const auto keep = [](const DistTensor& t) { return t; };
  EXPECT_NE(error([&](DistTensor& x) {
              grad(sum(custom_function(
                       keep, [](const DistTensor& g) { return sum(g); })(x)),
                   x);
            }).find("the gradient of input 0 is f64[]"),
            std::string::npos);
  EXPECT_NE(error([&](DistTensor& x) {
              grad(sum(custom_function(
                       [](const Tensors& in) { return in; },
                       [](const CustomCall&) { return Tensors(2); })({x})[0]),
                   x);
            }).find("the number of gradients is 2, but that of inputs is 1"),
            std::string::npos);
  EXPECT_NE(error([&](DistTensor& x) {
              const DistTensor y = custom_function(keep, keep)(x);
              {
                const NoGrad no_grad;
                x.assign(x.local().clone());
              }
              grad(sum(y), x);
            }).find("was changed in place after it was used"),
            std::string::npos);
  EXPECT_NE(error([&](DistTensor& x) {
              DistTensor y = custom_function(twice, keep)(x);
              const DistTensor loss = sum(y);
              {
                const NoGrad no_grad;
                y.assign(x.local().clone());
              }
              grad(loss, x);
            }).find("was changed in place after it was made"),
            std::string::npos);
  EXPECT_NE(error([&](DistTensor& x) {
              const DistTensor y = sum(custom_function(keep, keep)(x));
              grad(y, x, {.release_graph = true});
              grad(y, x);
            }).find("was taken before, with release_graph"),
            std::string::npos);
  EXPECT_NE(error([&](DistTensor& x) {
              custom_function(keep, keep)(x.defined() ? DistTensor() : x);
            }).find("undefined"),
            std::string::npos);
}

}  // namespace
}  // namespace dtensor::testing
