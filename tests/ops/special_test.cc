// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/special.h"

#include <cmath>
#include <functional>
#include <limits>

#include "dtensor/ops/create.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Array row(const std::vector<double>& v) {
  return {{static_cast<int64_t>(v.size())}, v, DType::kF64};
}

struct Unary {
  const char* name;
  std::function<DistTensor(const DistTensor&)> f;
  std::vector<double> x, y;
};
#define F(f) #f, [](const DistTensor& x) { return f; }

// The values are mpmath's, to 17 digits.
const Unary kUnary[] = {
    {F(erfinv(x)),
     {-0.999999999, -0.75, 1e-20, 0.25, 0.5, 0.6, 0.9999},
     {-4.320005388105362, -0.81341984759761854, 8.8622692545275797e-21,
      0.2253120550121781, 0.47693627620446987, 0.59511608144999482,
      2.7510639057120797}},
    {F(ndtri(x)),
     {1e-300, 1e-05, 0.125, 0.25, 0.375, 0.75, 0.96875},
     {-37.047096299361199, -4.2648907939228246, -1.1503493803760082,
      -0.67448975019608174, -0.31863936396437516, 0.67448975019608174,
      1.8627318674216515}},
    {F(log_ndtr(x)),
     {-1e4, -40, -1.25, -0.75, 0, 3},
     {-50000010.129278915, -804.60844201375379, -2.2476256772143182,
      -1.4844482299196563, -0.69314718055994531, -0.0013508099647481938}},
    {F(erfcx(x)),
     {-20, -0.5, 0, 0.5, 7.5, 9, 1000},
     {1.0442939379528288e+174, 1.9523604891825571, 1, 0.61569034419292587,
      0.074573693062876683, 0.062307724037774684, 0.00056418930145338765}},
    {F(lgamma(x)),
     {-2.5, -0.25, 0.125, 1.5, 10, 171, 1e10},
     {-0.056243716497674051, 1.589575312551186, 2.0194183575537963,
      -0.12078223763524522, 12.80182748008147, 706.57306224578735,
      2.2025850928881058e+11}},
    {F(digamma(x)),
     {-10.25, -0.5, 1e-10, 0.75, 2, 30, 1e10},
     {5.5168584198862733, 0.036489973978576521, -1.0000000000577215e+10,
      -1.0858608797864722, 0.42278433509846714, 3.3844381326855249,
      23.025850929890457}},
    {F(polygamma(1, x)),
     {-3.75, -0.5, 0.001, 0.75, 2, 30, 1e5},
     {19.504980060599575, 8.9348022005446793, 1000001.6425331958,
      2.5418796476716065, 0.64493406684822644, 0.033895060357739944,
      1.0000050000166667e-5}},
    {F(polygamma(4, x)),
     {-3.75, -0.5, 0.001, 0.75, 2, 30, 1e5},
     {-24481.592377214743, -3.4742498266672252, -2.4000000000000022e+16,
      -102.80060581541747, -0.88626612344087823, -7.914941340181024e-6,
      -6.000120001e-20}},
    // n! and the powers of x leave the range of doubles.
    {F(polygamma(171, x)),
     {0.5, 2, 3.5, 100, 1e4, kInf},
     {kInf, 2.0730933141653131e+257, 3.2664384338110454e+215,
      1.5158124172677882e-35, 0, 0}},
    {F(polygamma(150, x)), {-0.25, 1000}, {kInf, -4.1017783919253752e-190}},
    {F(polygamma(300, x)),
     {-1, 80, 1000, 1e4},
     {-kInf, -4.6363749363711315e+41, -1.1808857237757736e-288, 0}},
    {F(i0(x)),
     {-30, -0.5, 1e-09, 2, 24, 26, 700},
     {7.8167229782397749e+11, 1.0634833707413235, 1, 2.2795853023360673,
      2.1686190882413765e+9, 1.538897670566081e+10, 1.5295933476718737e+302}},
    {F(i0e(x)),
     {-30, -0.5, 1e-09, 2, 24, 26, 1e6},
     {0.073145946482237294, 0.64503527044915007, 0.999999999,
      0.30850832255367104, 0.081868288334030614, 0.078623652040013735,
      0.00039894233026924578}},
    {F(i1(x)),
     {-30, -0.5, 1e-09, 2, 24, 26, 700},
     {-7.68532038938957e+11, -0.25789430539089632, 5.0000000000000003e-10,
      1.5906368546373291, 2.1229478932873138e+9, 1.5090072642341644e+10,
      1.5285003902339007e+302}},
    {F(i1e(x)),
     {-30, -0.5, 1e-09, 2, 24, 26, 1e6},
     {-0.071916330598647555, -0.1564208031848717, 4.9999999950000003e-10,
      0.21526928924893766, 0.080144139276534738, 0.077096524569666238,
      0.00039894213079803078}},
    // Poles, the ends of the domains, infinities and NaN.
    {F(erfinv(x)), {-1, 1, 1.5, kNaN, 0}, {-kInf, kInf, kNaN, kNaN, 0}},
    {F(ndtri(x)), {0, 1, -1, kNaN, 0.5}, {-kInf, kInf, kNaN, kNaN, 0}},
    {F(log_ndtr(x)), {-kInf, kInf, kNaN}, {-kInf, 0, kNaN}},
    {F(erfcx(x)), {-kInf, -30, kInf, kNaN}, {kInf, kInf, 0, kNaN}},
    {F(lgamma(x)), {-3, 0, kInf, kNaN}, {kInf, kInf, kInf, kNaN}},
    {F(digamma(x)),
     {-3, 0.0, -0.0, kInf, -kInf, kNaN},
     {kNaN, -kInf, kInf, kInf, kNaN, kNaN}},
    {F(polygamma(1, x)), {-3, 0, kInf, kNaN}, {kInf, kInf, 0, kNaN}},
    {F(polygamma_scalar(x, 2)), {-3, 0, kInf, kNaN}, {-kInf, -kInf, 0, kNaN}},
    {F(i0(x)), {-kInf, kInf, 0, kNaN}, {kInf, kInf, 1, kNaN}},
    {F(i1(x)), {-kInf, kInf, 0, kNaN}, {-kInf, kInf, 0, kNaN}},
    {F(i0e(x)), {-kInf, kInf, 0, kNaN}, {0, 0, 1, kNaN}},
    {F(i1e(x)), {-kInf, kInf, 0, kNaN}, {0, 0, 0, kNaN}},
};
#undef F

