// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/pointwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "dtensor/ops/functions/lists.h"
#include "dtensor/placement/error.h"
#include "tests/ops/kernels/testing.h"
#include "tests/ops/reference.h"

namespace dtensor::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The values of a function's parameters that the proof uses.
struct Parameters {
  explicit Parameters(const fn::Function& f) {
    for (int i = 0; i < f.num_params; ++i)
      p[i] =
          f.params[i].sample != 0 ? f.params[i].sample : f.params[i].fallback;
  }
  double p[fn::kMaxParams] = {};
};

void run_unary(int index, int order, DType t, const double* params,
               Pointwise of) {
  const int n = params ? fn::unary_function(index).num_params : 0;
  of.type = t;
  run(Unary{.index = index,
            .order = order,
            .params = {params, static_cast<size_t>(n)},
            .of = of});
}
void run_binary(int index, fn::By by, DType t, const double* params,
                Pointwise of) {
  const int n = params ? fn::binary_function(index).num_params : 0;
  of.type = t;
  run(Binary{.index = index,
             .by = by,
             .params = {params, static_cast<size_t>(n)},
             .of = of});
}

TEST(UnaryTest, MatchesTheReferenceInEveryLayout) {
  for (DType t : kAll)
    for (int f = 0; f < fn::kNumUnary; ++f)
      for (const Layout& l : layouts()) {
        const fn::Function& facts = fn::unary_function(f);
        if (!reference::has_value(facts, t)) continue;
        SCOPED_TRACE(std::string(facts.name) + " " + std::string(name(t)) +
                     " " + to_string(l.shape) + to_string(l.strides));
        const Parameters d(facts);
        const Elements x =
            Elements::random(t, span_of(l.shape, l.strides), facts.domain[0].lo,
                             facts.domain[0].hi);
        Elements y(facts.gives_bool ? DType::kBool : t, numel(l.shape), 77);
        Pointwise p;
        p.shape = l.shape;
        p.strides[0] = l.strides;
        p.in[0] = x.data();
        p.out = y.data();
        run_unary(f, 0, t, d.p, p);
        std::vector<double> want = gathered(x, l.shape, l.strides);
        for (double& v : want) v = reference::unary(f, t, v, d.p);
        ASSERT_TRUE(near(y, want));
      }
}

// Errors of a few ulp against std:: in f64: for f32, a relative error of 8e-7.
TEST(UnaryTest, IsAccurate) {
  const int64_t n = 4001;
  const std::string_view close[] = {
      "abs",      "exp",   "exp2",     "expm1",      "log",    "log2", "log10",
      "log1p",    "sqrt",  "rsqrt",    "reciprocal", "square", "sin",  "cos",
      "tan",      "asin",  "acos",     "atan",       "sinh",   "cosh", "tanh",
      "asinh",    "acosh", "atanh",    "sigmoid",    "silu",   "erf",  "erfc",
      "softplus", "mish",  "gelu_tanh"};
  for (DType t : {DType::kF32, DType::kF64})
    for (int f = 0; f < fn::kNumUnary; ++f) {
      const fn::Function& facts = fn::unary_function(f);
      if (std::find(std::begin(close), std::end(close), facts.name) ==
          std::end(close))
        continue;
      const Parameters d(facts);
      const Elements x =
          Elements::random(t, n, facts.domain[0].lo, facts.domain[0].hi, 5);
      Elements y(t, n);
      Pointwise p;
      p.shape = {n};
      p.strides[0] = {1};
      p.in[0] = x.data();
      p.out = y.data();
      run_unary(f, 0, t, d.p, p);
      double worst = 0, at = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double want = reference::unary(f, t, x[i], d.p);
        const double e =
            std::fabs(y[i] - want) / std::fmax(std::fabs(want), 1e-3);
        if (e > worst) worst = e, at = x[i];
      }
      // gelu_tanh rounds the argument of exp().
      const double scale = facts.name == "gelu_tanh" ? 2 : 1;
      EXPECT_LT(worst, scale * (t == DType::kF32 ? 8e-7 : 1.5e-15))
          << facts.name << " " << name(t) << " at " << at;
    }
}

// Floats of every size; an ulp is that of the rounded result.
TEST(UnaryTest, ExpAndErfAreWithinTheirUlps) {
  constexpr uint32_t kInfinity = 0x7f800000, kStep = 4999;
  constexpr int64_t n = kInfinity / kStep + 1;
  for (uint32_t sign : {0u, 1u << 31})
    for (const auto& [name, most] :
         {std::pair("exp", 2.0), std::pair("erf", 4.0)}) {
      Elements x(DType::kF32, n), y(DType::kF32, n);
      for (int64_t i = 0; i < n; ++i)
        x.set(i, std::bit_cast<float>(sign | static_cast<uint32_t>(i) * kStep));
      int f = 0;
      while (fn::unary_function(f).name != name) ++f;
      Pointwise p;
      p.shape = {n};
      p.strides[0] = {1};
      p.in[0] = x.data();
      p.out = y.data();
      run_unary(f, 0, DType::kF32, nullptr, p);
      for (int64_t i = 0; i < n; ++i) {
        const double want =
            f == fn::index_of<fn::Exp> ? std::exp(x[i]) : std::erf(x[i]);
        const auto rounded = static_cast<float>(want);
        if (std::isinf(rounded)) {
          ASSERT_EQ(y[i], rounded) << name << " at " << x[i];
          continue;
        }
        const double ulp =
            std::nextafter(std::fabs(rounded), HUGE_VALF) - std::fabs(rounded);
        ASSERT_LE(std::fabs(y[i] - want), most * ulp) << name << " at " << x[i];
      }
    }
}

