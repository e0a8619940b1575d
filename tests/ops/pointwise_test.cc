// SPDX-License-Identifier: Apache-2.0
// Public functions by name, against plain loops over <cmath>.
#include "dtensor/ops/pointwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/array.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
using Values = std::vector<double>;
using testing::error_of;
using testing::values;

DistTensor tensor(const Mesh& mesh, const Values& v, DType t) {
  const Tensor x =
      Tensor::from<double>({static_cast<int64_t>(v.size())}, v.data());
  return cast(DistTensor::from_global(x, mesh, {}), t);
}
double tolerance(DType t) {
  return t == DType::kF64 ? 1e-13 : t == DType::kF32 ? 3e-6 : 1.0 / 64;
}
// The tolerance is relative to the larger of 1 and the value.
void expect_near(const DistTensor& got, const Values& want,
                 const std::string& what) {
  const Values v = values(got);
  ASSERT_EQ(v.size(), want.size()) << what;
  for (size_t i = 0; i < v.size(); ++i) {
    if (v[i] == want[i] || (std::isnan(v[i]) && std::isnan(want[i]))) continue;
    const double scale = std::fmax(1, std::fabs(want[i]));
    EXPECT_NEAR(v[i], want[i], tolerance(got.dtype()) * scale)
        << what << " " << name(got.dtype()) << " at " << i;
  }
}

template <class Fn>
void on_one_rank(Fn&& fn) {
  run(1, [&](Runtime&) { fn(Mesh::parse("1")); });
}

struct Unary {
  const char* name;
  std::function<DistTensor(const DistTensor&)> call;
  std::function<double(double)> want;
  double lo = -3.25, hi = 3.5;
};
#define CALL(f) #f, [](const DistTensor& x) { return f(x); }
#define CALL_P(f, ...) #f, [](const DistTensor& x) { return f(x, __VA_ARGS__); }
#define WANT(expression) [](double x) -> double { return expression; }
double sigma(double x) { return 1 / (1 + std::exp(-x)); }
double soft(double x) { return std::log1p(std::exp(x)); }