void expect_close(const Array& got, const Array& want, double tolerance,
                  const std::string& what) {
  for (int64_t i = 0; i < numel(want.shape); ++i) {
    const double g = got.at(i), w = want.at(i);
    if ((std::isnan(g) && std::isnan(w)) || g == w) continue;
    EXPECT_LE(std::abs(g - w), tolerance * std::abs(w))
        << what << ": element " << i << " is " << g << ", not " << w;
  }
}

// The f32 values are the f64 values of the same arguments, rounded once.
TEST(Special, FunctionsOfOneArgument) {
  on_mesh("x=2", [](const Mesh& mesh) {
    for (const Unary& u : kUnary) {
      const Array x = row(u.x);
      expect_close(array_of(u.f(put(x, mesh, "S0")).full()), row(u.y), 1e-13,
                   u.name);
      const DistTensor narrow = put(x, mesh, "S0", DType::kF32);
      const DistTensor wide = u.f(cast(narrow, DType::kF64));
      expect_close(array_of(u.f(narrow).full()),
                   array_of(cast(wide, DType::kF32).full()), 0, u.name);
    }
  });
}

// The functions of whole registers of floats, also at the zeros of lgamma()
// and at the ends of its formulas and of erfinv()'s.
TEST(Special, RegistersOfFloats) {
  std::vector<double> x;
  for (const float around : {-2.4570246F, -2.7476826F, -1.0F, -0.5F, 0.0F,
                             0.9966F, 1.0F, 2.0F, 4.0F, 25.0F})
    for (int i = -100; i <= 100; ++i) {
      x.push_back(around * (1 + i * 0x1p-23));
      x.push_back(around + 1e-6 * i);
      x.push_back(around * (1 + 0.011 * i));
    }
  on_mesh("x=1", [&](const Mesh& mesh) {
    const DistTensor narrow = put(row(x), mesh, "R", DType::kF32),
                     wide = cast(narrow, DType::kF64);
    const auto check = [&](const char* name, auto f) {
      expect_close(array_of(f(narrow).full()), array_of(f(wide).full()), 1.2e-7,
                   name);
    };
#define CHECK(f) check(#f, [](const DistTensor& t) { return f(t); })
    CHECK(lgamma), CHECK(erfinv), CHECK(i0), CHECK(i1), CHECK(i0e), CHECK(i1e);
#undef CHECK
  });
}

