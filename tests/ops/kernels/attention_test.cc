// SPDX-License-Identifier: Apache-2.0
// Attention and the rotary embedding.
#include "dtensor/ops/kernels/attention.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "dtensor/ops/kernels/rotary.h"
#include "dtensor/placement/error.h"
#include "tests/ops/kernels/testing.h"
#include "tests/ops/reference.h"

namespace dtensor::kernels {
namespace {

enum class Mask { kNone, kBool, kBoolPerKey, kAdditive, kAdditiveBroadcast };

struct Case {
  int64_t b, hq, hkv, s, t, d;
  bool causal;
  int64_t offset;
  Mask mask;
  bool bshd;  // memory as [b, s, h, d], else [b, h, s, d]
  std::span<const int> kv_head = {};
  int64_t window = 0;
  double soft_cap = 0;
};

using Strides = std::array<int64_t, 4>;

Strides strides_of(bool bshd, int64_t h, int64_t s, int64_t d) {
  return bshd ? Strides{h * s * d, d, h * d, 1}
              : Strides{h * s * d, s * d, d, 1};
}

void run(DType t, const Case& c) {
  SCOPED_TRACE(std::string(name(t)) + " b " + std::to_string(c.b) + " hq " +
               std::to_string(c.hq) + " hkv " + std::to_string(c.hkv) + " s " +
               std::to_string(c.s) + " t " + std::to_string(c.t) + " d " +
               std::to_string(c.d) + " causal " + std::to_string(c.causal) +
               " offset " + std::to_string(c.offset) + " mask " +
               std::to_string(static_cast<int>(c.mask)) + " window " +
               std::to_string(c.window) + " soft cap " +
               std::to_string(c.soft_cap));
  const DType st = stat_of(t);
  const int64_t nq = c.b * c.hq * c.s * c.d, nkv = c.b * c.hkv * c.t * c.d;
  const Elements q = Elements::random(t, nq, -2, 2, 1);
  const Elements k = Elements::random(t, nkv, -2, 2, 2);
  const Elements v = Elements::random(t, nkv, -1, 1, 3);
  const Elements dout = Elements::random(t, nq, -1, 1, 4);
  AttentionForward f;
  Attention& a = f.of;
  a.type = t;
  a.b = c.b, a.hq = c.hq, a.hkv = c.hkv, a.s = c.s, a.t = c.t, a.d = c.d;
  a.q.strides = strides_of(c.bshd, c.hq, c.s, c.d);
  a.k.strides = strides_of(c.bshd, c.hkv, c.t, c.d);
  a.v.strides = strides_of(!c.bshd, c.hkv, c.t, c.d);
  a.kv_head = c.kv_head;
  a.scale = 1 / std::sqrt(static_cast<double>(c.d));
  a.causal = c.causal;
  a.query_offset = c.offset;
  a.window = c.window;
  a.soft_cap = c.soft_cap;
  const bool is_bool = c.mask == Mask::kBool || c.mask == Mask::kBoolPerKey;
  Elements mask(is_bool ? DType::kBool : t, c.b * c.hq * c.s * c.t);
  if (c.mask != Mask::kNone) {
    mask = Elements::random(mask.type(), mask.size(), -1, 1, 5);
    a.mask_is_bool = is_bool;
    a.mask.strides = c.mask == Mask::kBoolPerKey ? Strides{c.t, 0, 0, 1}
                     : c.mask == Mask::kAdditiveBroadcast
                         ? Strides{0, c.s, 1, 0}
                         : Strides{c.hq * c.s * c.t, c.s * c.t, c.t, 1};
    if (!is_bool && mask.size() > 2) mask.set(1, -INFINITY);
    // A query without any key.
    if (c.mask == Mask::kBool)
      for (int64_t j = 0; j < c.t; ++j) mask.set(j, 0);
  }
  Elements out(t, nq, 9), lse(st, c.b * c.hq * c.s, 9), dq(t, nq, 9),
      dk(t, nkv, 9), dv(t, nkv, 9);
  AttentionBackward g;
  g.out.strides = strides_of(!c.bshd, c.hq, c.s, c.d);
  g.dout.strides = strides_of(c.bshd, c.hq, c.s, c.d);
  g.dq.strides = strides_of(!c.bshd, c.hq, c.s, c.d);
  g.dk.strides = strides_of(c.bshd, c.hkv, c.t, c.d);
  g.dv.strides = strides_of(c.bshd, c.hkv, c.t, c.d);

  a.q.data = q.data(), a.k.data = k.data(), a.v.data = v.data();
  a.mask.data = c.mask == Mask::kNone ? nullptr : mask.data();
  f.out = {out.data(), g.out.strides}, f.lse = lse.data();
  run(f);
  g.of = a;
  g.out.data = out.data(), g.dout.data = dout.data(), g.lse = lse.data();
  g.dq.data = dq.data(), g.dk.data = dk.data(), g.dv.data = dv.data();
  run(g);

  const Elements q64(DType::kF64, q.doubles()), k64(DType::kF64, k.doubles()),
      v64(DType::kF64, v.doubles()), dout64(DType::kF64, dout.doubles());
  Elements out64(DType::kF64, nq), lse64(DType::kF64, lse.size()),
      dq64(DType::kF64, nq), dk64(DType::kF64, nkv), dv64(DType::kF64, nkv);
  const Elements mask64(is_bool ? DType::kBool : DType::kF64, mask.doubles());
  a.q.data = q64.data(), a.k.data = k64.data(), a.v.data = v64.data();
  a.mask.data = c.mask == Mask::kNone ? nullptr : mask64.data();
  f.out.data = out64.data(), f.lse = lse64.data();
  reference::attention(f);
  g.of = a;
  g.dout.data = dout64.data();
  g.dq.data = dq64.data(), g.dk.data = dk64.data(), g.dv.data = dv64.data();
  reference::attention_backward(g);
  const double tol = 4 * tolerance(t);
  EXPECT_TRUE(near(out, out64.doubles(), tol)) << "out";
  EXPECT_TRUE(near(lse, lse64.doubles(), st == DType::kF64 ? 1e-12 : 1e-5))
      << "lse";
  EXPECT_TRUE(near(dq, dq64.doubles(), tol)) << "dq";
  EXPECT_TRUE(near(dk, dk64.doubles(), 4 * tol)) << "dk";
  EXPECT_TRUE(near(dv, dv64.doubles(), 4 * tol)) << "dv";
}

TEST(AttentionTest, MatchesTheReference) {
  static const int kv_head[] = {1, 0, 1};
  const Case cases[] = {
      {1, 1, 1, 1, 1, 1, false, 0, Mask::kNone, false},
      {2, 3, 3, 17, 19, 8, false, 0, Mask::kNone, false},
      {2, 4, 2, 33, 33, 16, true, 0, Mask::kNone, true},
      {1, 3, 2, 20, 20, 5, true, 0, Mask::kNone, true, kv_head},
      {1, 2, 1, 150, 300, 16, true, 150, Mask::kNone, true},
      {1, 2, 2, 150, 300, 16, true, 0, Mask::kNone, false},
      {1, 1, 1, 300, 40, 8, true, -100, Mask::kNone, false},
      {1, 1, 1, 5, 6, 8, true, -50, Mask::kNone, false},
      {2, 2, 2, 40, 70, 12, false, 0, Mask::kBool, false},
      {2, 2, 1, 130, 270, 8, false, 0, Mask::kBoolPerKey, true},
      {2, 2, 1, 130, 270, 8, true, 20, Mask::kAdditive, true},
      {1, 2, 2, 40, 600, 32, false, 0, Mask::kAdditiveBroadcast, true},
      {2, 2, 2, 40, 70, 12, true, 0, Mask::kBool, true},
  };
  for (DType t : kFloats)
    for (const Case& c : cases) {
      run(t, c);
      if (HasFailure()) return;
    }
}

// Windows that end inside blocks of keys, hide whole blocks, or hide all keys;
// and caps that scores reach.
TEST(AttentionTest, WindowsAndSoftCaps) {
  static const int kv_head[] = {1, 0, 1};
  const Case cases[] = {
      {2, 4, 2, 33, 33, 16, true, 0, Mask::kNone, true, {}, 1},
      {2, 4, 2, 33, 33, 16, true, 0, Mask::kNone, true, {}, 5},
      {1, 3, 2, 20, 20, 5, true, 0, Mask::kNone, true, kv_head, 7, 0.5},
      {1, 2, 1, 150, 300, 16, true, 150, Mask::kNone, true, {}, 40},
      {1, 1, 1, 90, 900, 16, true, 700, Mask::kNone, false, {}, 300, 1.5},
      {1, 1, 1, 400, 400, 8, true, 0, Mask::kNone, false, {}, 64},
      {1, 1, 1, 300, 300, 8, true, 0, Mask::kNone, false, {}, 299},
      {1, 1, 1, 300, 40, 8, true, -100, Mask::kNone, false, {}, 30},
      {1, 1, 1, 5, 6, 8, true, 50, Mask::kNone, false, {}, 20},
      {1, 1, 1, 1, 600, 8, true, 599, Mask::kNone, false, {}, 100, 2},
      {2, 2, 1, 130, 270, 8, true, 20, Mask::kAdditive, true, {}, 33, 0.8},
      {2, 2, 2, 40, 70, 12, true, 0, Mask::kBool, true, {}, 3, 20},
      {2, 3, 3, 17, 19, 8, false, 0, Mask::kNone, false, {}, 0, 0.3},
      {2, 2, 2, 40, 70, 12, false, 0, Mask::kBool, false, {}, 0, 1},
      {1,
       2,
       2,
       40,
       600,
       32,
       false,
       0,
       Mask::kAdditiveBroadcast,
       true,
       {},
       0,
       0.5},
  };
  for (DType t : kFloats)
    for (const Case& c : cases) {
      run(t, c);
      if (HasFailure()) return;
    }
}

// Blocks of keys outside of all windows are skipped: their keys and values may
// have any values, and their gradients are 0.
TEST(AttentionTest, BlocksOutsideOfTheWindowAreNotRead) {
  const int64_t s = 40, t = 700, d = 8, first = 561;
  for (DType type : kFloats) {
    const Elements q = Elements::random(type, s * d, -1, 1, 1),
                   dout = Elements::random(type, s * d, -1, 1, 2),
                   k = Elements::random(type, t * d, -1, 1, 3),
                   v = Elements::random(type, t * d, -1, 1, 4);
    const auto results = [&](double outside) {
      Elements some_k = k, some_v = v, out(type, s * d), lse(stat_of(type), s);
      Elements dq(type, s * d), dk(type, t * d, 9), dv(type, t * d, 9);
      for (int64_t i = 0; i < first * d; ++i) {
        some_k.set(i, outside);
        some_v.set(i, outside);
      }
      const Strides of_q = strides_of(false, 1, s, d),
                    of_k = strides_of(false, 1, t, d);
      Attention a{.type = type};
      a.b = a.hq = a.hkv = 1;
      a.s = s, a.t = t, a.d = d;
      a.q = {q.data(), of_q};
      a.k = {some_k.data(), of_k}, a.v = {some_v.data(), of_k};
      a.causal = true;
      a.query_offset = t - s;
      a.window = t - s + 1 - first;
      run(AttentionForward{
          .of = a, .out = {out.data(), of_q}, .lse = lse.data()});
      run(AttentionBackward{.of = a,
                            .out = {out.data(), of_q},
                            .dout = {dout.data(), of_q},
                            .lse = lse.data(),
                            .dq = {dq.data(), of_q},
                            .dk = {dk.data(), of_k},
                            .dv = {dv.data(), of_k}});
      return std::array{out, lse, dq, dk, dv};
    };
    const auto some = results(0.5), none = results(NAN);
    for (size_t i = 0; i < some.size(); ++i)
      EXPECT_TRUE(near(none[i], some[i].doubles(), 0)) << i << name(type);
    for (int64_t i = 0; i < first * d; ++i) {
      ASSERT_EQ(none[3][i], 0);
      ASSERT_EQ(none[4][i], 0);
    }
  }
}

// More heads than fit into a kernel's arguments, whose heads of k and v are in
// no order, one of them unused; and heads of more elements than usual.
TEST(AttentionTest, ManyHeadsAndLongOnes) {
  std::vector<int> kv_head;
  for (int h = 0; h < 300; ++h) kv_head.push_back(h * 7 % 11 % 3);
  for (DType t : kFloats) {
    run(t, {1, 300, 4, 3, 5, 2, true, 1, Mask::kNone, true, kv_head});
    run(t, {1, 2, 1, 5, 37, 777, true, 31, Mask::kNone, true});
    run(t, {1, 2, 1, 5, 37, 777, true, 31, Mask::kNone, true, {}, 9, 0.7});
  }
}

TEST(AttentionTest, EmptyParts) {
  for (DType t : kFloats) {
    run(t, {1, 2, 2, 0, 5, 4, false, 0, Mask::kNone, false});
    run(t, {0, 2, 2, 3, 5, 4, false, 0, Mask::kNone, false});
    run(t, {2, 2, 2, 3, 0, 4, false, 0, Mask::kNone, false});
    run(t, {2, 2, 2, 3, 0, 4, true, 0, Mask::kNone, true});
    run(t, {2, 0, 2, 3, 4, 4, true, 0, Mask::kNone, true});
  }
}

// The keys in two parts, joined through their lse, as ring attention does.
TEST(AttentionTest, PartsOfTheKeysCombine) {
  const int64_t s = 9, t = 30, d = 8, cut = 13;
  const Elements q = Elements::random(DType::kF64, s * d, -1, 1, 1);
  Elements k = Elements::random(DType::kF64, t * d, -1, 1, 2);
  Elements v = Elements::random(DType::kF64, t * d, -1, 1, 3);
  Attention a{.type = DType::kF64};
  a.b = a.hq = a.hkv = 1;
  a.s = s, a.d = d;
  a.q = {q.data(), strides_of(false, 1, s, d)};
  auto part = [&](int64_t lo, int64_t hi, Elements& out, Elements& lse) {
    a.t = hi - lo;
    a.k = {k.at(lo * d), strides_of(false, 1, a.t, d)};
    a.v = {v.at(lo * d), strides_of(false, 1, a.t, d)};
    a.causal = true;
    a.query_offset = 20 - lo;
    run(AttentionForward{
        .of = a, .out = {out.data(), a.q.strides}, .lse = lse.data()});
  };
  Elements o(DType::kF64, s * d), o1 = o, o2 = o, l(DType::kF64, s), l1 = l,
                                  l2 = l;
  part(0, t, o, l);
  part(0, cut, o1, l1);
  part(cut, t, o2, l2);
  for (int64_t i = 0; i < s * d; ++i) {
    const int64_t r = i / d;
    EXPECT_NEAR(o[i],
                o1[i] * std::exp(l1[r] - l[r]) + o2[i] * std::exp(l2[r] - l[r]),
                1e-12);
  }
}

TEST(RotaryTest, MatchesTheReferenceAndInverts) {
  const int64_t b = 2, h = 3, s = 11;
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < b * s; ++i) positions.push_back(i * i * 37 % 4001);
  struct Call {
    int64_t d;
    Frequencies of;
    const int64_t* positions = nullptr;
  };
  const Call calls[] = {
      {2, {2}},
      {6, {4}},
      {32, {32}},
      {70, {70}},
      {70, {32}, positions.data()},
      {6, {6}, positions.data()},
      {32, {32, 500000, 4}},
      {32, {32, 500, 8, 1, 4, 256}},
      {40, {32, 10000, 32, 2, 8, 8192}, positions.data()},
  };
  for (DType t : kFloats)
    for (const Call& c : calls)
      for (bool inverse : {false, true}) {
        SCOPED_TRACE(std::string(name(t)) + " call " +
                     std::to_string(&c - calls));
        const int64_t d = c.d, n = b * h * s * d;
        Elements x = Elements::random(t, n);
        Rotary r{.type = t};
        r.b = b, r.h = h, r.s = s, r.d = d;
        r.x.strides = strides_of(true, h, s, d);
        r.out.strides = strides_of(false, h, s, d);
        r.of = c.of;
        r.position_offset = 1000;
        r.positions = c.positions;
        r.inverse = inverse;
        const Elements x64(DType::kF64, x.doubles());
        Elements y(t, n), y64(DType::kF64, n);
        r.x.data = x64.data(), r.out.data = y64.data();
        reference::rotary(r);
        r.x.data = x.data(), r.out.data = y.data();
        run(r);
        EXPECT_TRUE(near(y, y64.doubles()));
        // Rotates back, in place.
        r.x = {r.out.data, r.out.strides};
        r.inverse = !inverse;
        run(r);
        std::vector<double> want =
            gathered(x, {b, h, s, d}, {h * s * d, d, h * d, 1});
        EXPECT_TRUE(near(y, want, 3 * tolerance(t)));
      }
  EXPECT_THROW(run(Rotary{.d = 3, .of = {.dims = 3}}), Error);
  EXPECT_THROW(run(Rotary{.d = 2, .of = {.dims = 4}}), Error);
}

// A call may keep its table of angles for the next one. Calls that differ in
// one thing from the call before, or in nothing, are right.
TEST(RotaryTest, TurnsByItsOwnAngles) {
  struct Call {
    DType type;
    int64_t s, d, offset;
    double theta;
  };
  const Call calls[] = {
      {DType::kF32, 5, 8, 3, 100},  {DType::kF32, 5, 8, 3, 100},
      {DType::kF64, 5, 8, 3, 100},  {DType::kF32, 5, 8, 3, 100},
      {DType::kBF16, 5, 8, 3, 100}, {DType::kF32, 5, 8, 3, 50},
      {DType::kF32, 5, 8, 4, 50},   {DType::kF32, 4, 10, 4, 50},
      {DType::kF32, 10, 4, 4, 50},  {DType::kF32, 9, 4, 4, 50},
  };
  for (const Call& c : calls) {
    const int64_t n = 2 * c.s * c.d;
    const Elements x = Elements::random(c.type, n),
                   x64(DType::kF64, x.doubles());
    Elements y(c.type, n), y64(DType::kF64, n);
    Rotary r{.type = c.type};
    r.b = 1, r.h = 2, r.s = c.s, r.d = c.d;
    r.x.strides = strides_of(false, 2, c.s, c.d);
    r.out.strides = strides_of(false, 2, c.s, c.d);
    r.of = {.dims = c.d, .theta = c.theta};
    r.position_offset = c.offset;
    r.x.data = x64.data(), r.out.data = y64.data();
    reference::rotary(r);
    r.x.data = x.data(), r.out.data = y.data();
    run(r);
    ASSERT_TRUE(near(y, y64.doubles())) << "call " << &c - calls;
  }
}

// A rank that has a part of the sequence computes the same bits as a rank that
// has the whole, wherever the part begins.
TEST(RotaryTest, PartsOfASequenceHaveTheBitsOfTheWhole) {
  constexpr int64_t kS = 50, kD = 8;
  for (DType t : kFloats)
    for (int64_t offset : {-20, 0, 7, 1003}) {
      const Elements x = Elements::random(t, kS * kD),
                     x64(DType::kF64, x.doubles());
      Elements whole(t, kS * kD), y64(DType::kF64, kS * kD);
      Rotary r{.type = t};
      r.b = r.h = 1, r.s = kS, r.d = kD;
      r.of.dims = kD;
      r.x.strides = strides_of(false, 1, kS, kD);
      r.out.strides = strides_of(false, 1, kS, kD);
      r.position_offset = offset;
      r.x.data = x64.data(), r.out.data = y64.data();
      reference::rotary(r);
      r.x.data = x.data(), r.out.data = whole.data();
      run(r);
      EXPECT_TRUE(near(whole, y64.doubles()));
      const std::vector<double> want = whole.doubles();
      for (int64_t begin : {1, 15, 16, 17, 33})
        for (int64_t end : {begin + 1, kS}) {
          const std::vector<double> all = x.doubles();
          const Elements part(
              t, {all.begin() + begin * kD, all.begin() + end * kD});
          Elements y(t, (end - begin) * kD);
          r.s = end - begin, r.position_offset = offset + begin;
          r.x.data = part.data(), r.out.data = y.data();
          run(r);
          EXPECT_TRUE(
              near(y, {want.begin() + begin * kD, want.begin() + end * kD}, 0))
              << name(t) << " offset " << offset << " from " << begin << " to "
              << end;
        }
    }
}

}  // namespace
}  // namespace dtensor::kernels