std::vector<Unary> unary_functions() {
  return {
      {CALL(neg), WANT(-x)},
      {CALL(positive), WANT(x)},
      {CALL(abs), WANT(std::fabs(x))},
      {CALL(sign), WANT((x > 0) - (x < 0))},
      {CALL(sgn), WANT((x > 0) - (x < 0))},
      {CALL(reciprocal), WANT(1 / x), 0.3, 4},
      {CALL_P(add_scalar, 0.5), WANT(x + 0.5)},
      {CALL_P(mul_scalar, 1.5), WANT(x * 1.5)},
      {CALL_P(div_scalar, 3), WANT(x / 3)},
      {CALL_P(clamp, -1, 2.5), WANT(std::fmin(std::fmax(x, -1), 2.5))},
      {CALL(nan_to_num), WANT(x)},
      {CALL(exp), WANT(std::exp(x))},
      {CALL(exp2), WANT(std::exp2(x))},
      {CALL(expm1), WANT(std::expm1(x))},
      {CALL(log), WANT(std::log(x)), 0.2, 9},
      {CALL(log2), WANT(std::log2(x)), 0.2, 9},
      {CALL(log10), WANT(std::log10(x)), 0.2, 9},
      {CALL(log1p), WANT(std::log1p(x)), -0.7, 9},
      {CALL(sqrt), WANT(std::sqrt(x)), 0.2, 9},
      {CALL(rsqrt), WANT(1 / std::sqrt(x)), 0.2, 9},
      {CALL(square), WANT(x * x)},
      {CALL_P(pow_scalar, 2.5), WANT(std::pow(x, 2.5)), 0.2, 3},
      {CALL(erf), WANT(std::erf(x))},
      {CALL(erfc), WANT(std::erfc(x))},
      {CALL(ndtr), WANT(std::erfc(-x / std::sqrt(2.0)) / 2)},
      {CALL(entr), WANT(-x * std::log(x)), 0.2, 3},
      {CALL(logit), WANT(std::log(x / (1 - x))), 0.1, 0.9},
      {CALL(sin), WANT(std::sin(x))},
      {CALL(cos), WANT(std::cos(x))},
      {CALL(tan), WANT(std::tan(x)), -1.2, 1.2},
      {CALL(asin), WANT(std::asin(x)), -0.9, 0.9},
      {CALL(acos), WANT(std::acos(x)), -0.9, 0.9},
      {CALL(atan), WANT(std::atan(x))},
      {CALL(sinh), WANT(std::sinh(x))},
      {CALL(cosh), WANT(std::cosh(x))},
      {CALL(tanh), WANT(std::tanh(x))},
      {CALL(asinh), WANT(std::asinh(x))},
      {CALL(acosh), WANT(std::acosh(x)), 1.2, 5},
      {CALL(atanh), WANT(std::atanh(x)), -0.8, 0.8},
      {CALL(sinc), WANT(x == 0 ? 1 : std::sin(M_PI * x) / (M_PI * x))},
      {CALL(deg2rad), WANT(x * M_PI / 180)},
      {CALL(rad2deg), WANT(x * 180 / M_PI)},
      {CALL(relu), WANT(std::fmax(x, 0))},
      {CALL(leaky_relu), WANT(x > 0 ? x : 0.01 * x)},
      {CALL_P(leaky_relu, 0.25), WANT(x > 0 ? x : 0.25 * x)},
      {CALL(elu), WANT(x > 0 ? x : std::expm1(x))},
      {CALL_P(elu, 2), WANT(x > 0 ? x : 2 * std::expm1(x))},
      {CALL_P(celu, 2), WANT(x > 0 ? x : 2 * std::expm1(x / 2))},
      {CALL(selu), WANT(1.0507009873554805 *
                        (x > 0 ? x : 1.6732632423543772 * std::expm1(x)))},
      {CALL(gelu), WANT(x / 2 * std::erfc(-x / std::sqrt(2.0)))},
      {CALL(gelu_tanh),
       WANT(x / 2 *
            (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))))},
      {CALL(silu), WANT(x * sigma(x))},
      {CALL(mish), WANT(x * std::tanh(soft(x)))},
      {CALL(sigmoid), WANT(sigma(x))},
      {CALL(logsigmoid), WANT(-soft(-x))},
      {CALL(softplus), WANT(soft(x))},
      {CALL_P(softplus, 2, 3), WANT(2 * x > 3 ? x : soft(2 * x) / 2)},
      {CALL(hardtanh), WANT(std::fmin(std::fmax(x, -1), 1))},
      {CALL_P(hardtanh, -2, 0.5), WANT(std::fmin(std::fmax(x, -2), 0.5))},
      {CALL(relu6), WANT(std::fmin(std::fmax(x, 0), 6)), -3, 9},
      {CALL(hardsigmoid), WANT(std::fmin(std::fmax(x + 3, 0), 6) / 6), -5, 5},
      {CALL(hardswish), WANT(x * std::fmin(std::fmax(x + 3, 0), 6) / 6), -5, 5},
      {CALL(softsign), WANT(x / (1 + std::fabs(x)))},
      {CALL(tanhshrink), WANT(x - std::tanh(x))},
      {CALL(softshrink), WANT(x > 0.5    ? x - 0.5
                              : x < -0.5 ? x + 0.5
                                         : 0)},
      {CALL_P(hardshrink, 1), WANT(std::fabs(x) > 1 ? x : 0)},
      {CALL_P(threshold, 1, -7), WANT(x > 1 ? x : -7)},
      {CALL(floor), WANT(std::floor(x))},
      {CALL(ceil), WANT(std::ceil(x))},
      {CALL(trunc), WANT(std::trunc(x))},
      {CALL(round), WANT(std::nearbyint(x))},
      {CALL_P(round, 1), WANT(std::nearbyint(x * 10) / 10)},
      {CALL(frac), WANT(x - std::trunc(x))},
      {CALL(isnan), WANT(std::isnan(x))},
      {CALL(isinf), WANT(std::isinf(x))},
      {CALL(isfinite), WANT(std::isfinite(x))},
      {CALL(isposinf), WANT(x == kInf)},
      {CALL(isneginf), WANT(x == -kInf)},
      {CALL(signbit), WANT(std::signbit(x))},
      {CALL(logical_not), WANT(x == 0)},
  };
}

TEST(Pointwise, UnaryFunctionsGiveWhatCmathGives) {
  on_one_rank([](const Mesh& m) {
    for (const Unary& f : unary_functions())
      for (DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
        Values in;  // multiples of 1/32, which halves round below
        for (int i = 0; i < 37; ++i)
          in.push_back(std::floor((f.lo + (f.hi - f.lo) * i / 36) * 32) / 32);
        Values want;
        for (double& x : in) {
          if (x < f.lo) x += 1.0 / 32;
          if (is_half_float(t)) x = tensor(m, {x}, t).item();
          want.push_back(f.want(x));
        }
        expect_near(f.call(tensor(m, in, t)), want, f.name);
      }
  });
}

struct Binary {
  const char* name;
  std::function<DistTensor(const DistTensor&, const DistTensor&)> call;
  std::function<double(double, double)> want;
  double lo = -3.25, hi = 3.5;  // of both operands
};
#define CALL2(f) \
#f, [](const DistTensor& a, const DistTensor& b) { return f(a, b); }
#define WANT2(expression) \
  [](double a, double b) -> double { return expression; }