// Every value of bf16, so that results are NaN, infinite, denormal, and halfway
// between two values.
TEST(UnaryTest, RoundsOnceToBf16) {
  const int64_t n = 1 << 16;
  const double factor = 0.3;
  Elements x(DType::kBF16, n), y(DType::kBF16, n);
  for (int64_t i = 0; i < n; ++i)
    x.set(i, std::bit_cast<float>(static_cast<uint32_t>(i) << 16));
  Pointwise p;
  p.shape = {n};
  p.strides[0] = {1};
  p.in[0] = x.data();
  p.out = y.data();
  run_unary(fn::index_of<fn::MulScalar>, 0, DType::kBF16, &factor, p);
  for (int64_t i = 0; i < n; ++i) {
    const auto product = static_cast<float>(x[i]) * static_cast<float>(factor);
    const double want = static_cast<float>(bf16(product));
    if (std::isnan(want))
      ASSERT_TRUE(std::isnan(y[i])) << x[i];
    else
      ASSERT_EQ(y[i], want) << x[i];
  }
}

bool has_slope(const fn::Function& f) {
  return f.differentiable() && !f.linear() && !f.affine();
}
bool has_slope(const fn::Function& f, fn::By by) {
  return has_slope(f) && (f.slope_a || fn::times_b(by) == fn::order_of(by));
}

// Finite differences of the reference, in f64.
TEST(UnaryTest, DerivativesMatchFiniteDifferences) {
  const int64_t n = 101;
  for (int f = 0; f < fn::kNumUnary; ++f)
    for (int order = 1; order <= 2; ++order) {
      const fn::Function& facts = fn::unary_function(f);
      if (!has_slope(facts)) continue;
      const Parameters d(facts);
      const Elements x =
          Elements::random(DType::kF64, n, facts.domain[0].lo + 0.1,
                           facts.domain[0].hi - 0.1, 9);
      const Elements dy = Elements::random(DType::kF64, n, -1, 1, 4);
      Elements y(DType::kF64, n);
      Pointwise p;
      p.shape = {n};
      p.strides[0] = p.strides[1] = {1};
      p.in[0] = x.data();
      p.in[1] = dy.data();
      p.out = y.data();
      run_unary(f, order, DType::kF64, d.p, p);
      std::vector<double> want;
      for (int64_t i = 0; i < n; ++i) {
        auto at = [&](double h) {
          return reference::unary(f, DType::kF64, x[i] + h, d.p);
        };
        const double h = order == 1 ? 1e-5 : 1e-4;
        const double slope = order == 1
                                 ? (at(h) - at(-h)) / (2 * h)
                                 : (at(h) - 2 * at(0) + at(-h)) / (h * h);
        want.push_back(slope * dy[i]);
      }
      EXPECT_TRUE(near(y, want, order == 1 ? 1e-7 : 1e-5))
          << facts.name << " " << order;
    }
}

// Compares with differences of second derivatives, which the test above checks.
TEST(UnaryTest, ThirdDerivativesMatchFiniteDifferences) {
  const int64_t n = 101;
  for (int f = 0; f < fn::kNumUnary; ++f) {
    const fn::Function& facts = fn::unary_function(f);
    if (!has_slope(facts)) continue;
    const Parameters d(facts);
    const Elements x = Elements::random(
        DType::kF64, n, facts.domain[0].lo + 0.1, facts.domain[0].hi - 0.1, 9);
    const Elements dy = Elements::random(DType::kF64, n, -1, 1, 4);
    const auto at = [&](int order, double h) {
      std::vector<double> moved = x.doubles();
      for (double& v : moved) v += h;
      const Elements in(DType::kF64, moved);
      Elements y(DType::kF64, n);
      Pointwise p;
      p.shape = {n};
      p.strides[0] = p.strides[1] = {1};
      p.in[0] = in.data();
      p.in[1] = dy.data();
      p.out = y.data();
      run_unary(f, order, DType::kF64, d.p, p);
      return y;
    };
    const double h = 1e-5;
    std::vector<double> want = at(2, h).doubles();
    const std::vector<double> low = at(2, -h).doubles();
    for (size_t i = 0; i < want.size(); ++i)
      want[i] = (want[i] - low[i]) / (2 * h);
    EXPECT_TRUE(near(at(3, 0), want, 1e-7)) << facts.name;
  }
}

