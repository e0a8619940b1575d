// SPDX-License-Identifier: Apache-2.0
// The gamma function, its derivatives and its parts, of doubles. Part of
// special_math.h.
#pragma once
#include "dtensor/ops/functions/math.h"

namespace dtensor::fn {

// For functions that are too long to be copied to each of their callers.
#define DT_LONG DT_HD __attribute__((noinline)) inline

namespace special {
inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kPi = 3.1415926535897932;
inline constexpr double kE = 2.7182818284590452;
inline constexpr double kSqrtHalf = 0.70710678118654752;
// A series may end before a term that is smaller than this part of the sum.
inline constexpr double kLast = 1e-17;
DT_HD inline bool is_even(double n) { return std::fmod(n, 2.0) == 0; }
}  // namespace special

// --- The gamma function and its derivatives ----------------------------------
DT_HD inline double lgamma(double x) { return std::lgamma(x); }

// The slope of lgamma(). NaN at the negative integers. DLMF 5.5.4 below 0, then
// 5.5.2 up to 10, and 5.11.2.
DT_LONG double digamma(double x) {
  using namespace special;
  if (x == 0) return std::copysign(kInf, -x);
  double y = 0;
  if (x < 0) {
    if (x == std::floor(x)) return kNaN;
    y = -kPi / std::tan(kPi * (x - std::nearbyint(x)));
    x = 1 - x;
  }
  for (; x < 10; x += 1) y -= 1 / x;
  const double z = 1 / (x * x);
  constexpr double kSeries[] = {1.0 / 12,   -691.0 / 32760, 1.0 / 132,
                                -1.0 / 240, 1.0 / 252,      -1.0 / 120,
                                1.0 / 12};
  double sum = 0;
  for (double c : kSeries) sum = c + z * sum;
  return y + std::log(x) - 0.5 / x - z * sum;
}

namespace special {
// The sum of ((q + k) / unit)^-s over k = 0, 1, ... for s > 1 and q > 0, by the
// formula of Euler and Maclaurin from the tenth term on (DLMF 2.10.1).
DT_LONG double power_sum(double s, double q, double unit = 1) {
  double sum = 0;
  for (int k = 0; k < 10; ++k, q += 1) sum += std::pow(q / unit, -s);
  sum +=
      std::pow(q / unit, 1 - s) * unit / (s - 1) + 0.5 * std::pow(q / unit, -s);
  double term = s / unit * std::pow(q / unit, -s - 1), j = 1;
  // The numbers of Bernoulli B(2k), over (2k)!.
  constexpr double kBernoulli[] = {
      1.0 / 12,          -1.0 / 720,
      1.0 / 30240,       -1.0 / 1209600,
      1.0 / 47900160,    -691.0 / 1307674368000,
      1.0 / 74724249600, -3617.0 / 10670622842880000};
  for (double c : kBernoulli) {
    if (!(term > kLast * sum)) break;
    sum += c * term;
    term *= (s + j) * (s + j + 1) / (q * q);
    j += 2;
  }
  return sum;
}
}  // namespace special

// Hurwitz's zeta function: the sum of (q + k)^-s over k = 0, 1, ... NaN for
// s < 1, and for q < 0 unless s is whole.
DT_LONG double zeta(double s, double q) {
  using namespace special;
  if (s == 1) return kInf;
  if (!(s > 1)) return kNaN;
  if (!(q <= 0)) return power_sum(s, q);
  if (q == std::floor(q)) return kInf;
  if (s != std::floor(s)) return kNaN;
  // The terms with a negative q + k are those of two series with positive
  // numbers.
  const double part = q - std::floor(q);
  const double negative = power_sum(s, 1 - part) - power_sum(s, 1 - q);
  return power_sum(s, part) + (is_even(s) ? negative : -negative);
}

namespace special {
// n! / x^(n + 1) for n >= 1 and x >= 1, also if n! or the power overflows.
DT_HD inline double factorial_over_power(double n, double x) {
  if (n <= 170) {
    const double root = std::pow(x, -(n + 1) / 2);
    return std::tgamma(n + 1) * root * root;
  }
  // Stirling's series, DLMF 5.11.1.
  const double rest = 1 / (12 * n) - 1 / (360 * n * n * n);
  return std::pow(n / x / kE, n) * std::exp(rest) * std::sqrt(2 * kPi * n) / x;
}
}  // namespace special

// The derivative n of digamma(), for n = 0, 1, 2, ...: DLMF 25.11.12. Infinite
// if it is out of range.
DT_LONG double polygamma(double x, double n) {
  using namespace special;
  if (n == 0) return digamma(x);
  const bool scaled = x > 1 && x < kInf;
  const double sum = scaled ? power_sum(n + 1, x, x) : zeta(n + 1, x);
  const double y = sum == 0 ? 0 : factorial_over_power(n, scaled ? x : 1) * sum;
  return is_even(n) ? -y : y;
}

namespace special {
// lgamma(a + 1), accurate for tiny a: four terms of the series at 0, whose
// coefficients are Euler's constant and zeta(k) / k.
DT_HD inline double lgamma1p(double a) {
  if (!(a < 1e-3)) return std::lgamma(a + 1);
  return a * (-0.57721566490153286 +
              a * (0.82246703342411322 +
                   a * (-0.40068563438653143 + a * 0.27058080842778454)));
}

// x^a exp(-x) / gamma(a + 1) for a, x > 0. For large a, Stirling's series (DLMF
// 5.11.1) avoids the difference of large numbers.
DT_HD inline double gamma_term(double a, double x) {
  if (a < 10) return std::exp(a * std::log(x) - x - lgamma1p(a));
  const double u = (x - a) / a, z = 1 / (a * a);
  const double log_ratio = std::fabs(u) < 0.5 ? std::log1p(u) : std::log(x / a);
  const double rest =
      (1.0 / 12 -
       z * (1.0 / 360 - z * (1.0 / 1260 - z * (1.0 / 1680 - z / 1188)))) /
      a;
  return std::exp(a * (log_ratio - u) - rest) / std::sqrt(2 * kPi * a);
}

// The same as gamma_part(), for large a and an x near it: DLMF 8.12.3 and
// 8.12.7, with the Taylor series of c0, c1 and c2 by DiDonato and Morris (ACM
// Transactions on Mathematical Software 12, 1986).
DT_HD inline double gamma_near(double a, double x, bool upper) {
  const double u = (x - a) / a, half = u - std::log1p(u);
  const double eta = std::copysign(std::sqrt(2 * half), u);
  constexpr double kC0[] = {-2.1854485106799922e-6,
                            1.0 / 25515,
                            -139.0 / 777600,
                            1.0 / 2835,
                            1.0 / 864,
                            -2.0 / 135,
                            1.0 / 12,
                            -1.0 / 3};
  double c0 = 0;
  for (double c : kC0) c0 = c + eta * c0;
  const double c1 =
      -1.0 / 540 + eta * (-1.0 / 288 + eta * (1.0 / 378 - eta * 77.0 / 77760));
  const double rest = std::exp(-a * half) / std::sqrt(2 * kPi * a) *
                      (c0 + (c1 + 25.0 / 6048 / a) / a);
  const double middle = eta * std::sqrt(a / 2);
  return upper ? 0.5 * std::erfc(middle) + rest
               : 0.5 * std::erfc(-middle) - rest;
}

// The lower or the upper part of the integral of t^(a - 1) exp(-t), which x
// divides, over the whole integral.
DT_LONG double gamma_part(double a, double x, bool upper) {
  if (!(a >= 0) || !(x >= 0)) return kNaN;
  if (a == 0 && x == 0) return kNaN;
  if (a == kInf && x == kInf) return kNaN;
  if (a == 0 || x == kInf) return upper ? 0 : 1;
  if (x == 0 || a == kInf) return upper ? 1 : 0;
  if (a > 1e5 && std::fabs(x - a) < 0.2 * a) return gamma_near(a, x, upper);
  if (upper && x < 1.1 && a < (x < 0.5 ? -0.4 / std::log(x) : 1.1 * x)) {
    // DLMF 8.7.1; the lower part is too near to 1.
    double term = 1, sum = 0;
    for (int n = 1; std::fabs(term) > kLast * std::fabs(sum); ++n) {
      term *= -x / n;
      sum += term / (a + n);
    }
    const double log_front = a * std::log(x) - lgamma1p(a);
    return -std::expm1(log_front) - std::exp(log_front) * a * sum;
  }
  const double front = gamma_term(a, x);
  if (x <= 1 || x <= a) {  // DLMF 8.11.4
    double term = 1, sum = 1;
    for (double n = a + 1; term > kLast * sum; n += 1) {
      term *= x / n;
      sum += term;
    }
    return upper ? 1 - front * sum : front * sum;
  }
  // The even part of the continued fraction of DLMF 8.9.2, by the method of
  // Lentz, as modified by Thompson and Barnett.
  constexpr double kTiny = 1e-300;
  const auto not_zero = [](double v) {
    return std::fabs(v) < kTiny ? kTiny : v;
  };
  double b = x + 1 - a, c = 1 / kTiny, d = 1 / not_zero(b), h = d, step = 0;
  for (int i = 1; i < 100000 && std::fabs(step - 1) > 3e-16; ++i) {
    const double product = -i * (i - a);
    b += 2;
    d = 1 / not_zero(product * d + b);
    c = not_zero(b + product / c);
    step = c * d;
    h *= step;
  }
  return upper ? front * a * h : 1 - front * a * h;
}
}  // namespace special

// The regularized incomplete gamma functions P(a, x) and Q(a, x) = 1 - P(a, x).
DT_HD inline double igamma(double a, double x) {
  return special::gamma_part(a, x, false);
}
DT_HD inline double igammac(double a, double x) {
  return special::gamma_part(a, x, true);
}
// The slope of igamma() by x: x^(a - 1) exp(-x) / gamma(a).
DT_LONG double gamma_density(double a, double x) {
  if (!(a >= 0) || !(x >= 0)) return special::kNaN;
  if (x == special::kInf) return 0;
  return x == 0 ? std::pow(x, a - 1) : special::gamma_term(a, x) * a / x;
}

}  // namespace dtensor::fn
