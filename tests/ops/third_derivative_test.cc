// SPDX-License-Identifier: Apache-2.0
// Third derivatives on a mesh, against closed formulas.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/runtime.h"
#include "tests/array.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;
using Values = std::vector<double>;

const Values kX = {0.3, -0.7, 1.1, 0.5, -1.3};
const Values kV = {0.4, 1.0, -0.6, 0.2, 0.9};
const Values kW = {1.0, -2.0, 0.5, 3.0, -1.0};

DistTensor tensor(const Values& v, const Mesh& mesh, const Placements& p) {
  return DistTensor::from_global(
      Tensor::from<double>({static_cast<int64_t>(v.size())}, v.data()), mesh,
      p);
}

DistTensor slope(const DistTensor& y, const DistTensor& x) {
  return grad(y, {x}, {.create_graph = true})[0];
}

// The third derivative of f at kX along kV.
double third(const std::function<DistTensor(const DistTensor&)>& f,
             const Mesh& mesh, const Placements& p) {
  DistTensor x = tensor(kX, mesh, p), v = tensor(kV, mesh, "R");
  x.set_requires_grad();
  DistTensor y = f(x);
  for (int k = 0; k < 3; ++k) y = sum(slope(y, x) * v);
  return y.item();
}

void each(const std::function<void(const Mesh&, const Placements&)>& f) {
  for (const char* p : {"R", "S0", "P"})
    run(2, [&](Runtime& rt) { f(rt.mesh(), p); });
}

TEST(ThirdDerivative, Sin) {
  each([](const Mesh& mesh, const Placements& p) {
    double want = 0;
    for (size_t i = 0; i < kX.size(); ++i)
      want -= std::cos(kX[i]) * std::pow(kV[i], 3);
    EXPECT_NEAR(third([](const DistTensor& x) { return sum(sin(x)); }, mesh, p),
                want, 1e-12);
  });
}

TEST(ThirdDerivative, FourthPower) {
  each([](const Mesh& mesh, const Placements& p) {
    double want = 0;
    for (size_t i = 0; i < kX.size(); ++i)
      want += 24 * kX[i] * std::pow(kV[i], 3);
    EXPECT_NEAR(
        third([](const DistTensor& x) { return sum(pow(x, 4)); }, mesh, p),
        want, 1e-11);
    EXPECT_NEAR(
        third([](const DistTensor& x) { return sum(square(square(x))); }, mesh,
              p),
        want, 1e-11);
    EXPECT_NEAR(
        third([](const DistTensor& x) { return sum(x * x * x * x); }, mesh, p),
        want, 1e-11);
  });
}

// Both operands depend on x: atan2(x, x^2), which is atan(1 / x), and x / (1 +
// x^2), whose third derivative is -6 (x^4 - 6 x^2 + 1) / (1 + x^2)^4.
TEST(ThirdDerivative, FunctionsOfTwoOperands) {
  each([](const Mesh& mesh, const Placements& p) {
    double quotient = 0, angle = 0;
    for (size_t i = 0; i < kX.size(); ++i) {
      const double x = kX[i], q = 1 + x * x, v3 = std::pow(kV[i], 3);
      quotient -= 6 * (std::pow(x, 4) - 6 * x * x + 1) / std::pow(q, 4) * v3;
      angle += (2 - 6 * x * x) / std::pow(q, 3) * v3;
    }
    EXPECT_NEAR(
        third([](const DistTensor& x) { return sum(x / (1 + square(x))); },
              mesh, p),
        quotient, 1e-12);
    EXPECT_NEAR(
        third([](const DistTensor& x) { return sum(atan2(x, square(x))); },
              mesh, p),
        angle, 1e-10);
  });
}