TEST(UnaryTest, DerivativesInEveryTypeAndLayout) {
  for (DType t : kFloats)
    for (int f = 0; f < fn::kNumUnary; ++f)
      for (int order = 1; order <= 3; ++order) {
        const fn::Function& facts = fn::unary_function(f);
        if (!has_slope(facts) || !reference::has_value(facts, t)) continue;
        const Parameters d(facts);
        const Shape shape = {7, 83};
        // Third derivatives at the ends of a domain are beyond f16.
        const double margin = order == 3 ? 0.1 : 0;
        const Elements x =
            Elements::random(t, 7 * 83, facts.domain[0].lo + margin,
                             facts.domain[0].hi - margin);
        const Elements dy = Elements::random(t, 83);
        Elements y(t, 7 * 83), y64(DType::kF64, 7 * 83);
        const Elements x64(DType::kF64, x.doubles()),
            dy64(DType::kF64, dy.doubles());
        Pointwise p;
        p.shape = shape;
        p.strides[0] = {1, 7};
        p.strides[1] = {0, 1};
        p.in[0] = x.data();
        p.in[1] = dy.data();
        p.out = y.data();
        run_unary(f, order, t, d.p, p);
        p.in[0] = x64.data();
        p.in[1] = dy64.data();
        p.out = y64.data();
        run_unary(f, order, DType::kF64, d.p, p);
        EXPECT_TRUE(near(y, y64.doubles(), 10 * tolerance(t)))
            << facts.name << " " << order;
      }
}

double apply(int f, int order, DType t, double x, const double* params) {
  const Elements in(t, {x}), dy(t, {1.0});
  Elements out(t, 1);
  Pointwise p;
  p.in[0] = in.data();
  p.in[1] = dy.data();
  p.out = out.data();
  run_unary(f, order, t, params, p);
  return out[0];
}

TEST(UnaryTest, SpecialValues) {
  const double clamp[] = {-1, 1}, zero[] = {0, 0}, one[] = {1, 20};
  for (DType t : kFloats) {
    auto is = [&]<class F>(int order, double x, double want,
                           const double* p = nullptr) {
      const double got = apply(fn::index_of<F>, order, t, x, p);
      EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
          << F::name << " order " << order << " of " << x << ": " << got;
    };
#define IS(F, ...) is.template operator()<fn::F>(__VA_ARGS__)
    IS(Relu, 0, kNaN, kNaN);
    IS(Relu, 0, kInf, kInf);
    IS(Relu, 1, 0, 0);
    IS(Abs, 0, -kInf, kInf);
    IS(Abs, 0, kNaN, kNaN);
    IS(Abs, 1, 0, 0);
    IS(Abs, 1, -3, -1);
    IS(Sign, 0, 0, 0);
    IS(Sign, 0, -kInf, -1);
    IS(Sign, 1, 2, 0);
    IS(Clamp, 0, kNaN, kNaN, clamp);
    IS(Clamp, 1, 1, 1, clamp);
    IS(Clamp, 1, -1, 1, clamp);
    IS(Clamp, 1, 1.5, 0, clamp);
    IS(Exp, 0, kInf, kInf);
    IS(Exp, 0, -kInf, 0);
    IS(Exp, 0, kNaN, kNaN);
    IS(Exp, 0, 0, 1);
    IS(Log, 0, 0, -kInf);
    IS(Log, 0, -1, kNaN);
    IS(Sqrt, 0, -1, kNaN);
    IS(Sigmoid, 0, -kInf, 0);
    IS(Sigmoid, 0, kInf, 1);
    IS(Sigmoid, 1, -2000, 0);
    IS(Sigmoid, 1, 2000, 0);
    IS(Sigmoid, 2, -2000, 0);
    IS(Softplus, 0, 2000, 2000, one);
    IS(Softplus, 0, -kInf, 0, one);
    IS(Softplus, 1, 2000, 1, one);
    IS(Tanh, 0, kInf, 1);
    IS(Tanh, 0, kNaN, kNaN);
    IS(Tanh, 1, 500, 0);
    IS(Gelu, 0, 100, 100);
    IS(Gelu, 1, 100, 1);
    IS(Gelu, 1, -100, 0);
    IS(GeluTanh, 0, 100, 100);
    IS(GeluTanh, 0, -100, 0);
    IS(GeluTanh, 1, 100, 1);
    IS(GeluTanh, 1, -100, 0);
    IS(Silu, 1, -1000, 0);
    IS(Silu, 0, kNaN, kNaN);
    IS(PowScalar, 1, 0, 0, zero);
    IS(PowScalar, 1, 0, 1, one);
    IS(PowScalar, 2, 0, 0, one);
    IS(PowScalar, 0, 0, 1, zero);
    IS(Elu, 0, 1000, 1000, one);
    IS(Elu, 1, 1000, 1, one);
#undef IS
  }
}

TEST(UnaryTest, ExpCoversTheWholeRange) {
  for (double x : {-104.0, -103.5, -100.0, -88.0, -87.5, 87.5, 88.0, 88.72}) {
    const float want = std::exp(static_cast<float>(x));
    const double got = apply(fn::index_of<fn::Exp>, 0, DType::kF32,
                             static_cast<float>(x), nullptr);
    EXPECT_NEAR(got, want, 3e-7 * want + 1.5e-45) << x;
  }
  EXPECT_EQ(apply(fn::index_of<fn::Exp>, 0, DType::kF32, 88.8, nullptr), kInf);
}

TEST(UnaryTest, PowerOfNegativeBases) {
  for (double e : {2.0, 3.0, -1.0, -2.0, 4.0, 1.0}) {
    const double p[] = {e, 0};
    EXPECT_NEAR(apply(fn::index_of<fn::PowScalar>, 0, DType::kF32, -1.5, p),
                std::pow(-1.5, e), 1e-5);
    EXPECT_NEAR(apply(fn::index_of<fn::PowScalar>, 1, DType::kF64, -1.5, p),
                e * std::pow(-1.5, e - 1), 1e-12);
  }
  const double half[] = {2.5, 0};
  EXPECT_TRUE(std::isnan(
      apply(fn::index_of<fn::PowScalar>, 0, DType::kF32, -1.5, half)));
}

