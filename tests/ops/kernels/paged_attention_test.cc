// SPDX-License-Identifier: Apache-2.0
// Attention to pages of a cache, against a plain loop.
#include "dtensor/ops/kernels/paged_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "dtensor/ops/kernels/operands.h"
#include "tests/ops/kernels/testing.h"

namespace dtensor::kernels {
namespace {

constexpr int64_t kRequests = 4, kPages = 24, kEach = 12;

struct Case {
  int64_t hq, hkv, d, page;
  std::vector<int64_t> row, position;
  int64_t window = 0;
  double soft_cap = 0;
  // The numbers of heads on all ranks together, and the first heads of this
  // call.
  int64_t heads = 0, kv_heads = 0, first_head = 0, first_kv_head = 0;
  // The pages of this call.
  int64_t first_page = 0, pages = kPages;
  // Elements before the first head of q, k and v, and after each head of k and
  // v.
  int64_t skew[3] = {0, 0, 0}, gap = 0;
};

// The pages of each request, in no order. Requests 1 and 2 share their first
// two pages; request 3 has no pages in the middle (negative numbers).
std::vector<int64_t> pages() {
  std::vector<int64_t> list;
  for (int64_t r = 0; r < kRequests; ++r)
    for (int64_t p = 0; p < kEach; ++p)
      list.push_back(r == 2 && p < 2 ? list[static_cast<size_t>(kEach + p)]
                     : r == 3 && p >= 2 && p < 4
                         ? -1 - p % 2 * 1000
                         : (r * 7 + p * 5 + 3) % kPages);
  return list;
}

// Sets `lse` to those of the queries, as the kernel does. Heads begin at
// `skew`.
std::vector<double> reference(const PagedAttention& a, const Elements& q,
                              const Elements& k, const Elements& v,
                              const int64_t (&skew)[3],
                              std::vector<double>& lse) {
  const auto at = [&](const HeadsIn& x, int64_t i, int64_t h, int64_t e) {
    return skew[&x == &a.q   ? 0
                : &x == &a.k ? 1
                             : 2] +
           h * x.strides[1] + i * x.strides[2] + e;
  };
  lse.assign(static_cast<size_t>(a.hq * a.t), -HUGE_VAL);
  std::vector<double> out(static_cast<size_t>(a.t * a.hq * a.d));
  for (int64_t i = 0; i < a.t; ++i)
    for (int64_t h = 0; h < a.hq && a.row[i] >= 0; ++h) {
      const int64_t g =
          (a.groups.first_head + h) * a.groups.kv_heads / a.groups.heads -
          a.groups.first_kv_head;
      std::vector<double> score;
      std::vector<int64_t> of;
      double sum = 0;
      for (int64_t p = 0; p <= a.position[i]; ++p) {
        if (a.window > 0 && p <= a.position[i] - a.window) continue;
        const int64_t page = a.pages[a.row[i] * a.pages_each + p / a.page];
        if (page < a.first_page || page >= a.first_page + a.slots / a.page)
          continue;
        const int64_t slot = (page - a.first_page) * a.page + p % a.page;
        double x = 0;
        for (int64_t e = 0; e < a.d; ++e)
          x += q[at(a.q, i, h, e)] * k[at(a.k, slot, g, e)];
        x *= a.scale;
        if (a.soft_cap != 0) x = a.soft_cap * std::tanh(x / a.soft_cap);
        score.push_back(x);
        of.push_back(slot);
      }
      for (double x : score) sum += std::exp(x);
      lse[static_cast<size_t>(h * a.t + i)] = std::log(sum);
      for (size_t j = 0; j < of.size(); ++j)
        for (int64_t e = 0; e < a.d; ++e)
          out[static_cast<size_t>((i * a.hq + h) * a.d + e)] +=
              std::exp(score[j]) / sum * v[at(a.v, of[j], g, e)];
    }
  return out;
}

void check(DType t, const Case& c) {
  const std::vector<int64_t> table = pages();
  PagedAttention a{.type = t};
  a.t = std::ssize(c.row), a.hq = c.hq, a.hkv = c.hkv, a.d = c.d;
  a.page = c.page, a.slots = c.pages * c.page, a.first_page = c.first_page;
  a.groups = {c.heads ? c.heads : c.hq, c.heads ? c.kv_heads : c.hkv,
              c.first_head, c.first_kv_head};
  a.requests = kRequests, a.pages_each = kEach, a.pages = table.data();
  a.row = c.row.data(), a.position = c.position.data();
  a.scale = 1 / std::sqrt(static_cast<double>(c.d));
  a.window = c.window, a.soft_cap = c.soft_cap;
  const int64_t nq = a.t * a.hq * a.d, pitch = a.d + c.gap,
                nk = a.slots * a.hkv * pitch;
  Elements q = Elements::random(t, nq + c.skew[0], -2, 2, 1),
           k = Elements::random(t, nk + c.skew[1], -2, 2, 2),
           v = Elements::random(t, nk + c.skew[2], -1, 1, 3);
  Elements out(t, nq, 9);
  a.q = {q.at(c.skew[0]), {0, a.d, a.hq * a.d, 1}};
  a.out = {out.data(), {0, a.d, a.hq * a.d, 1}};
  a.k = {k.at(c.skew[1]), {0, pitch, a.hkv * pitch, 1}};
  a.v = {v.at(c.skew[2]), {0, pitch, a.hkv * pitch, 1}};
  Elements lse(stat_of(t), a.hq * a.t, 9);
  a.lse = lse.data();
  run(a);
  std::vector<double> want_lse;
  EXPECT_TRUE(
      near(out, reference(a, q, k, v, c.skew, want_lse), 4 * tolerance(t)));
  for (size_t i = 0; i < want_lse.size(); ++i)
    if (const double got = lse[static_cast<int64_t>(i)]; got != want_lse[i]) {
      EXPECT_NEAR(got, want_lse[i], 5e-5) << i;
    }
}

std::vector<int64_t> range(int64_t from, int64_t n) {
  std::vector<int64_t> list;
  for (int64_t i = 0; i < n; ++i) list.push_back(from + i);
  return list;
}
std::vector<int64_t> repeated(int64_t value, int64_t n) {
  return std::vector<int64_t>(static_cast<size_t>(n), value);
}

TEST(PagedAttentionTest, MatchesTheReference) {
  // One query of each request, and rows that belong to none.
  const std::vector<int64_t> rows = {1, 0, -1, 2, 3, -1},
                             positions = {40, 0, 7, 61, 94, -1};
  const Case cases[] = {
      {1, 1, 1, 1, {0}, {0}},
      {4, 2, 16, 8, rows, positions},
      {6, 2, 20, 8, rows, positions, 10},
      {4, 4, 64, 8, rows, positions, 0, 5},
      {3, 2, 33, 8, rows, positions, 0, 0, 6, 2, 2, 0},
      {2, 1, 33, 8, rows, positions, 0, 0, 6, 2, 4, 1},
      {5, 1, 8, 16, {3, 3, 3}, {150, 151, 152}, 7, 3},
      // Chunks of a prompt.
      {4, 2, 16, 8, repeated(1, 70), range(20, 70)},
      {4, 1, 24, 8, repeated(3, 41), range(30, 41), 12, 4},
      {2, 2, 16, 33, repeated(2, 390), range(0, 390)},
      {300, 3, 4, 8, repeated(0, 6), {30, 29, 2, 31, 95, 0}},
      {0, 0, 4, 8, rows, positions},
      {2, 2, 4, 8, {}, {}},
      // Only some of the pages, so that a query may have no key.
      {4, 2, 16, 8, rows, positions, 0, 0, 0, 0, 0, 0, 7, 9},
      {4, 1, 24, 8, repeated(1, 41), range(30, 41), 12, 4, 0, 0, 0, 0, 15, 9},
      {2, 1, 8, 4, repeated(0, 6), range(0, 6), 0, 0, 0, 0, 0, 0, 20, 4},
      {2, 1, 8, 4, rows, positions, 0, 0, 0, 0, 0, 0, 20, 0},
  };
  for (DType t : kFloats)
    for (const Case& c : cases) {
      SCOPED_TRACE(std::string(name(t)) + " case " +
                   std::to_string(&c - cases));
      check(t, c);
    }
}

// Keys in several parts, and heads of keys that 1 to 8 query heads share.
TEST(PagedAttentionTest, GroupsOfHeadsAreTheReference) {
  const std::vector<int64_t> rows = {1, 0, -1, 2, 3, -1},
                             positions = {100, 0, 7, 64, 190, -1};
  for (DType t : kFloats)
    for (int64_t d : {40, 64, 80, 128, 256})
      for (int64_t group : {1, 3, 4, 8}) {
        SCOPED_TRACE(std::string(name(t)) + " d " + std::to_string(d) +
                     ", groups of " + std::to_string(group));
        check(t, {2 * group, 2, d, 16, rows, positions});
      }
}

TEST(PagedAttentionTest, RowsMayBeginAnywhere) {
  const std::vector<int64_t> rows = {1, -1, 3}, positions = {100, 7, 190};
  for (DType t : kFloats)
    for (int64_t group : {1, 3, 8})
      for (int which = 0; which < 4; ++which) {
        SCOPED_TRACE(std::string(name(t)) + " groups of " +
                     std::to_string(group) + ", " + std::to_string(which));
        check(t, {.hq = 2 * group,
                  .hkv = 2,
                  .d = 32,
                  .page = 16,
                  .row = rows,
                  .position = positions,
                  .skew = {which == 0, which == 1, which == 2},
                  .gap = which == 3});
      }
}

// More keys, or more queries, than the kernel computes at once.
TEST(PagedAttentionTest, LongTextsAreTheReference) {
  const Case cases[] = {
      {4, 2, 8, 400, {0, 3, 1}, {4790, 4799, 63}},
      {2, 1, 8, 400, {0, 3, 1}, {4790, 4799, 63}, 4500, 2},
      {2, 1, 8, 512, {0, 2}, {6143, 4200}},
      {16, 1, 64, 400, repeated(1, 300), repeated(9, 300)},
  };
  for (DType t : kFloats)
    for (const Case& c : cases) {
      SCOPED_TRACE(std::string(name(t)) + " case " +
                   std::to_string(&c - cases));
      check(t, c);
    }
}

// The bits of a query's result do not depend on the other requests.
TEST(PagedAttentionTest, OtherRequestsChangeNoBits) {
  const std::vector<int64_t> table = pages();
  for (DType t : kFloats) {
    const int64_t d = 40, h = 4, slots = kPages * 8, many = 1030;
    Elements q = Elements::random(t, many * h * d);
    std::vector<int64_t> position, row;
    for (int64_t i = 0; i < many; ++i) {
      position.push_back(i == 0 ? 50 : i == 1 ? 90 : 17);
      row.push_back(i % 3);
    }
    const Elements k = Elements::random(t, slots * 2 * d, -2, 2, 2),
                   v = Elements::random(t, slots * 2 * d, -2, 2, 3);
    const auto attend = [&](const std::vector<int64_t>& row, int64_t first) {
      Elements out(t, std::ssize(row) * h * d);
      run(PagedAttention{.type = t,
                         .t = std::ssize(row),
                         .hq = h,
                         .hkv = 2,
                         .slots = slots,
                         .d = d,
                         .q = {q.at(first * h * d), {0, d, h * d, 1}},
                         .k = {k.data(), {0, d, 2 * d, 1}},
                         .v = {v.data(), {0, d, 2 * d, 1}},
                         .out = {out.data(), {0, d, h * d, 1}},
                         .groups = {h, 2},
                         .page = 8,
                         .requests = kRequests,
                         .pages_each = kEach,
                         .pages = table.data(),
                         .row = row.data(),
                         .position = position.data() + first});
      return out.doubles();
    };
    const std::vector<double> alone = attend({1}, 1);
    for (const auto& rows : {std::vector<int64_t>{0, 1, 2}, row}) {
      const std::vector<double> all = attend(rows, 0);
      EXPECT_EQ(alone, std::vector<double>(all.begin() + h * d,
                                           all.begin() + 2 * h * d));
    }
  }
}

}  // namespace
}  // namespace dtensor::kernels
