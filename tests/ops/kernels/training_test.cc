// SPDX-License-Identifier: Apache-2.0
// Optimizers and random numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "dtensor/ops/kernels/optim.h"
#include "dtensor/ops/kernels/philox.h"
#include "dtensor/ops/kernels/random.h"
#include "dtensor/placement/error.h"
#include "tests/ops/kernels/testing.h"
#include "tests/ops/reference.h"
#include "tests/testing.h"

namespace dtensor::kernels {
namespace {

TEST(AdamWTest, MatchesTheReference) {
  for (DType t : kFloats)
    for (DType gt : {t, stat_of(t)})
      for (bool with_master : {false, true})
        for (int64_t n : {0, 1, 5, 16, 1031}) {
          const DType st = stat_of(t);
          Elements p = Elements::random(t, n), m(st, n), v(st, n);
          Elements master(st, p.doubles());
          std::vector<double> p64 = p.doubles(), m64(p64.size()),
                              v64(p64.size());
          OptimPart part = {.n = n,
                            .param = p.data(),
                            .m = m.data(),
                            .v = v.data(),
                            .master = with_master ? master.data() : nullptr,
                            .lr = 0.125,
                            .weight_decay = 0.1};
          OptimPart part64 = part;
          part64.param = p64.data();
          part64.m = m64.data();
          part64.v = v64.data();
          const std::vector<double> clip = {0.75};
          const AdamW o{.param_type = t,
                        .grad_type = gt,
                        .grad_scale = 0.5,
                        .clip = n % 2 ? clip.data() : nullptr,
                        .parts = {&part, 1}};
          for (int64_t step = 1; step <= 3; ++step) {
            part.step = part64.step = step;
            const Elements g =
                Elements::random(gt, n, -1, 1, static_cast<unsigned>(step));
            part.grad = g.data();
            run(o);
            const std::vector<double> g64 = g.doubles();
            part64.grad = g64.data();
            reference::adamw(o, part64);
          }
          EXPECT_TRUE(near(p, p64, 4 * tolerance(t))) << name(t) << n;
          EXPECT_TRUE(near(m, m64, tolerance(st)));
          EXPECT_TRUE(near(v, v64, tolerance(st)));
          if (with_master) {
            EXPECT_TRUE(near(master, p64, 4 * tolerance(st)));
            EXPECT_TRUE(near(p, Elements(t, master.doubles()).doubles(), 0));
          }
        }
}

// The first step of torch.optim.AdamW moves each weight by lr times the sign of
// its gradient, after the decay.
TEST(AdamWTest, FirstStepIsTheSign) {
  Elements p(DType::kF32, {1, -2, 3}), m(DType::kF32, 3), v(DType::kF32, 3);
  const Elements g(DType::kF32, {0.5, -1e-3, 0});
  const OptimPart part = {.n = 3,
                          .param = p.data(),
                          .grad = g.data(),
                          .m = m.data(),
                          .v = v.data(),
                          .lr = 0.01,
                          .weight_decay = 0.01};
  run(AdamW{.parts = {&part, 1}});
  const double decay = 1 - 0.01 * 0.01;
  EXPECT_TRUE(near(p, {decay - 0.01, -2 * decay + 0.01, 3 * decay}, 1e-6));
}

// The result is that of torch.nn.utils.clip_grad_norm_.
TEST(ClipTest, BringsTheNormDown) {
  const auto clipped = [](double squares, double max_norm) {
    const std::vector<double> in = {squares};
    std::vector<double> out = {-1, -1};
    run(Clip{.squares = in.data(),
             .max_norm = max_norm,
             .norm = &out[0],
             .clip = &out[1]});
    return std::pair(out[0], out[1]);
  };
  EXPECT_EQ(clipped(16, 1), std::pair(4.0, 1 / (4 + 1e-6)));
  EXPECT_EQ(clipped(16, 4), std::pair(4.0, 4 / (4 + 1e-6)));
  EXPECT_EQ(clipped(16, 5), std::pair(4.0, 1.0));
  EXPECT_EQ(clipped(16, 0), std::pair(4.0, 1.0));
  EXPECT_EQ(clipped(0, 1), std::pair(0.0, 1.0));
  EXPECT_EQ(clipped(INFINITY, 1).second, 0);
  EXPECT_TRUE(std::isnan(clipped(NAN, 1).first));
  EXPECT_TRUE(std::isnan(clipped(NAN, 1).second));
}

TEST(SgdTest, MatchesTheReference) {
  for (DType t : kFloats)
    for (bool momentum : {false, true})
      for (bool nesterov : {false, true})
        for (int64_t n : {1, 16, 103}) {
          const DType st = stat_of(t);
          Elements p = Elements::random(t, n), buffer(st, n);
          Elements master(st, p.doubles());
          std::vector<double> p64 = p.doubles(), b64(p64.size());
          const std::vector<double> clip = {0.75};
          Sgd o{.param_type = t,
                .grad_type = t,
                .momentum = momentum ? 0.9 : 0,
                .nesterov = nesterov,
                .clip = n % 2 ? clip.data() : nullptr};
          for (unsigned step = 1; step <= 3; ++step) {
            const Elements g = Elements::random(t, n, -1, 1, step);
            const std::vector<double> g64 = g.doubles();
            OptimPart part = {.n = n,
                              .param = p.data(),
                              .grad = g.data(),
                              .m = momentum ? buffer.data() : nullptr,
                              .master = master.data(),
                              .lr = 0.25,
                              .weight_decay = 0.1};
            o.parts = {&part, 1};
            run(o);
            part.param = p64.data();
            part.grad = g64.data();
            part.m = momentum ? b64.data() : nullptr;
            reference::sgd(o, part);
          }
          EXPECT_TRUE(near(master, p64, 4 * tolerance(st)));
          EXPECT_TRUE(near(p, p64, tolerance(t)));
        }
}

TEST(SgdTest, RefusesOtherGradients) {
  EXPECT_EQ(
      dtensor::testing::error_of([] { run(Sgd{.grad_type = DType::kF64}); }),
      "[sgd] does not take a gradient of f64 with a parameter of f32; "
      "cast the gradient to f32");
}

// Parameters of many sizes, more than one launch takes, each with a rate, a
// decay and a step of its own. Each is updated to the bit as if it were alone,
// and no memory beyond it is touched.
class PartsTest : public ::testing::Test {
 protected:
  struct Arrays {
    Elements param, grad, m, v, master;
  };
  static constexpr int64_t kGuard = 3;
  static constexpr double kUntouched = 7;