std::vector<Binary> binary_functions() {
  return {
      {CALL2(add), WANT2(a + b)},
      {CALL2(sub), WANT2(a - b)},
      {CALL2(mul), WANT2(a * b)},
      {CALL2(div), WANT2(a / b)},
      {CALL2(pow), WANT2(std::pow(a, b)), 0.25, 3},
      {CALL2(ldexp), WANT2(a * std::exp2(b))},
      {CALL2(logaddexp), WANT2(std::log(std::exp(a) + std::exp(b)))},
      {CALL2(logaddexp2), WANT2(std::log2(std::exp2(a) + std::exp2(b)))},
      {CALL2(xlogy), WANT2(a * std::log(b)), 0.25, 3},
      {CALL2(xlog1py), WANT2(a * std::log1p(b)), 0.25, 3},
      {CALL2(atan2), WANT2(std::atan2(a, b))},
      {CALL2(hypot), WANT2(std::hypot(a, b))},
      {CALL2(maximum), WANT2(std::fmax(a, b))},
      {CALL2(minimum), WANT2(std::fmin(a, b))},
      {CALL2(fmax), WANT2(std::fmax(a, b))},
      {CALL2(fmin), WANT2(std::fmin(a, b))},
      {CALL2(copysign), WANT2(std::copysign(a, b))},
      {CALL2(heaviside), WANT2(a < 0   ? 0
                               : a > 0 ? 1
                                       : b)},
      {CALL2(fmod), WANT2(std::fmod(a, b))},
      {CALL2(remainder), WANT2(a - b * std::floor(a / b))},
      {CALL2(floor_divide), WANT2(std::floor(a / b))},
      {CALL2(trunc_divide), WANT2(std::trunc(a / b))},
      {CALL2(eq), WANT2(a == b)},
      {CALL2(ne), WANT2(a != b)},
      {CALL2(lt), WANT2(a < b)},
      {CALL2(le), WANT2(a <= b)},
      {CALL2(gt), WANT2(a > b)},
      {CALL2(ge), WANT2(a >= b)},
      {CALL2(logical_and), WANT2(a != 0 && b != 0)},
      {CALL2(logical_or), WANT2(a != 0 || b != 0)},
      {CALL2(logical_xor), WANT2((a != 0) != (b != 0))},
      {CALL2(isclose), WANT2(std::fabs(a - b) <= 1e-8 + 1e-5 * std::fabs(b))},
  };
}

// Multiples of 1/8. Some elements of b equal those of a, and none are 0.
void operands(const Binary& f, Values& a, Values& b) {
  for (int i = 0; i < 41; ++i) {
    const double x = std::fmax(f.lo, -3.25 + 0.25 * (i * 7 % 27));
    const double y = std::fmax(f.lo, -3.125 + 0.25 * (i * 5 % 27));
    a.push_back(x);
    b.push_back(i % 4 ? y : x == 0 ? 1 : x);
  }
}

TEST(Pointwise, BinaryFunctionsGiveWhatCmathGives) {
  on_one_rank([](const Mesh& m) {
    for (const Binary& f : binary_functions())
      for (DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
        Values a, b, want;
        operands(f, a, b);
        for (size_t i = 0; i < a.size(); ++i)
          want.push_back(f.want(a[i], b[i]));
        expect_near(f.call(tensor(m, a, t), tensor(m, b, t)), want, f.name);
      }
  });
}