// The values are mpmath's, to 17 digits.
TEST(Special, FunctionsOfTwoArguments) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const auto of = [&](std::vector<double> v) {
      return put(row(v), mesh, "S0");
    };
    const DistTensor a = of({0.5, 1e-6, 20, 5, 3, 1000, 200000}),
                     x = of({0.25, 0.75, 1e-3, 30, 3.5, 1010, 200500});
    expect_close(
        array_of(igamma(a, x).full()),
        row({0.52049987781304654, 0.99999965965891092, 4.1064049028301252e-79,
             0.99999999637569905, 0.67915280113786593, 0.62767894473699473,
             0.86818422325472297}),
        1e-12, "igamma");
    expect_close(array_of(igammac(a, x).full()),
                 row({0.47950012218695346, 3.4034108908430777e-7, 1.0,
                      3.624300952061488e-9, 0.32084719886213407,
                      0.37232105526300527, 0.13181577674527703}),
                 1e-12, "igammac");
    const DistTensor ends = of({0, 0, 1, 1, kInf, kInf, -1, 1, kNaN}),
                     at = of({0, 1, 0, kInf, 1, kInf, 1, -1, 1});
    expect_close(array_of(igamma(ends, at).full()),
                 row({kNaN, 1, 0, 1, 0, kNaN, kNaN, kNaN, kNaN}), 0, "igamma");
    expect_close(array_of(igammac(ends, at).full()),
                 row({kNaN, 0, 1, 0, 1, kNaN, kNaN, kNaN, kNaN}), 0, "igammac");
    expect_close(
        array_of(zeta(of({2, 1.125, 3, 4, 2.5, 30, 1, 0.5, 2, 2.5, kNaN}),
                      of({1, 0.25, -2.5, -0.75, 1000, 3, 2, 2, -3, -3.5, 1}))
                     .full()),
        row({1.6449340668482264, 12.980836927210345, 0.054102025820863702,
             259.62418449535856, 2.1097669044166767e-5, 4.8578041896672468e-15,
             kInf, kNaN, kInf, kNaN, kNaN}),
        1e-13, "zeta");
  });
}

TEST(Special, Frexp) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const Array x = row({1, -6.5, 0.5, 3e300, 5e-324, 0, kInf, -kInf, kNaN});
    const DistTensor in = put(x, mesh, "S0");
    const auto [mantissa, exponent] = frexp(in);
    EXPECT_EQ(array_of(exponent.full()).v,
              array_of(frexp_exponent(in).full()).v);
    expect_close(array_of(mantissa.full()), array_of(frexp_mantissa(in).full()),
                 0, "mantissa");
    expect_close(array_of(mantissa.full()),
                 row({0.5, -0.8125, 0.5, std::ldexp(3e300, -999), 0.5, 0, kInf,
                      -kInf, kNaN}),
                 0, "mantissa");
    EXPECT_EQ(exponent.dtype(), DType::kI32);
    EXPECT_EQ(array_of(exponent.full()).v,
              (std::vector<double>{1, 3, 0, 999, -1073, 0, 0, 0, 0}));
  });
}

// At 0 the slopes of i1 and i1e are 1/2, although I_1(x) / x has no value.
TEST(Special, SlopesOfBesselFunctionsAtZero) {
  on_mesh("x=2", [](const Mesh& mesh) {
    for (const auto& f : {+[](const DistTensor& x) { return i1(x); },
                          +[](const DistTensor& x) { return i1e(x); }}) {
      DistTensor x = zeros({3}, mesh, "S0", DType::kF64);
      const DistTensor y = f(x.set_requires_grad());
      GradOptions options;
      options.cotangent = ones_like(y);
      EXPECT_EQ(array_of(grad(y, {x}, options)[0].full()).v,
                (std::vector<double>{0.5, 0.5, 0.5}));
    }
  });
}

TEST(Special, Errors) {
  on_mesh("x=2", [](const Mesh& mesh) {
    DistTensor x = put(row({1, 2, 3}), mesh, "S0");
    x.set_requires_grad();
    EXPECT_NE(error_of([&] { polygamma(-1, x); }).find("n is -1"),
              std::string::npos);
    EXPECT_NE(error_of([&] { mvlgamma(x, 0); }).find("p is 0"),
              std::string::npos);
    const DistTensor b = x.detach();
    for (const DistTensor& y : {igamma(x, b), igammac(x, b), zeta(x, b)}) {
      GradOptions options;
      options.cotangent = ones_like(y);
      EXPECT_NE(error_of([&] {
                  grad(y, {x}, options);
                }).find("no gradient by its first operand"),
                std::string::npos);
    }
  });
}

}  // namespace
}  // namespace dtensor::testing