  static std::vector<int64_t> sizes() {
    std::vector<int64_t> list = {1, 0,   4095, 4096, 4097,
                                 2, 255, 256,  257,  8193};
    while (list.size() < 91)
      list.push_back(1 + static_cast<int64_t>(list.size() * 37 % 67));
    return list;
  }
  static Arrays arrays(DType t, DType gt, int64_t n, unsigned seed) {
    const DType st = stat_of(t);
    Arrays a = {Elements::random(t, n + kGuard, -1, 1, seed),
                Elements::random(gt, n + kGuard, -1, 1, seed + 1),
                Elements::random(st, n + kGuard, -1, 1, seed + 2),
                Elements::random(st, n + kGuard, 0, 1, seed + 3),
                Elements(st, 0)};
    a.master = Elements(st, a.param.doubles());
    for (Elements* x : {&a.param, &a.m, &a.v, &a.master})
      for (int64_t i = 0; i < kGuard; ++i) x->set(n + i, kUntouched);
    return a;
  }
  static OptimPart part_of(Arrays& a, int64_t n, size_t i, bool halves) {
    return {.n = n,
            .param = a.param.data(),
            .grad = a.grad.data(),
            .m = a.m.data(),
            .v = a.v.data(),
            .master = halves ? a.master.data() : nullptr,
            .lr = 0.01 * static_cast<double>(i % 5 + 1),
            .weight_decay = 0.1 * static_cast<double>(i % 3),
            .step = static_cast<int64_t>(i % 7 + 1)};
  }
  // call(param type, grad type, parts).
  template <class Call>
  static void check(Call&& call) {
    for (DType t : {DType::kF32, DType::kF64, DType::kBF16})
      for (DType gt : {t, DType::kF32}) {
        if (gt != t && t != DType::kBF16) continue;
        const std::vector<int64_t> n = sizes();
        std::vector<Arrays> together, alone;
        std::vector<OptimPart> parts;
        for (size_t i = 0; i < n.size(); ++i) {
          together.push_back(arrays(t, gt, n[i], static_cast<unsigned>(i)));
          alone.push_back(arrays(t, gt, n[i], static_cast<unsigned>(i)));
        }
        for (size_t i = 0; i < n.size(); ++i)
          parts.push_back(part_of(together[i], n[i], i, is_half_float(t)));
        call(t, gt, parts);
        for (size_t i = 0; i < n.size(); ++i) {
          const OptimPart one = part_of(alone[i], n[i], i, is_half_float(t));
          const std::vector<double> before = alone[i].param.doubles();
          call(t, gt, {&one, 1});
          const auto same = [&](const Elements& a, const Elements& b) {
            EXPECT_TRUE(near(a, b.doubles(), 0))
                << name(t) << " part " << i << " of " << n[i];
          };
          same(together[i].param, alone[i].param);
          same(together[i].m, alone[i].m);
          same(together[i].v, alone[i].v);
          same(together[i].master, alone[i].master);
          const std::vector<double> after = alone[i].master.doubles();
          if (is_half_float(t) && n[i] > 0) {
            EXPECT_NE(after[0], before[0]);
          }
          for (int64_t k = 0; k < kGuard; ++k) {
            EXPECT_EQ(together[i].param[n[i] + k], kUntouched);
            EXPECT_EQ(together[i].m[n[i] + k], kUntouched);
            EXPECT_EQ(together[i].v[n[i] + k], kUntouched);
            EXPECT_EQ(together[i].master[n[i] + k], kUntouched);
          }
        }
      }
  }
};

TEST_F(PartsTest, AdamWTakesManyAtOnce) {
  check([](DType t, DType gt, std::span<const OptimPart> parts) {
    run(AdamW{
        .param_type = t, .grad_type = gt, .grad_scale = 0.5, .parts = parts});
  });
}

TEST_F(PartsTest, SgdTakesManyAtOnce) {
  for (bool nesterov : {false, true})
    check([&](DType t, DType gt, std::span<const OptimPart> parts) {
      run(Sgd{.param_type = t,
              .grad_type = gt,
              .momentum = 0.9,
              .nesterov = nesterov,
              .parts = parts});
    });
}

// Parameters at addresses where a pack may not be loaded are updated, too.
TEST_F(PartsTest, AnyAlignment) {
  for (DType t : kFloats) {
    const int64_t n = 37;
    Arrays a = arrays(t, t, n, 1), b = arrays(t, t, n - 1, 1);
    const auto cut = [&](const Elements& from, Elements& to) {
      for (int64_t i = 0; i < to.size(); ++i) to.set(i, from[i + 1]);
    };
    cut(a.param, b.param), cut(a.grad, b.grad), cut(a.m, b.m), cut(a.v, b.v);
    const OptimPart shifted = {.n = n - 1,
                               .param = a.param.at(1),
                               .grad = a.grad.at(1),
                               .m = a.m.at(1),
                               .v = a.v.at(1)};
    OptimPart plain = part_of(b, n - 1, 0, false);
    plain.lr = shifted.lr;
    for (const OptimPart& part : {shifted, plain})
      run(AdamW{.param_type = t, .grad_type = t, .parts = {&part, 1}});
    for (int64_t i = 0; i < n - 1; ++i) {
      EXPECT_EQ(a.param[i + 1], b.param[i]);
      EXPECT_EQ(a.m[i + 1], b.m[i]);
      EXPECT_EQ(a.v[i + 1], b.v[i]);
    }
  }
}

// Rows are updated to the bit as if each were a part, and no other memory is
// touched. The parameter's rows have gaps.
TEST_F(PartsTest, RowsAlone) {
  constexpr int64_t kRows = 6, kWidth = 37, kStride = 40, kLo = 100, kAt = 1;
  const std::vector<int64_t> ids = {103, -1, 101, 105, 99, 7000};
  const auto count = static_cast<int64_t>(ids.size());
  for (DType t : kFloats)
    for (DType gt : {t, stat_of(t)})
      for (bool adamw : {true, false}) {
        Arrays all = arrays(t, gt, kRows * kStride, 5);
        const Arrays before = arrays(t, gt, kRows * kStride, 5);
        OptimPart part = part_of(all, kWidth, 1, is_half_float(t));
        part.rows = {count, ids.data(), kLo, kLo + 5, kAt, kStride};
        const auto update = [&](const OptimPart& p) {
          if (adamw)
            run(AdamW{.param_type = t, .grad_type = gt, .parts = {&p, 1}});
          else
            run(Sgd{.param_type = t,
                    .grad_type = gt,
                    .momentum = 0.9,
                    .parts = {&p, 1}});
        };
        update(part);
        Arrays want = arrays(t, gt, kRows * kStride, 5);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t row = ids[static_cast<size_t>(i)] - kLo + kAt;
          if (row < kAt || row >= kAt + 5) continue;
          OptimPart one = part_of(want, kWidth, 1, is_half_float(t));
          one.param = want.param.at(row * kStride);
          one.grad = want.grad.at(i * kWidth);
          one.m = want.m.at(row * kWidth);
          one.v = want.v.at(row * kWidth);
          if (one.master) one.master = want.master.at(row * kWidth);
          update(one);
        }
        EXPECT_FALSE(near(all.param, before.param.doubles(), 0));
        EXPECT_TRUE(near(all.param, want.param.doubles(), 0)) << name(t);
        EXPECT_TRUE(near(all.m, want.m.doubles(), 0));
        EXPECT_TRUE(near(all.v, want.v.doubles(), 0));
        EXPECT_TRUE(near(all.master, want.master.doubles(), 0));
      }
}

// Rates that the kernel reads from memory have the effect of given ones.
TEST_F(PartsTest, RatesInMemory) {
  const int64_t n = 100;
  const double lr = 0.02, scale = 3;
  const int64_t step = 5;
  const std::vector<double> rates = {lr, 1 - std::pow(0.9, 5.0),
                                     1 - std::pow(0.999, 5.0)};
  for (DType t : kFloats)
    for (bool adamw : {true, false}) {
      Arrays given = arrays(t, t, n, 1), read = arrays(t, t, n, 1);
      OptimPart one = part_of(given, n, 1, true),
                other = part_of(read, n, 1, true);
      one.lr = lr * scale;
      one.step = step;
      other.lr = scale;
      other.step = 77;
      other.rates = rates.data();
      for (const OptimPart* p : {&one, &other})
        if (adamw)
          run(AdamW{.param_type = t, .grad_type = t, .parts = {p, 1}});
        else
          run(Sgd{.param_type = t,
                  .grad_type = t,
                  .momentum = 0.9,
                  .parts = {p, 1}});
      EXPECT_TRUE(near(read.master, given.master.doubles(), 0)) << name(t);
      EXPECT_TRUE(near(read.param, given.param.doubles(), 0)) << name(t);
    }
}

// Known answers of Random123's kat_vectors for philox4x32, 10 rounds.
TEST(PhiloxTest, KnownAnswers) {
  struct Answer {
    Philox4 counter;
    uint32_t key[2];
    Philox4 want;
  };
  const Answer answers[] = {
      {{{0, 0, 0, 0}},
       {0, 0},
       {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
      {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
       {0xffffffff, 0xffffffff},
       {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       {0xa4093822, 0x299f31d0},
       {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
  };
  for (const Answer& a : answers) {
    const Philox4 got = philox4x32(a.counter, a.key[0], a.key[1]);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(got.x[i], a.want.x[i]);
  }
}

constexpr uint64_t kSeed = 0x0123456789abcdefu;
constexpr uint64_t kStream = 0xfedcba9876543210u;

Elements draw(Distribution d, DType t, const Shape& global, const Shape& lo,
              const Shape& size, double p0, double p1) {
  Elements a(t, numel(size));
  run(RandomBox{.distribution = d,
                .type = t,
                .key = {kSeed, kStream},
                .global = global,
                .lo = lo,
                .size = size,
                .out = a.data(),
                .out_strides = contiguous_strides(size),
                .p0 = p0,
                .p1 = p1});
  return a;
}

TEST(RandomTest, MatchesTheReferenceByIndex) {
  const int64_t n = 1500;
  for (DType t : {DType::kF32, DType::kF64})
    for (auto [d, p0, p1] : {std::tuple{Distribution::kUniform, 0.0, 1.0},
                             std::tuple{Distribution::kUniform, -2.0, 3.0},
                             std::tuple{Distribution::kNormal, 0.0, 1.0},
                             std::tuple{Distribution::kNormal, 1.0, 0.5},
                             std::tuple{Distribution::kBernoulli, 0.3, 0.0}}) {
      const Elements a = draw(d, t, {n}, {0}, {n}, p0, p1);
      std::vector<double> want;
      for (int64_t i = 0; i < n; ++i)
        want.push_back(reference::random(d, t == DType::kF64, kSeed, kStream,
                                         static_cast<uint64_t>(i), p0, p1));
      EXPECT_TRUE(near(a, want, t == DType::kF64 ? 1e-15 : 2e-7));
    }
}

TEST(RandomTest, AnyBoxHoldsTheSameNumbers) {
  const Shape global = {5, 7, 9};
  for (DType t : kAll)
    for (auto d : {Distribution::kUniform, Distribution::kNormal,
                   Distribution::kBernoulli, Distribution::kInteger,
                   Distribution::kBits}) {
      const bool real =
          d == Distribution::kUniform || d == Distribution::kNormal;
      const bool whole =
          d == Distribution::kInteger || d == Distribution::kBits;
      if ((real && !is_float(t)) ||
          (whole && (is_float(t) || t == DType::kBool)))
        continue;
      const double p1 = whole ? 1000 : 1;
      const Elements all = draw(d, t, global, {0, 0, 0}, global, 0.25, p1);
      for (const Shape& lo : {Shape{0, 0, 0}, Shape{1, 3, 5}, Shape{4, 0, 8}})
        for (const Shape& size : {Shape{1, 4, 1}, Shape{1, 0, 1}}) {
          // The output is transposed and strided.
          const Shape strides = {1, 3, 20};
          Elements part(t, 60);
          run(RandomBox{.distribution = d,
                        .type = t,
                        .key = {kSeed, kStream},
                        .global = global,
                        .lo = lo,
                        .size = size,
                        .out = part.data(),
                        .out_strides = strides,
                        .p0 = 0.25,
                        .p1 = p1});
          for (int64_t i = 0; i < size[0]; ++i)
            for (int64_t j = 0; j < size[1]; ++j)
              for (int64_t k = 0; k < size[2]; ++k)
                ASSERT_EQ(part[i + 3 * j + 20 * k],
                          all[((lo[0] + i) * 7 + lo[1] + j) * 9 + lo[2] + k]);
        }
    }
}

TEST(RandomTest, LongBoxesAndSingleElementsAgree) {
  const int64_t n = 3000;
  for (DType t : kFloats)
    for (auto d : {Distribution::kUniform, Distribution::kNormal}) {
      const Elements all = draw(d, t, {n}, {0}, {n}, 0, 1);
      for (int64_t i = 0; i < n; i += 7)
        ASSERT_EQ(draw(d, t, {n}, {i}, {1}, 0, 1)[0], all[i]);
      const Elements tail = draw(d, t, {n}, {1001}, {n - 1001}, 0, 1);
      for (int64_t i = 0; i < tail.size(); ++i)
        ASSERT_EQ(tail[i], all[1001 + i]);
      const Elements column =
          draw(d, t, {n / 3, 3}, {1, 2}, {n / 3 - 1, 1}, 0, 1);
      for (int64_t i = 0; i < column.size(); ++i)
        ASSERT_EQ(column[i], all[(1 + i) * 3 + 2]);
    }
}

TEST(RandomTest, MomentsAndRanges) {
  const int64_t n = 200000;
  for (DType t : kFloats) {
    const Elements u = draw(Distribution::kUniform, t, {n}, {0}, {n}, 0, 1);
    const Elements z = draw(Distribution::kNormal, t, {n}, {0}, {n}, 0, 1);
    double mean = 0, square = 0, zm = 0, zs = 0, z4 = 0;
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_GE(u[i], 0);
      ASSERT_LT(u[i], 1);
      mean += u[i] / n;
      square += u[i] * u[i] / n;
      zm += z[i] / n;
      zs += z[i] * z[i] / n;
      z4 += std::pow(z[i], 4) / n;
    }
    EXPECT_NEAR(mean, 0.5, 0.005);
    EXPECT_NEAR(square, 1.0 / 3, 0.005);
    EXPECT_NEAR(zm, 0, 0.01);
    EXPECT_NEAR(zs, 1, 0.015);
    EXPECT_NEAR(z4, 3, 0.1);
  }
  const Elements k =
      draw(Distribution::kInteger, DType::kI64, {n}, {0}, {n}, -3, 4);
  std::vector<int> counts(7);
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_GE(k[i], -3);
    ASSERT_LT(k[i], 4);
    ++counts[static_cast<size_t>(k[i] + 3)];
  }
  for (int c : counts) EXPECT_NEAR(c, n / 7.0, n / 100.0);
}

TEST(RandomTest, BernoulliIsTheSameInEveryTypeAndExactAtTheEnds) {
  const int64_t n = 1000;
  const Elements a =
      draw(Distribution::kBernoulli, DType::kF32, {n}, {0}, {n}, 0.3, 0);
  for (DType t : kAll)
    EXPECT_TRUE(near(draw(Distribution::kBernoulli, t, {n}, {0}, {n}, 0.3, 0),
                     a.doubles(), 0));
  for (double p : {0.0, 1.0}) {
    const Elements e =
        draw(Distribution::kBernoulli, DType::kBool, {n}, {0}, {n}, p, 0);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(e[i], p);
  }
}

// A block's number has two words: index 2^36 is in block 2^34.
TEST(RandomTest, BoxesFarIntoALargeTensor) {
  const int64_t n = 150, lo = (int64_t{1} << 36) - 6;
  const Elements far = draw(Distribution::kBits, DType::kI32,
                            {int64_t{1} << 40}, {lo}, {n}, 0, 0);
  const Elements rows =
      draw(Distribution::kBits, DType::kI32,
           {int64_t{1} << 30, int64_t{1} << 10}, {lo >> 10, 7}, {2, 70}, 0, 0);
  auto want = [](int64_t index) {
    const Philox4 block =
        philox_block(kSeed, kStream, static_cast<uint64_t>(index / 4));
    return static_cast<int32_t>(block.x[index % 4]);
  };
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(far[i], want(lo + i)) << i;
  for (int64_t i = 0; i < 140; ++i)
    ASSERT_EQ(rows[i], want((((lo >> 10) + i / 70) << 10) + 7 + i % 70)) << i;
}

TEST(RandomTest, KeysInMemory) {
  const std::vector<uint64_t> key = {kSeed, kStream};
  for (DType t : {DType::kF32, DType::kI64}) {
    const auto d =
        t == DType::kI64 ? Distribution::kBits : Distribution::kNormal;
    Elements a(t, 103);
    run(RandomBox{.distribution = d,
                  .type = t,
                  .key = {.seed = 1, .stream = 2, .at = key.data()},
                  .global = {103},
                  .lo = {0},
                  .size = {103},
                  .out = a.data(),
                  .out_strides = {1},
                  .p1 = 1});
    EXPECT_TRUE(near(a, draw(d, t, {103}, {0}, {103}, 0, 1).doubles(), 0));
  }
}

TEST(RandomTest, SeedsAndStreamsDiffer) {
  auto first = [](uint64_t seed, uint64_t stream) {
    std::vector<int64_t> x(1);
    run(RandomBox{.distribution = Distribution::kBits,
                  .type = DType::kI64,
                  .key = {seed, stream},
                  .global = {1},
                  .lo = {0},
                  .size = {1},
                  .out = x.data(),
                  .out_strides = {1}});
    return x[0];
  };
  EXPECT_NE(first(1, 1), first(2, 1));
  EXPECT_NE(first(1, 1), first(1, 2));
  EXPECT_NE(first(1, 1), first(uint64_t{1} << 32, 1));
  EXPECT_NE(first(1, 1), first(1, (uint64_t{1} << 32) + 1));
  EXPECT_THROW(draw(Distribution::kUniform, DType::kI32, {1}, {0}, {1}, 0, 1),
               Error);
}

}  // namespace
}  // namespace dtensor::kernels