// The third derivative of (w.x)^3 along v is 6 (w.v)^3.
TEST(ThirdDerivative, Products) {
  each([](const Mesh& mesh, const Placements& p) {
    double wv = 0;
    for (size_t i = 0; i < kX.size(); ++i) wv += kW[i] * kV[i];
    EXPECT_NEAR(third(
                    [&](const DistTensor& x) {
                      const DistTensor w = tensor(kW, mesh, "S0");
                      return einsum("a,b,c,a,b,c->", {w, w, w, x, x, x});
                    },
                    mesh, p),
                6 * wv * wv * wv, 1e-10);
  });
}

// sum_i w_i softmax_i is a mean of w under weights e^x; its derivatives are
// joint cumulants of w and v.
TEST(ThirdDerivative, Softmax) {
  each([](const Mesh& mesh, const Placements& p) {
    double z = 0, w = 0, v = 0;
    for (size_t i = 0; i < kX.size(); ++i) z += std::exp(kX[i]);
    for (size_t i = 0; i < kX.size(); ++i) {
      w += kW[i] * std::exp(kX[i]) / z;
      v += kV[i] * std::exp(kX[i]) / z;
    }
    double wv = 0, vv = 0, wvvv = 0;
    for (size_t i = 0; i < kX.size(); ++i) {
      const double q = std::exp(kX[i]) / z, dw = kW[i] - w, dv = kV[i] - v;
      wv += q * dw * dv;
      vv += q * dv * dv;
      wvvv += q * dw * dv * dv * dv;
    }
    EXPECT_NEAR(third(
                    [&](const DistTensor& x) {
                      return sum(softmax(x, 0) * tensor(kW, mesh, "R"));
                    },
                    mesh, p),
                wvvv - 3 * wv * vv, 1e-12);
    double vvv = 0;
    for (size_t i = 0; i < kX.size(); ++i)
      vvv += std::exp(kX[i]) / z * std::pow(kV[i] - v, 3);
    EXPECT_NEAR(third(
                    [&](const DistTensor& x) {
                      return sum(log_softmax(x, 0) * tensor(kW, mesh, "R"));
                    },
                    mesh, p),
                -vvv * 1.5, 1e-12);  // the weights add up to 1.5
  });
}

// rsqrt, and the composed gradient of a norm: f(c x) has the same value for
// every c > 0, so that f'(x) x = 0, f''(x) x = -f'(x), and the third derivative
// along v, v and x is -2 times the second one along v and v.
TEST(ThirdDerivative, RmsNorm) {
  each([](const Mesh& mesh, const Placements& p) {
    DistTensor x = tensor(kX, mesh, p);
    x.set_requires_grad();
    const DistTensor v = tensor(kV, mesh, "R"), w = tensor(kW, mesh, "R"),
                     one = tensor(Values(5, 1.0), mesh, "R");
    const DistTensor y = sum(rms_norm(x, one, 0) * w),
                     first = sum(slope(y, x) * v),
                     second = sum(slope(first, x) * v);
    EXPECT_NEAR(sum(slope(second, x) * x).item(), -2 * second.item(), 1e-11);
  });
}

TEST(ThirdDerivative, WhatIsRefused) {
  run(2, [](Runtime& rt) {
    DistTensor x = tensor(kX, rt.mesh(), "S0");
    x.set_requires_grad();
    DistTensor y = sum(sin(x));
    for (int k = 0; k < 3; ++k) y = sum(slope(y, x));
    EXPECT_EQ(error_of([&] { slope(y, x); }),
              "[sin] fourth derivatives are not available; call detach() on a "
              "gradient first");
    y = sum(atan2(x, full({}, 2, rt.mesh(), {}, DType::kF64)));
    for (int k = 0; k < 3; ++k) y = sum(slope(y, x));
    EXPECT_EQ(error_of([&] { slope(y, x); }),
              "[atan2'aaa] fourth derivatives are not available; call detach() "
              "on a gradient first");
  });
}

// The second derivative of a running product was 0 where an element is 0.

using testing::values;
using Row = std::vector<double>;