TEST(UnaryTest, Integers) {
  for (DType t : {DType::kI32, DType::kI64}) {
    const double clamp[] = {-kInf, 3}, two[] = {2, 0};
    EXPECT_EQ(apply(fn::index_of<fn::Neg>, 0, t, 5, nullptr), -5);
    EXPECT_EQ(apply(fn::index_of<fn::Abs>, 0, t, -5, nullptr), 5);
    EXPECT_EQ(apply(fn::index_of<fn::Sign>, 0, t, -5, nullptr), -1);
    EXPECT_EQ(apply(fn::index_of<fn::Relu>, 0, t, -5, nullptr), 0);
    EXPECT_EQ(apply(fn::index_of<fn::Square>, 0, t, -5, nullptr), 25);
    EXPECT_EQ(apply(fn::index_of<fn::Clamp>, 0, t, -5, clamp), -5);
    EXPECT_EQ(apply(fn::index_of<fn::Clamp>, 0, t, 5, clamp), 3);
    EXPECT_EQ(apply(fn::index_of<fn::MulScalar>, 0, t, 5, two), 10);
    EXPECT_THROW(apply(fn::index_of<fn::Exp>, 0, t, 5, nullptr), Error);
    EXPECT_THROW(apply(fn::index_of<fn::Neg>, 1, t, 5, nullptr), Error);
  }
}

bool same_bits(const Elements& a, const Elements& b) {
  return std::memcmp(a.data(), b.data(),
                     static_cast<size_t>(a.size() * size_of(a.type()))) == 0;
}

// All values and derivatives of a row have the bits of each element alone.
TEST(UnaryTest, ValuesDoNotDependOnTheirPosition) {
  const int64_t n = vectors_and_more();
  for (DType t : kFloats)
    for (int f = 0; f < fn::kNumUnary; ++f)
      for (int order = 0; order <= 3; ++order) {
        const fn::Function& facts = fn::unary_function(f);
        if (facts.gives_bool || !reference::has_value(facts, t)) continue;
        if (order > 0 && !has_slope(facts)) continue;
        const Parameters d(facts);
        Elements x =
            Elements::random(t, n, facts.domain[0].lo, facts.domain[0].hi);
        Elements dy = Elements::random(t, n, -2, 2, 5);
        Elements row(t, n), alone(t, n);
        const auto compute = [&](int64_t from, int64_t size, Elements& y) {
          Pointwise p;
          p.shape = {size};
          p.strides[0] = p.strides[1] = {1};
          p.in[0] = x.at(from);
          p.in[1] = dy.at(from);
          p.out = y.at(from);
          run_unary(f, order, t, d.p, p);
        };
        compute(0, n, row);
        for (int64_t i = 0; i < n; ++i) compute(i, 1, alone);
        EXPECT_TRUE(same_bits(row, alone))
            << facts.name << " " << order << " of " << name(t);
      }
}

TEST(UnaryTest, InPlace) {
  for (DType t : kFloats) {
    Elements x = Elements::random(t, 1031);
    const Elements dy = Elements::random(t, 1031);
    std::vector<double> want = x.doubles();
    for (size_t i = 0; i < want.size(); ++i)
      want[i] = 2 * want[i] * dy[static_cast<int64_t>(i)];
    Pointwise p;
    p.shape = {1031};
    p.strides[0] = p.strides[1] = {1};
    p.in[0] = p.out = x.data();
    p.in[1] = dy.data();
    run_unary(fn::index_of<fn::Square>, 1, t, nullptr, p);
    EXPECT_TRUE(near(x, want));
  }
}

TEST(BinaryTest, MatchesTheReferenceInEveryLayout) {
  for (DType t : kAll)
    for (int f = 0; f < fn::kNumBinary; ++f) {
      const fn::Function& facts = fn::binary_function(f);
      if (!reference::has_value(facts, t)) continue;
      const Parameters d(facts);
      for (const Layout& l : layouts())
        for (int other = 0; other < 3; ++other) {
          SCOPED_TRACE(std::string(facts.name) + " " + std::string(name(t)) +
                       " " + to_string(l.shape) + to_string(l.strides) + " " +
                       std::to_string(other));
          const Shape dense = contiguous_strides(l.shape);
          const Shape zeros = Shape::filled(l.shape.size(), 0);
          const Shape bs = other == 0 ? dense : other == 1 ? zeros : l.strides;
          const fn::Domain &da = facts.domain[0], &db = facts.domain[1];
          const Elements a =
              Elements::random(t, span_of(l.shape, l.strides), da.lo, da.hi);
          const Elements b =
              Elements::random(t, span_of(l.shape, bs), db.lo, db.hi, 3);
          Elements y(facts.gives_bool ? DType::kBool : t, numel(l.shape));
          Pointwise p;
          p.shape = l.shape;
          p.strides[0] = l.strides;
          p.strides[1] = bs;
          p.in[0] = a.data();
          p.in[1] = b.data();
          p.out = y.data();
          run_binary(f, fn::By::kNone, t, d.p, p);
          std::vector<double> want = gathered(a, l.shape, l.strides);
          const std::vector<double> wb = gathered(b, l.shape, bs);
          for (size_t i = 0; i < want.size(); ++i) {
            want[i] = reference::binary(f, t, want[i], wb[i], d.p);
            // The reference must be in the type: the next f32 is not the next
            // f64.
            if (f == fn::index_of<fn::Nextafter> && t == DType::kF32)
              want[i] = static_cast<float>(want[i]);
          }
          ASSERT_TRUE(near(y, want));
        }
    }
}