// As in Python and torch. Guards a fix: it was NaN if the signs differ.
TEST(Pointwise, FloorDivideByInfinity) {
  on_one_rank([](const Mesh& m) {
    const double inf = INFINITY;
    const Values a{-5, 5, 5, -5, 0, 7, -7}, b{inf, -inf, inf, -inf, -inf, 2, 2};
    for (DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
      EXPECT_EQ(values(floor_divide(tensor(m, a, t), tensor(m, b, t))),
                (Values{-1, -1, 0, 0, 0, 3, -4}));
  });
}

TEST(Pointwise, IntegersAndBools) {
  on_one_rank([](const Mesh& m) {
    const Values a{7, -7, 0, 12, -1, 5}, b{2, 2, 3, 18, -4, 0};
    for (DType t : {DType::kI32, DType::kI64}) {
      const DistTensor x = tensor(m, a, t), y = tensor(m, b, t);
      EXPECT_EQ(values(add(x, y)), (Values{9, -5, 3, 30, -5, 5}));
      EXPECT_EQ(values(floor_divide(x, y)), (Values{3, -4, 0, 0, 0, 0}));
      EXPECT_EQ(values(floor_divide(tensor(m, {-5, 7, -8, -7}, t),
                                    tensor(m, {0, -2, -2, 7}, t))),
                (Values{0, -4, 4, -1}));
      EXPECT_EQ(values(trunc_divide(x, y)), (Values{3, -3, 0, 0, 0, 0}));
      EXPECT_EQ(values(remainder(x, y)), (Values{1, 1, 0, 12, -1, 0}));
      EXPECT_EQ(values(fmod(x, y)), (Values{1, -1, 0, 12, -1, 0}));
      EXPECT_EQ(values(gcd(x, y)), (Values{1, 1, 3, 6, 1, 5}));
      EXPECT_EQ(values(lcm(x, y)), (Values{14, 14, 0, 36, 4, 0}));
      EXPECT_EQ(values(bitwise_and(x, y)), (Values{2, 0, 0, 0, -4, 0}));
      EXPECT_EQ(values(bitwise_or(x, y)), (Values{7, -5, 3, 30, -1, 5}));
      EXPECT_EQ(values(bitwise_xor(x, y)), (Values{5, -5, 3, 30, 3, 5}));
      EXPECT_EQ(values(bitwise_not(x)), (Values{-8, 6, -1, -13, 0, -6}));
      EXPECT_EQ(values(bitwise_left_shift(x, y)),
                (Values{28, -28, 0, 12.0 * 262144, 0, 5}));
      EXPECT_EQ(values(bitwise_right_shift(x, y)),
                (Values{1, -2, 0, 0, -1, 5}));
      EXPECT_EQ(values(heaviside(x, y)), (Values{1, 0, 3, 1, 0, 1}));
      EXPECT_EQ(values(maximum(x, 3)), (Values{7, 3, 3, 12, 3, 5}));
      EXPECT_EQ(values(2 - x), (Values{-5, 9, 2, -10, 3, -3}));
      EXPECT_EQ(values(floor(x)), a);
      EXPECT_EQ(floor(x).dtype(), t);
      EXPECT_EQ(exp(x).dtype(), DType::kF32);
      EXPECT_EQ(div(x, y).dtype(), DType::kF32);
      EXPECT_EQ(values(logical_not(x)), (Values{0, 0, 1, 0, 0, 0}));
    }
    Values in_p, in_q;
    for (int i = 0; i < 4; ++i) in_p.push_back(i % 2), in_q.push_back(i / 2);
    const DistTensor p = tensor(m, in_p, DType::kBool),
                     q = tensor(m, in_q, DType::kBool);
    auto table = [](bool (*f)(bool, bool)) {
      Values v;
      for (int i = 0; i < 4; ++i) v.push_back(f(i % 2, i / 2));
      return v;
    };
    EXPECT_EQ(values(add(p, q)), table([](bool a, bool b) { return a || b; }));
    EXPECT_EQ(values(mul(p, q)), table([](bool a, bool b) { return a && b; }));
    EXPECT_EQ(values(maximum(p, q)),
              table([](bool a, bool b) { return a || b; }));
    EXPECT_EQ(values(bitwise_not(p)), table([](bool a, bool) { return !a; }));
    EXPECT_EQ(values(bitwise_xor(p, q)),
              table([](bool a, bool b) { return a != b; }));
    EXPECT_EQ(values(lt(p, q)), table([](bool a, bool b) { return !a && b; }));
    EXPECT_EQ(sign(p).dtype(), DType::kBool);
    EXPECT_EQ(square(p).dtype(), DType::kI64);
    EXPECT_EQ(atan2(p, q).dtype(), DType::kF32);
    for (auto refused : {+[](const DistTensor& x) { return neg(x); },
                         +[](const DistTensor& x) { return relu(x); },
                         +[](const DistTensor& x) { return sub(x, x); }})
      EXPECT_NE(error_of([&] { refused(p); }).find("does not take bools"),
                std::string::npos);
    const DistTensor f = tensor(m, {1, 2}, DType::kF32);
    EXPECT_NE(error_of([&] { gcd(f, f); }).find("takes integers"),
              std::string::npos);
    EXPECT_NE(error_of([&] { bitwise_not(f); }).find("integers and bools"),
              std::string::npos);
  });
}

TEST(Pointwise, SpecialValues) {
  on_one_rank([](const Mesh& m) {
    for (DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
      const DistTensor x = tensor(m, {kNaN, kInf, -kInf, -0.0}, t);
      EXPECT_EQ(values(isnan(x)), (Values{1, 0, 0, 0}));
      EXPECT_EQ(values(isinf(x)), (Values{0, 1, 1, 0}));
      EXPECT_EQ(values(isposinf(x)), (Values{0, 1, 0, 0}));
      EXPECT_EQ(values(isneginf(x)), (Values{0, 0, 1, 0}));
      EXPECT_EQ(values(isfinite(x)), (Values{0, 0, 0, 1}));
      EXPECT_EQ(values(signbit(x))[2], 1);
      EXPECT_EQ(values(signbit(x))[3], 1);
      EXPECT_FALSE(std::signbit(values(relu(x))[3]));
      const Values finite = values(nan_to_num(x));
      EXPECT_EQ(finite[0], 0);
      EXPECT_TRUE(std::isfinite(finite[1]) &&
                  finite[1] >= (t == DType::kF16 ? 65504 : 1e38));
      EXPECT_EQ(finite[2], -finite[1]);
      EXPECT_EQ(values(nan_to_num(x, 1, 2, 3)), (Values{1, 2, 3, 0}));
      expect_near(softshrink(x), {kNaN, kInf, -kInf, 0}, "softshrink");
      expect_near(clamp(x, -1, 1), {kNaN, 1, -1, 0}, "clamp");
      expect_near(fmax(x, 1), {1, kInf, 1, 1}, "fmax");
      expect_near(maximum(x, 1), {kNaN, kInf, 1, 1}, "maximum");
      expect_near(xlogy(tensor(m, {0, 0, 2}, t), tensor(m, {0, kNaN, 0}, t)),
                  {0, kNaN, -kInf}, "xlogy");
      expect_near(logaddexp(x, x), {kNaN, kInf, -kInf, std::log(2)},
                  "logaddexp");
      expect_near(hypot(x, 1), {kNaN, kInf, kInf, 1}, "hypot");
    }
    const DistTensor one = tensor(m, {1}, DType::kF32);
    EXPECT_EQ(values(nextafter(one, 2))[0], std::nextafter(1.0f, 2.0f));
    for (DType t : {DType::kBF16, DType::kF16})
      EXPECT_NE(error_of([&] {
                  nextafter(cast(one, t), 2);
                }).find("is not available in " + std::string(name(t))),
                std::string::npos);
  });
}

// Elements that are not finite, and signs of 0. Long enough for registers.
TEST(Pointwise, LimitsOfEveryType) {
  const auto same = [](const DistTensor& got, Values want, const char* what) {
    const Values v = values(got);
    for (size_t i = 0; i < v.size(); ++i) {
      const double w = want[i % want.size()];
      EXPECT_TRUE(std::isnan(w)
                      ? std::isnan(v[i])
                      : v[i] == w && std::signbit(v[i]) == std::signbit(w))
          << what << " " << name(got.dtype()) << " at " << i << ": " << v[i]
          << ", not " << w;
    }
  };
  on_one_rank([&](const Mesh& m) {
    for (DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
      const auto repeated = [&](const Values& v) {
        Values all;
        for (int i = 0; i < 20; ++i) all.insert(all.end(), v.begin(), v.end());
        return tensor(m, all, t);
      };
      const DistTensor x = repeated({kNaN, kInf, -kInf, -0.0, 0, -2.5, 0.5}),
                       y = repeated({1, kNaN, 3, -1, -1, kInf, -kInf});
      same(sign(x), {0, 1, -1, 0, 0, -1, 1}, "sign");
      same(round(x), {kNaN, kInf, -kInf, -0.0, 0, -2, 0}, "round");
      same(round(x, 1), {kNaN, kInf, -kInf, -0.0, 0, -2.5, 0.5}, "round to 1");
      same(round(x, -1), {kNaN, kInf, -kInf, -0.0, 0, -0.0, 0}, "round to 10");
      same(clamp(x, -1, 1), {kNaN, 1, -1, -0.0, 0, -1, 0.5}, "clamp");
      same(clamp(x, 0, kInf), {kNaN, kInf, 0, -0.0, 0, 0, 0.5}, "clamp to 0");
      same(clamp(x, 2, -1), {kNaN, -1, -1, -1, -1, -1, -1}, "no range");
      const Values nans(7, kNaN);
      same(clamp(x, kNaN, 1), nans, "NaN below");
      same(clamp(x, 0, kNaN), nans, "NaN above");
      same(clamp_min(x, kNaN), nans, "NaN as min");
      same(clamp_max(x, kNaN), nans, "NaN as max");
      DistTensor z = x.detach();
      z.set_requires_grad();
      same(grad(clamp(z, kNaN, 1), {z}, {.cotangent = ones_like(z)})[0],
           Values(7, 0), "no slope");
      same(clamp_min(x, 0.25), {kNaN, kInf, .25, .25, .25, .25, .5}, "min");
      same(clamp_max(x, 0.25), {kNaN, .25, -kInf, -0.0, 0, -2.5, .25}, "max");
      same(maximum(x, y), {kNaN, kNaN, 3, -0.0, 0, kInf, 0.5}, "maximum");
      same(minimum(x, y), {kNaN, kNaN, -kInf, -1, -1, -2.5, -kInf}, "minimum");
      same(maximum(y, x), {kNaN, kNaN, 3, -0.0, 0, kInf, 0.5}, "maximum");
      same(minimum(y, x), {kNaN, kNaN, -kInf, -1, -1, -2.5, -kInf}, "minimum");
      same(fmax(x, y), {1, kInf, 3, -0.0, 0, kInf, 0.5}, "fmax");
      same(fmin(x, y), {1, kInf, -kInf, -1, -1, -2.5, -kInf}, "fmin");
      same(nan_to_num(x, 7, 8, -9), {7, 8, -9, -0.0, 0, -2.5, 0.5}, "nan");
      same(where(gt(y, 0), x, y), {kNaN, kNaN, -kInf, -1, -1, -2.5, -kInf},
           "where");
      same(where(isnan(y), y, x), {kNaN, kNaN, -kInf, -0.0, 0, -2.5, 0.5},
           "where");
      same(nan_to_num(repeated({kNaN, -0.0}), kNaN), {kNaN, -0.0}, "NaN");
    }
  });
}

// Elements that a condition leaves out have no gradient, even where the slope
// is NaN.
TEST(Pointwise, TheOtherSideOfWhereIsNotMultiplied) {
  on_one_rank([&](const Mesh& m) {
    DistTensor x = tensor(m, {0, kInf, 4}, DType::kF64).set_requires_grad();
    const DistTensor cotangent = tensor(m, {kNaN, kInf, 1}, DType::kF64);
    GradOptions options;
    options.cotangent = cotangent;
    const DistTensor y = where(gt(tensor(m, {0, 0, 1}, DType::kF64), 0), x, 0);
    EXPECT_EQ(values(grad(y, {x}, options)[0]), (Values{0, 0, 1}));
  });
}

// The reference computes the gate's sigmoid with libm.
TEST(Pointwise, SwiGluIsTheGatedProduct) {
  on_one_rank([](const Mesh& m) {
    for (DType t : {DType::kF32, DType::kF64}) {
      const auto gated = [](double a, double b) {
        return a / (1 + std::exp(-a)) * b;
      };
      expect_near(swiglu(tensor(m, {-3, -0.5, 0, 2, 40}, t),
                         tensor(m, {2, 5, 7, -1.5, 0.25}, t)),
                  {gated(-3, 2), gated(-0.5, 5), 0, gated(2, -1.5), 10},
                  "swiglu");
    }
  });
}

TEST(Pointwise, ByName) {
  on_one_rank([](const Mesh& m) {
    const DistTensor x = tensor(m, {-1, 2}, DType::kF64);
    EXPECT_EQ(values(unary("leaky_relu", x, {0.5})), (Values{-0.5, 2}));
    expect_near(binary("hypot", x, x), {std::sqrt(2), std::sqrt(8)}, "hypot");
    EXPECT_NE(error_of([&] { unary("relo", x); }).find("relo"),
              std::string::npos);
    EXPECT_NE(error_of([&] {
                unary("clamp", x);
              }).find("parameters is 0; pass 1 to 2"),
              std::string::npos);
    EXPECT_NE(error_of([&] { binary("hypo", x, x); }).find("hypo"),
              std::string::npos);
  });
}

TEST(Pointwise, LerpIsExactAtBothEnds) {
  on_one_rank([](const Mesh& m) {
    const DistTensor a = tensor(m, {1, 1e16}, DType::kF64),
                     b = tensor(m, {0.1, 3}, DType::kF64);
    EXPECT_EQ(values(lerp(a, b, 0)), values(a));
    EXPECT_EQ(values(lerp(a, b, 1)), values(b));
    const DistTensor ends = tensor(m, {1, 0}, DType::kF64);
    EXPECT_EQ(values(lerp(a, b, ends)), (Values{0.1, 1e16}));
    const DistTensor small = tensor(m, {-2, 4}, DType::kF32),
                     large = tensor(m, {6, -4}, DType::kF32);
    for (double weight : {-0.5, 0.25, 0.75, 2.0})
      EXPECT_EQ(values(lerp(small, large, weight)),
                (Values{-2 + 8 * weight, 4 - 8 * weight}));
  });
}

TEST(Pointwise, CloneHasItsOwnMemory) {
  on_one_rank([](const Mesh& m) {
    for (DType t : {DType::kF32, DType::kI64, DType::kBool}) {
      const DistTensor x = tensor(m, {1, 0}, t), y = clone(x);
      EXPECT_EQ(y.dtype(), t);
      Tensor(x.local()).fill(0);
      EXPECT_EQ(values(y), (Values{1, 0}));
    }
  });
}

// Numbers that pointwise functions got wrong: gradients at 0 and at NaN,
// divisions by a number, integers, types of tensors without dimensions, and
// partial sums whose parts lose the value.

template <class T>
DistTensor tensor(const Mesh& mesh, const std::vector<T>& v) {
  return DistTensor::from_global(
      Tensor::from<T>({static_cast<int64_t>(v.size())}, v.data()), mesh, {});
}

TEST(PointwiseNumbers, PowersOfZeroHaveNoSlope) {
  on_one_rank([](const Mesh& m) {
    DistTensor a = tensor<double>(m, {0, 0, 2}),
               b = tensor<double>(m, {0, 2, 3});
    a.set_requires_grad(), b.set_requires_grad();
    const auto g = grad(sum(pow(a, b)), {a, b});
    EXPECT_EQ(values(g[0])[0], 0);
    EXPECT_EQ(values(g[0])[1], 0);
    EXPECT_NEAR(values(g[0])[2], 12, 1e-13);
    EXPECT_EQ(values(g[1])[0], 0);
    EXPECT_EQ(values(g[1])[1], 0);
    EXPECT_NEAR(values(g[1])[2], 8 * std::log(2), 1e-14);
  });
}

TEST(PointwiseNumbers, DivisionByANumberDivides) {
  on_one_rank([](const Mesh& m) {
    EXPECT_EQ((full({}, 49, m, {}, DType::kF64) / 49.0).item(), 1);
    EXPECT_EQ(mean(ones({49}, m, {}, DType::kF64)).item(), 1);
    EXPECT_EQ(mean(ones({41}, m)).item(), 1);
    EXPECT_EQ(floor(full({}, 147, m, {}, DType::kF64) / 49.0).item(), 3);
    EXPECT_EQ((1 / full({}, 49, m, {}, DType::kF64)).item(), 1.0 / 49);
  });
}

TEST(PointwiseNumbers, IntegersStayExact) {
  on_one_rank([](const Mesh& m) {
    const DistTensor i = tensor<int64_t>(m, {16777217, 5001, -7});
    const DistTensor cut = clamp(i, -0.5, 2.5);
    EXPECT_EQ(cut.dtype(), DType::kF32);
    EXPECT_EQ(values(cut), (Values{2.5, 2.5, -0.5}));
    EXPECT_EQ(clamp(i, -5, 6000).dtype(), DType::kI64);
    EXPECT_EQ(values(clamp(i, -5, 6000)), (Values{6000, 5001, -5}));
    EXPECT_EQ(pow(i, 2).dtype(), DType::kI64);
    EXPECT_EQ(values(pow(i, 2))[1], 25010001);
    EXPECT_EQ(values(unary("abs", i)), (Values{16777217, 5001, 7}));
    EXPECT_EQ(unary("abs", i).dtype(), DType::kI64);
    EXPECT_NE(error_of([&] { pow(i, -1); }).find("[pow]"), std::string::npos);
    const DistTensor s = sum(full({4}, 1 << 30, m, {}, DType::kI32));
    EXPECT_EQ(s.dtype(), DType::kI64);
    EXPECT_EQ(s.item(), 4294967296);
  });
}

TEST(PointwiseNumbers, ANumberKeepsOrRaisesTheKind) {
  on_one_rank([](const Mesh& m) {
    const DistTensor i = full({2}, 1, m, {}, DType::kI32);
    const DistTensor b = full({2}, 1, m, {}, DType::kBool);
    EXPECT_EQ(add(i, 1).dtype(), DType::kI32);
    EXPECT_EQ(add(i, 3e9).dtype(), DType::kF32);
    EXPECT_EQ(values(add(i, 3e9))[0], 3e9);
    EXPECT_NE(error_of([&] { add(i, int64_t{3000000000}); }).find("i32"),
              std::string::npos);
    EXPECT_EQ(mul(i, 2.0).dtype(), DType::kF32);
    EXPECT_EQ(add(b, 1).dtype(), DType::kI64);
    EXPECT_EQ(values(add(b, 1)), (Values{2, 2}));
    EXPECT_EQ(add(b, true).dtype(), DType::kBool);
    EXPECT_EQ(add(b, 0.5).dtype(), DType::kF32);
    EXPECT_EQ(add(b, b).dtype(), DType::kBool);
    EXPECT_EQ(values(add(b, b)), (Values{1, 1}));
    EXPECT_EQ(values(1 - tensor<double>(m, {3, kInf})), (Values{-2, -kInf}));
    EXPECT_EQ(values(add(tensor<double>(m, {1}), kInf)), (Values{kInf}));
    EXPECT_NE(error_of([&] { neg(b); }).find("[neg]"), std::string::npos);
  });
}

TEST(PointwiseNumbers, TensorsWithoutDimensionsDoNotWiden) {
  on_one_rank([](const Mesh& m) {
    const DistTensor half = ones({4}, m, {}, DType::kBF16);
    const DistTensor two = full({}, 2, m),
                     wide = full({}, 2, m, {}, DType::kF64);
    EXPECT_EQ(mul(half, two).dtype(), DType::kBF16);
    EXPECT_EQ(mul(wide, half).dtype(), DType::kBF16);
    EXPECT_EQ(where(ne(half, 0), half, wide).dtype(), DType::kBF16);
    EXPECT_EQ(mul(ones({4}, m, {}, DType::kI64), two).dtype(), DType::kF32);
    EXPECT_EQ(mul(two, wide).dtype(), DType::kF64);
    EXPECT_EQ(mul(half, ones({1}, m)).dtype(), DType::kF32);
  });
}

TEST(PointwiseNumbers, GradientsOfMaximum) {
  on_one_rank([](const Mesh& m) {
    DistTensor a = tensor<double>(m, {1, kNaN, 2, 5}),
               b = tensor<double>(m, {1, 3, kNaN, 4});
    a.set_requires_grad(), b.set_requires_grad();
    for (auto* f : {"maximum", "minimum"}) {
      const auto g = grad(sum(binary(f, a, b)), {a, b});
      const bool first = std::string(f) == "maximum";
      EXPECT_EQ(values(g[0]), (Values{0.5, 1, 1, first ? 1.0 : 0.0})) << f;
      EXPECT_EQ(values(g[1]), (Values{0.5, 1, 1, first ? 0.0 : 1.0})) << f;
    }
    const auto same = grad(sum(maximum(a, a)), {a});
    EXPECT_EQ(values(same[0]), (Values{1, 2, 1, 1}));
  });
}

// A partial value with `mine` on the first rank: for example, -2 as -3 + 1.
DistTensor partial(const Mesh& m, double mine, double other, DType t) {
  const bool first = RankContext::current().coordinate(m)[0] == 0;
  return DistTensor::wrap(Tensor::full({1}, t, first ? mine : other),
                          Spec::get(m, {1}, parse_layout("P", m, {1}), t));
}

TEST(PointwiseNumbers, PartialSumsSettleBeforeTheyAreLost) {
  const Mesh m = Mesh::parse("2");
  run(2, [&](Runtime&) {
    const DistTensor x = partial(m, -3, 1, DType::kF64);
    EXPECT_EQ(values(div(x, zeros({1}, m, {}, DType::kF64))), (Values{-kInf}));
    EXPECT_EQ(values(x / 0.0), (Values{-kInf}));
    EXPECT_EQ(values(x * kInf), (Values{-kInf}));
    EXPECT_TRUE(std::isnan(values(x * kNaN)[0]));
    EXPECT_EQ(values(x * 0.5), (Values{-1}));
    const DistTensor none = partial(m, 0, 0, DType::kF64);
    EXPECT_EQ(values(lerp(none, x, 0.25)), (Values{-0.5}));
    EXPECT_EQ(values(lerp(none, x, kInf)), (Values{-kInf}));
    EXPECT_EQ(values(lerp(none, x, -kInf)), (Values{kInf}));
    const DistTensor large = partial(m, 10001.25, -10000.75, DType::kF64);
    EXPECT_EQ(values(cast(large, DType::kBF16)), (Values{0.5}));
    EXPECT_EQ(values(cast(large, DType::kF16)), (Values{0.5}));
    EXPECT_EQ(values(cast(partial(m, 1e30, -1e30, DType::kF32), DType::kF64)),
              (Values{0}));
    const DistTensor whole = partial(m, 16777217, -16777216, DType::kI64);
    EXPECT_EQ(values(cast(whole, DType::kF32)), (Values{1}));
  });
}

TEST(Numbers, FitTheTypeOfIntegers) {
  run(1, [](Runtime& rt) {
    const DistTensor x = cast(ones({2}, rt.mesh()), DType::kI32);
    constexpr int64_t kLarge = 3'000'000'000;
    for (const std::string& e :
         {error_of([&] { x + kLarge; }), error_of([&] { maximum(x, kLarge); }),
          error_of([&] { where(gt(x, 0), x, kLarge); })})
      EXPECT_NE(e.find("the number 3000000000 does not fit i32"), e.npos) << e;
  });
}

TEST(Pointwise, Operators) {
  run(2, [](Runtime& rt) {
    const Mesh& mesh = rt.mesh();
    const auto same = [](const DistTensor& got, const DistTensor& want) {
      EXPECT_EQ(got.spec(), want.spec());
      EXPECT_EQ(values(got), values(want));
    };
    const DistTensor a = tensor({-3, 0, 5, 6}, mesh, "S0"),
                     b = tensor({2, 1, 3, -4}, mesh);
    same(a % b, remainder(a, b));
    EXPECT_EQ(values(a % b), (std::vector<double>{1, 0, 2, -2}));
    EXPECT_EQ(values(a % 4), (std::vector<double>{1, 0, 1, 2}));
    same(a < 5, lt(a, 5));
    same(a <= b, le(a, b));
    same(2 > a, gt(2, a));
    same(a >= b, ge(a, b));
    same(a == b, eq(a, b));
    same(a == 5, eq(a, 5));
    same(a != b, ne(a, b));
    same(a & 6, bitwise_and(a, 6));
    same((a > 0) | (a < -1), ne(a, 0));
    same(a ^ b, bitwise_xor(a, b));
    same(~a, bitwise_not(a));
    same(~(a > 0), le(a, 0));
  });
}

}  // namespace
}  // namespace dtensor
