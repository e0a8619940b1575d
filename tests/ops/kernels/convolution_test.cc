// SPDX-License-Identifier: Apache-2.0
// Compares convolutions with a loop over all products.
#include "dtensor/ops/kernels/convolution.h"

#include <algorithm>
#include <cmath>

#include "tests/ops/kernels/testing.h"

namespace dtensor::kernels {
namespace cpu {

bool convolution(const Convolution&);  // of ops/kernels/cpu/convolution.cc

}  // namespace cpu

namespace {

using Makes = Convolution::Makes;
using Space = Convolution::Space;

int64_t volume(const Space& s) { return s[0] * s[1] * s[2]; }
Space place(const Space& s, int64_t e) {
  return {e / s[2] / s[1], e / s[2] % s[1], e % s[2]};
}

// Calls f(x, weight, y) with the positions of the elements of each product.
template <class F>
void for_products(const Convolution& a, const F& f) {
  const int64_t in = volume(a.in), out = volume(a.out), taps = volume(a.kernel);
  for (int64_t b = 0; b < a.b; ++b)
    for (int64_t g = 0; g < a.groups; ++g)
      for (int64_t c = 0; c < a.c; ++c)
        for (int64_t o = 0; o < a.o; ++o)
          for (int64_t m = 0; m < out; ++m)
            for (int64_t k = 0; k < taps; ++k) {
              const Space y = place(a.out, m), t = place(a.kernel, k);
              int64_t at = 0;
              bool inside = true;
              for (size_t d = 0; d < 3; ++d) {
                const int64_t i =
                    y[d] * a.stride[d] + t[d] * a.dilation[d] - a.pad[d];
                inside = inside && i >= 0 && i < a.in[d];
                at = at * a.in[d] + i;
              }
              if (inside)
                f(((b * a.groups + g) * a.c + c) * in + at,
                  ((g * a.o + o) * a.c + c) * taps + k,
                  ((b * a.groups + g) * a.o + o) * out + m);
            }
}

// Some are such that oneDNN makes them, and some are not.
std::vector<Convolution> calls() {
  return {
      {.b = 2,
       .c = 3,
       .o = 4,
       .in = {1, 7, 5},
       .out = {1, 4, 3},
       .kernel = {1, 3, 2},
       .stride = {1, 2, 2},
       .pad = {0, 1, 1}},
      {.b = 1,
       .groups = 3,
       .c = 2,
       .o = 1,
       .in = {1, 1, 11},
       .out = {1, 1, 5},
       .kernel = {1, 1, 3},
       .stride = {1, 1, 2},
       .dilation = {1, 1, 2},
       .pad = {0, 0, 1}},
      {.b = 2,
       .groups = 5,
       .c = 1,
       .o = 1,
       .in = {1, 6, 6},
       .out = {1, 6, 6},
       .kernel = {1, 3, 3},
       .pad = {0, 1, 1}},
      {.b = 1,
       .c = 2,
       .o = 3,
       .in = {3, 4, 2},
       .out = {2, 2, 3},
       .kernel = {2, 1, 2},
       .stride = {1, 3, 1},
       .pad = {0, 1, 1}},
      {.b = 3,
       .c = 17,
       .o = 33,
       .in = {1, 8, 9},
       .out = {1, 8, 9},
       .kernel = {1, 1, 1}},
      // The first element of x meets nothing.
      {.b = 2,
       .c = 3,
       .o = 2,
       .in = {1, 1, 8},
       .out = {1, 1, 4},
       .kernel = {1, 1, 1},
       .stride = {1, 1, 2},
       .pad = {0, 0, -1}},
      // A part without elements.
      {.b = 2,
       .c = 3,
       .o = 2,
       .in = {1, 1, 0},
       .out = {1, 1, 2},
       .kernel = {1, 1, 3},
       .pad = {0, 0, 2}},
      {.b = 0, .c = 3, .o = 2, .in = {1, 4, 4}, .out = {1, 4, 4}},
      {.b = 2, .c = 0, .o = 2, .in = {1, 4, 4}, .out = {1, 4, 4}},
  };
}

TEST(ConvolutionKernel, MakesEachTensorFromTheOthers) {
  for (const DType t :
       {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI64})
    for (const Convolution& call : calls())
      for (const Makes makes : {Makes::kY, Makes::kX, Makes::kWeight})
        for (const bool with_bias : {false, true}) {
          if (with_bias && makes != Makes::kY) continue;
          Convolution a = call;
          a.makes = makes;
          a.type = t;
          const Elements x = Elements::random(
              t, a.b * a.groups * a.c * volume(a.in), -2, 2, 1);
          const Elements weight = Elements::random(
              t, a.groups * a.o * a.c * volume(a.kernel), -2, 2, 2);
          const Elements y = Elements::random(
              t, a.b * a.groups * a.o * volume(a.out), -2, 2, 3);
          const Elements bias = Elements::random(t, a.groups * a.o, -2, 2, 4);
          const Elements& made = makes == Makes::kY   ? y
                                 : makes == Makes::kX ? x
                                                      : weight;
          std::vector<double> want(static_cast<size_t>(made.size()));
          double terms = 1;
          if (with_bias)
            for (int64_t i = 0; i < y.size(); ++i)
              want[static_cast<size_t>(i)] =
                  bias[i / volume(a.out) % (a.groups * a.o)];
          for_products(a, [&](int64_t i, int64_t w, int64_t m) {
            const int64_t to = makes == Makes::kY   ? m
                               : makes == Makes::kX ? i
                                                    : w;
            want[static_cast<size_t>(to)] +=
                makes == Makes::kY   ? x[i] * weight[w]
                : makes == Makes::kX ? y[m] * weight[w]
                                     : x[i] * y[m];
            ++terms;
          });
          Elements got(t, made.size(), 9);
          a.x = x.data();
          a.weight = weight.data();
          a.y = y.data();
          if (with_bias) a.bias = bias.data();
          a.made = got.data();
          run(a);
          terms /= std::max<double>(1, static_cast<double>(made.size()));
          EXPECT_TRUE(near(got, want, tolerance(t) * (4 + std::sqrt(terms))))
              << name(t) << " " << static_cast<int>(makes) << " " << a.b << " "
              << a.groups << " " << a.c << " " << a.o;
        }
}

// If oneDNN refused a call, plain loops would make it, far more slowly.
TEST(ConvolutionKernel, OneDnnMakesF32) {
  int made = 0;
  for (const Convolution& call : calls())
    for (const Makes makes : {Makes::kY, Makes::kX, Makes::kWeight}) {
      Convolution a = call;
      a.makes = makes;
      const Elements x(a.type, a.b * a.groups * a.c * volume(a.in));
      const Elements weight(a.type, a.groups * a.o * a.c * volume(a.kernel));
      const Elements y(a.type, a.b * a.groups * a.o * volume(a.out));
      Elements got(a.type, std::max({x.size(), weight.size(), y.size()}));
      a.x = x.data();
      a.weight = weight.data();
      a.y = y.data();
      a.made = got.data();
      const bool takes = x.size() && weight.size() && y.size() && a.pad[2] >= 0;
      EXPECT_EQ(cpu::convolution(a), takes) << made;
      made += takes;
    }
  EXPECT_EQ(made, 5 * 3);
}

}  // namespace
}  // namespace dtensor::kernels