// Short rows and columns that are broadcast, and transposed matrices with so
// many elements that the CPU copies them in blocks.
TEST(BinaryTest, RowsColumnsAndTransposedMatrices) {
  constexpr int f = fn::index_of<fn::Sub>;
  for (DType t : {DType::kF32, DType::kF64, DType::kBF16, DType::kI32})
    for (const Shape& shape :
         {Shape{3001, 4}, Shape{7, 409, 5}, Shape{100, 129}, Shape{257, 128},
          Shape{65, 70}, Shape{17, 20000}}) {
      const int64_t n = shape.back(), rows = numel(shape) / n;
      const Shape whole = contiguous_strides(shape);
      Shape row = Shape::filled(shape.size(), 0), column = whole;
      row.back() = 1;
      for (int64_t& stride : column) stride /= n;
      std::vector<Shape> kinds{whole, row, column};
      if (shape.size() == 2) kinds.push_back({1, rows + 1});
      for (const Shape& sa : kinds)
        for (const Shape& sb : kinds) {
          SCOPED_TRACE(to_string(shape) + to_string(sa) + to_string(sb));
          const Elements a = Elements::random(t, span_of(shape, sa), -9, 9, 1);
          const Elements b = Elements::random(t, span_of(shape, sb), -9, 9, 2);
          Elements y(t, numel(shape));
          Pointwise p{.type = t, .shape = shape, .out = y.data()};
          p.in = {a.data(), b.data()};
          p.strides = {sa, sb};
          run_binary(f, fn::By::kNone, t, nullptr, p);
          std::vector<double> want = gathered(a, shape, sa);
          const std::vector<double> wb = gathered(b, shape, sb);
          for (size_t i = 0; i < want.size(); ++i) want[i] -= wb[i];
          ASSERT_TRUE(near(y, want));
        }
    }
}

// Compares first and second derivatives by each operand with differences of the
// reference.
TEST(BinaryTest, DerivativesMatchFiniteDifferences) {
  const int64_t n = 101;
  for (int f = 0; f < fn::kNumBinary; ++f)
    for (int k = 1; k < fn::kNumBy; ++k) {
      const fn::Function& facts = fn::binary_function(f);
      const auto by = static_cast<fn::By>(k);
      if (by == fn::By::kBoth || fn::order_of(by) > 2 ||
          !has_slope(facts, by) || f == fn::index_of<fn::Nextafter>)
        continue;
      const fn::Domain &da = facts.domain[0], &db = facts.domain[1];
      const Elements a = Elements::random(DType::kF64, n, da.lo, da.hi, 9);
      const Elements b = Elements::random(DType::kF64, n, db.lo, db.hi, 8);
      const Elements dy = Elements::random(DType::kF64, n, -1, 1, 4);
      Elements y(DType::kF64, n);
      Pointwise p;
      p.shape = {n};
      p.strides[0] = p.strides[1] = p.strides[2] = {1};
      p.in[0] = a.data();
      p.in[1] = b.data();
      p.in[2] = dy.data();
      p.out = y.data();
      run_binary(f, by, DType::kF64, nullptr, p);
      std::vector<double> want;
      for (int64_t i = 0; i < n; ++i) {
        auto at = [&](double ha, double hb) {
          return reference::binary(f, DType::kF64, a[i] + ha, b[i] + hb,
                                   nullptr);
        };
        const double h = fn::order_of(by) == 1 ? 1e-5 : 1e-4;
        const double first_a = (at(h, 0) - at(-h, 0)) / (2 * h);
        const double first_b = (at(0, h) - at(0, -h)) / (2 * h);
        const double aa = (at(h, 0) - 2 * at(0, 0) + at(-h, 0)) / (h * h);
        const double bb = (at(0, h) - 2 * at(0, 0) + at(0, -h)) / (h * h);
        const double ab =
            (at(h, h) - at(h, -h) - at(-h, h) + at(-h, -h)) / (4 * h * h);
        const double all[] = {0, first_a, first_b, 0, aa, ab, bb};
        want.push_back(all[k] * dy[i]);
      }
      EXPECT_TRUE(near(y, want, fn::order_of(by) == 1 ? 1e-7 : 1e-4))
          << facts.name << " by " << k;
    }
}