// The product of x[0], ..., x[j] without x[a] and x[b].
double product(const Row& x, size_t j, size_t a, size_t b) {
  double all = 1;
  for (size_t k = 0; k <= j; ++k)
    if (k != a && k != b) all *= x[k];
  return all;
}

// The gradient of sum(v * g) by x, where g is the gradient of sum(u * y).
Row second(const Row& x, const Row& u, const Row& v) {
  Row out(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t m = 0; m < x.size(); ++m)
      for (size_t j = std::max(i, m); j < x.size() && i != m; ++j)
        out[i] += v[m] * u[j] * product(x, j, i, m);
  return out;
}
Row first(const Row& x, const Row& u) {
  Row out(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t j = i; j < x.size(); ++j) out[i] += u[j] * product(x, j, i, i);
  return out;
}

TEST(SecondDerivativeOfCumprod, AtAnyNumberOfZeros) {
  const Row u = {1, -2, 3, 0.5, 4}, v = {2, 1, -1, 3, 0.25};
  for (const Row& x : {Row{2, -1, 0.5, 3, -2}, Row{0, 2, 3, -1, 2},
                       Row{2, 0, 3, -1, 0}, Row{0, 0, 3, 4, 5},
                       Row{1, 0, 0, 2, 0}, Row{0, 0, 0, 0, 0}, Row{0}, Row{}})
    for (const char* layout : {"R", "S0"})
      for (const int64_t ranks : {1, 2, 3})
        run(ranks, [&](Runtime& rt) {
          const auto n = static_cast<int64_t>(x.size());
          const auto put = [&](const Row& all) {
            return DistTensor::from_global(Tensor::from({n}, all.data()),
                                           rt.mesh(), layout);
          };
          const DistTensor at = put(x).set_requires_grad();
          const DistTensor slope = grad(sum(mul(cumprod(at, 0), put(u))), {at},
                                        {.create_graph = true})[0];
          const Row got = values(slope), want = first(x, u);
          const Row got2 = values(grad(sum(mul(slope, put(v))), {at})[0]),
                    want2 = second(x, u, v);
          for (size_t i = 0; i < x.size(); ++i) {
            EXPECT_NEAR(got[i], want[i], 1e-12) << layout << " " << i;
            EXPECT_NEAR(got2[i], want2[i], 1e-12) << layout << " " << i;
          }
        });
}

// The sums of the rows of the matrix of second derivatives, by hand.
TEST(SecondDerivativeOfCumprod, ByHand) {
  run(1, [](Runtime& rt) {
    const double x[] = {0, 2, 3};
    const DistTensor at =
        DistTensor::from_global(Tensor::from({3}, x), rt.mesh(), {})
            .set_requires_grad();
    const DistTensor slope =
        grad(sum(cumprod(at, 0)), {at}, {.create_graph = true})[0];
    EXPECT_EQ(values(slope), (Row{9, 0, 0}));
    EXPECT_EQ(values(grad(sum(slope), {at})[0]), (Row{6, 4, 2}));
  });
}

// A third derivative, of x[0] x[1] x[2] by all three.
TEST(SecondDerivativeOfCumprod, AndTheThird) {
  run(1, [](Runtime& rt) {
    const DistTensor at = zeros({3}, rt.mesh(), {}, DType::kF64);
    DistTensor(at).set_requires_grad();
    DistTensor of = cumprod(at, 0);
    for (int64_t i = 0; i < 3; ++i) {
      const double pick[] = {i == 0 ? 0.0 : 1.0 * (i == 1), 1.0 * (i == 2), 0};
      const double last[] = {0, 0, 1};
      of = grad(sum(mul(of, DistTensor::from_global(
                                Tensor::from({3}, i == 0 ? last : pick),
                                rt.mesh(), {}))),
                {at}, {.create_graph = true})[0];
    }
    EXPECT_EQ(values(of), (Row{0, 0, 1}));
  });
}

}  // namespace
}  // namespace dtensor