// Compares with differences of second derivatives, which the test above checks.
TEST(BinaryTest, ThirdDerivativesMatchFiniteDifferences) {
  const int64_t n = 101;
  for (int f = 0; f < fn::kNumBinary; ++f)
    for (const fn::By second : {fn::By::kAA, fn::By::kAB, fn::By::kBB})
      for (const bool b : {false, true}) {
        const fn::Function& facts = fn::binary_function(f);
        if (!has_slope(facts, fn::also_by(second, b)) ||
            f == fn::index_of<fn::Nextafter>)
          continue;
        const fn::Domain* d = facts.domain;
        const Elements dy = Elements::random(DType::kF64, n, -1, 1, 4);
        const auto at = [&](fn::By by, double h) {
          std::vector<Elements> in;
          for (int i : {0, 1}) {
            std::vector<double> moved =
                Elements::random(DType::kF64, n, d[i].lo + 0.1, d[i].hi - 0.1,
                                 9 - static_cast<uint64_t>(i))
                    .doubles();
            for (double& v : moved) v += (i == 1) == b ? h : 0;
            in.emplace_back(DType::kF64, moved);
          }
          Elements y(DType::kF64, n);
          Pointwise p;
          p.shape = {n};
          p.strides[0] = p.strides[1] = p.strides[2] = {1};
          p.in = {in[0].data(), in[1].data(), dy.data()};
          p.out = y.data();
          run_binary(f, by, DType::kF64, nullptr, p);
          return y;
        };
        const double h = 1e-5;
        std::vector<double> want = at(second, h).doubles();
        const std::vector<double> low = at(second, -h).doubles();
        for (size_t i = 0; i < want.size(); ++i)
          want[i] = (want[i] - low[i]) / (2 * h);
        EXPECT_TRUE(near(at(fn::also_by(second, b), 0), want, 1e-6))
            << facts.name << " " << static_cast<int>(second) << b;
      }
}

TEST(BinaryTest, ValuesDoNotDependOnTheirPosition) {
  const int64_t n = vectors_and_more();
  for (DType t : kFloats)
    for (int f = 0; f < fn::kNumBinary; ++f)
      for (int k = 0; k < fn::kNumBy; ++k) {
        const fn::Function& facts = fn::binary_function(f);
        if (facts.gives_bool || !reference::has_value(facts, t)) continue;
        if (k > 0 && !has_slope(facts)) continue;
        const Parameters d(facts);
        const fn::Domain &da = facts.domain[0], &db = facts.domain[1];
        Elements a = Elements::random(t, n, da.lo, da.hi);
        Elements b = Elements::random(t, n, db.lo, db.hi, 3);
        Elements dy = Elements::random(t, n, -2, 2, 5);
        Elements row(t, n), alone(t, n), second_row(t, n), second_alone(t, n);
        const auto compute = [&](int64_t from, int64_t size, Elements& y,
                                 Elements& second) {
          Pointwise p;
          p.shape = {size};
          p.strides[0] = p.strides[1] = p.strides[2] = {1};
          p.in[0] = a.at(from);
          p.in[1] = b.at(from);
          p.in[2] = dy.at(from);
          p.out = y.at(from);
          p.second = second.at(from);
          run_binary(f, static_cast<fn::By>(k), t, d.p, p);
        };
        compute(0, n, row, second_row);
        for (int64_t i = 0; i < n; ++i) compute(i, 1, alone, second_alone);
        EXPECT_TRUE(same_bits(row, alone) &&
                    same_bits(second_row, second_alone))
            << facts.name << " by " << k << " of " << name(t);
      }
}

// Both derivatives at once are those by one operand and by the other, in every
// layout and type, even if a result overwrites an operand.
TEST(BinaryTest, BothDerivativesAtOnce) {
  for (DType t : kFloats)
    for (int f = 0; f < fn::kNumBinary; ++f) {
      const fn::Function& facts = fn::binary_function(f);
      if (!has_slope(facts) || !reference::has_value(facts, t)) continue;
      for (const Layout& l : layouts())
        for (bool in_place : {false, true}) {
          const fn::Domain &da = facts.domain[0], &db = facts.domain[1];
          const Shape dense = contiguous_strides(l.shape);
          const int64_t n = numel(l.shape);
          Elements a = Elements::random(t, n, da.lo, da.hi),
                   dy = Elements::random(t, n, -1, 1, 4);
          const Elements b =
              Elements::random(t, span_of(l.shape, l.strides), db.lo, db.hi, 3);
          Elements one(t, n), other(t, n), first(t, n), second(t, n);
          Pointwise p;
          p.shape = l.shape;
          p.strides[0] = p.strides[2] = dense;
          p.strides[1] = l.strides;
          p.in[0] = a.data();
          p.in[1] = b.data();
          p.in[2] = dy.data();
          p.out = one.data();
          run_binary(f, fn::By::kA, t, nullptr, p);
          p.out = other.data();
          run_binary(f, fn::By::kB, t, nullptr, p);
          p.out = in_place ? dy.data() : first.data();
          p.second = in_place ? a.data() : second.data();
          run_binary(f, fn::By::kBoth, t, nullptr, p);
          SCOPED_TRACE(std::string(facts.name) + " " + std::string(name(t)) +
                       " " + to_string(l.shape) + to_string(l.strides));
          ASSERT_TRUE(near(in_place ? dy : first, one.doubles()));
          ASSERT_TRUE(near(in_place ? a : second, other.doubles()));
        }
    }
}

TEST(BinaryTest, NaNPropagatesInMaximumAndMinimum) {
  for (DType t : kFloats) {
    const Elements a(t, {1, kNaN, 2, kNaN, -kInf}),
        b(t, {kNaN, 1, 3, kNaN, kInf});
    Elements y(t, 5);
    Pointwise p;
    p.shape = {5};
    p.strides[0] = p.strides[1] = {1};
    p.in[0] = a.data();
    p.in[1] = b.data();
    p.out = y.data();
    run_binary(fn::index_of<fn::Maximum>, fn::By::kNone, t, nullptr, p);
    EXPECT_TRUE(near(y, {kNaN, kNaN, 3, kNaN, kInf}));
    run_binary(fn::index_of<fn::Minimum>, fn::By::kNone, t, nullptr, p);
    EXPECT_TRUE(near(y, {kNaN, kNaN, 2, kNaN, -kInf}));
  }
}

TEST(BinaryTest, IntegerCorners) {
  const int32_t lowest = std::numeric_limits<int32_t>::min();
  const std::vector<int32_t> a = {7, -7, lowest, 5, lowest, 3, -1, 0};
  const std::vector<int32_t> b = {2, 2, -1, 0, 1, -2, -3, 0};
  std::vector<int32_t> y(8);
  Pointwise p;
  p.shape = {8};
  p.strides[0] = p.strides[1] = {1};
  p.in[0] = a.data();
  p.in[1] = b.data();
  p.out = y.data();
  run_binary(fn::index_of<fn::TruncDivide>, fn::By::kNone, DType::kI32, nullptr,
             p);
  const int32_t quotients[] = {3, -3, lowest, 0, lowest, -1, 0, 0};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(y[i], quotients[i]) << i;
  run_binary(fn::index_of<fn::Pow>, fn::By::kNone, DType::kI32, nullptr, p);
  const int32_t powers[] = {49, 49, 0, 1, lowest, 0, -1, 1};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(y[i], powers[i]) << i;
  run_binary(fn::index_of<fn::Sub>, fn::By::kNone, DType::kI32, nullptr, p);
  EXPECT_EQ(y[4], std::numeric_limits<int32_t>::max());
  EXPECT_THROW(run_binary(fn::index_of<fn::Sub>, fn::By::kNone, DType::kBool,
                          nullptr, p),
               Error);
}

TEST(BinaryTest, InPlace) {
  for (DType t : kFloats) {
    Elements a = Elements::random(t, 2 * 700);
    const Elements b = Elements::random(t, 700);
    std::vector<double> want = a.doubles();
    for (size_t i = 0; i < want.size(); ++i)
      want[i] += b[static_cast<int64_t>(i % 700)];
    Pointwise p;
    p.shape = {2, 700};
    p.strides[0] = {700, 1};
    p.strides[1] = {0, 1};
    p.in[0] = p.out = a.data();
    p.in[1] = b.data();
    run_binary(fn::index_of<fn::Add>, fn::By::kNone, t, nullptr, p);
    EXPECT_TRUE(near(a, want));
  }
}

TEST(WhereTest, EveryTypeAndLayout) {
  for (DType t : kAll)
    for (const Layout& l : layouts()) {
      SCOPED_TRACE(to_string(l.shape) + to_string(l.strides));
      const Shape dense = contiguous_strides(l.shape);
      const Elements c =
          Elements::random(DType::kBool, span_of(l.shape, l.strides));
      const Elements a =
          Elements::random(t, span_of(l.shape, l.strides), -9, 9);
      const Elements b = Elements::random(t, numel(l.shape), -9, 9, 2);
      Elements y(t, numel(l.shape));
      Pointwise p;
      p.shape = l.shape;
      p.in[0] = c.data();
      p.in[1] = a.data();
      p.in[2] = b.data();
      p.strides[0] = p.strides[1] = l.strides;
      p.strides[2] = dense;
      p.out = y.data();
      p.type = t;
      run(Where{p});
      std::vector<double> want = gathered(a, l.shape, l.strides);
      const std::vector<double> wc = gathered(c, l.shape, l.strides);
      for (size_t i = 0; i < want.size(); ++i)
        if (wc[i] == 0) want[i] = b[static_cast<int64_t>(i)];
      ASSERT_TRUE(near(y, want, 0));
    }
}

TEST(MulAddTest, EveryTypeAndLayout) {
  for (DType t : kFloats)
    for (const Layout& l : layouts()) {
      SCOPED_TRACE(to_string(l.shape) + to_string(l.strides));
      const Shape dense = contiguous_strides(l.shape);
      const Elements x = Elements::random(t, numel(l.shape), -9, 9),
                     a = Elements::random(t, span_of(l.shape, l.strides), -9, 9,
                                          2),
                     b = Elements::random(t, numel(l.shape), -9, 9, 3);
      Elements y(t, numel(l.shape));
      Pointwise p{.type = t, .shape = l.shape, .out = y.data()};
      p.in = {x.data(), a.data(), b.data()};
      p.strides = {dense, l.strides, dense};
      run(MulAdd{p});
      std::vector<double> want = gathered(a, l.shape, l.strides);
      for (size_t i = 0; i < want.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        want[i] = x[at] + want[i] * b[at];
      }
      ASSERT_TRUE(near(y, want));
    }
}

TEST(CastTest, EveryPairAndLayout) {
  for (DType from : kAll)
    for (DType to : kAll)
      for (const Layout& l : layouts()) {
        const Elements x =
            Elements::random(from, span_of(l.shape, l.strides), -9, 9);
        Elements y(to, numel(l.shape));
        cpu().cast({}, l.shape, to, y.data(), contiguous_strides(l.shape), from,
                   x.data(), l.strides);
        std::vector<double> want = gathered(x, l.shape, l.strides);
        for (double& v : want)
          v = to == DType::kBool  ? v != 0
              : !is_float(to)     ? std::trunc(v)
              : to == DType::kF32 ? static_cast<float>(v)
              : to == DType::kF64 ? v
              : to == DType::kF16
                  ? static_cast<float>(f16(static_cast<float>(v)))
                  : static_cast<float>(bf16(static_cast<float>(v)));
        ASSERT_TRUE(near(y, want, 0)) << name(from);
      }
}

TEST(CastTest, Saturates) {
  for (DType from : kFloats) {
    const Elements x(from,
                     {kNaN, kInf, -kInf, 1e30, -1e30, 2147483648.0, -0.5});
    // 1e30 and 2147483648 are infinite in f16.
    const double beyond = from == DType::kF16 ? 0x1p63 : 0x1p31;
    const auto cast_to = [&](DType to) {
      Elements y(to, 7);
      cpu().cast({}, Shape{7}, to, y.data(), Shape{1}, from, x.data(),
                 Shape{1});
      return y;
    };
    EXPECT_TRUE(near(cast_to(DType::kI32),
                     {0, 2147483647.0, -2147483648.0, 2147483647.0,
                      -2147483648.0, 2147483647.0, 0}));
    EXPECT_TRUE(near(cast_to(DType::kI64),
                     {0, 0x1p63, -0x1p63, 0x1p63, -0x1p63, beyond, 0}));
    EXPECT_TRUE(near(cast_to(DType::kBool), {1, 1, 1, 1, 1, 1, 1}));
  }
}

TEST(FunctionsTest, FloatsSaturateAsInts) {
  for (double below : {-0.5, -1.0, -255.0, -256.0, -kInf, kNaN})
    EXPECT_EQ(fn::Int<uint8_t>(below).v, 0) << below;
  EXPECT_EQ(fn::Int<uint8_t>(255.5).v, 255);
  EXPECT_EQ(fn::Int<uint8_t>(256.0).v, 255);
  EXPECT_EQ(fn::Int<int32_t>(-5.5).v, -5);
  EXPECT_EQ(fn::Int<int32_t>(-kInf).v, std::numeric_limits<int32_t>::min());
}

TEST(FunctionsTest, TheListsAreConsistent) {
  const fn::Function& clamp = fn::unary_function(fn::index_of<fn::Clamp>);
  EXPECT_EQ(clamp.name, "clamp");
  EXPECT_EQ(clamp.num_params, 2);
  EXPECT_EQ(clamp.num_required, 1);
  const fn::Function& elu = fn::unary_function(fn::index_of<fn::Elu>);
  EXPECT_EQ(elu.num_required, 0);
  EXPECT_EQ(std::string(elu.params[0].name), "alpha");
  EXPECT_TRUE(fn::unary_function(fn::index_of<fn::Neg>).linear());
  EXPECT_TRUE(fn::binary_function(fn::index_of<fn::Eq>).gives_bool);
  for (int i = 0; i < fn::kNumUnary; ++i)
    for (int j = 0; j < i; ++j)
      EXPECT_NE(fn::unary_function(i).name, fn::unary_function(j).name);
  for (int i = 0; i < fn::kNumBinary; ++i)
    for (int j = 0; j < i; ++j)
      EXPECT_NE(fn::binary_function(i).name, fn::binary_function(j).name);
  Pointwise p;
  EXPECT_THROW(run_unary(fn::kNumUnary, 0, DType::kF32, nullptr, p), Error);
  EXPECT_THROW(run_unary(0, 3, DType::kF32, nullptr, p), Error);
}

TEST(FunctionsTest, WhatThereIsNotIsRefused) {
  const Pointwise p;
  const auto binary = [&](int f, fn::By by, DType t) {
    run_binary(f, by, t, nullptr, p);
  };
  const auto refused = [&](int f, fn::By by, DType t) {
    EXPECT_THROW(binary(f, by, t), Error) << f << " " << name(t);
  };
  refused(-1, fn::By::kNone, DType::kF32);
  refused(fn::kNumBinary, fn::By::kNone, DType::kF32);
  // Types that the functions do not take.
  refused(fn::index_of<fn::Gcd>, fn::By::kNone, DType::kF64);
  refused(fn::index_of<fn::Atan2>, fn::By::kNone, DType::kI64);
  refused(fn::index_of<fn::Nextafter>, fn::By::kNone, DType::kBF16);
  refused(fn::index_of<fn::Nextafter>, fn::By::kA, DType::kBF16);
  // Functions without derivatives, in any type.
  for (DType t : {DType::kF32, DType::kI32, DType::kBool}) {
    refused(fn::index_of<fn::Add>, fn::By::kA, t);
    refused(fn::index_of<fn::Lt>, fn::By::kAB, t);
  }
  refused(fn::index_of<fn::Maximum>, fn::By::kB, DType::kI32);
  for (int order : {1, 2, 3})
    EXPECT_THROW(
        run_unary(fn::index_of<fn::AddScalar>, order, DType::kF64, nullptr, p),
        Error);
}

}  // namespace
}  // namespace dtensor::kernels
