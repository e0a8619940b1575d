// SPDX-License-Identifier: Apache-2.0
// Attention to a cache of pages, filled by copy_into(), against a plain loop.
#include "dtensor/ops/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/ops/attention.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/decision.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "dtensor/scopes.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

constexpr int64_t kPage = 4, kSlots = 48, kD = 6;

struct Heads {
  int64_t q, kv;
};

// Three requests. Pages are in no order, and 0 and 1 share their first one.
const std::vector<std::vector<double>> kTable = {
    {7, 2, 9, 4}, {7, 11, 0, 3}, {5, 1, 8, 6}};
Array table(DType t) {
  Array a = zeros_like({3, 4}, t);
  for (int64_t i = 0; i < 12; ++i)
    a.at(i) = kTable[static_cast<size_t>(i / 4)][static_cast<size_t>(i % 4)];
  return a;
}

double slot_of(double request, double position) {
  const auto p = static_cast<size_t>(position);
  return kTable[static_cast<size_t>(request)][p / kPage] * kPage +
         static_cast<double>(p % kPage);
}

// The tokens of a step. Token i belongs to request row[i], or to none if that
// is -1, and attends to the keys up to position[i].
struct Tokens {
  std::vector<double> row, position;
  int64_t size() const { return std::ssize(row); }
  std::vector<double> slots() const {
    std::vector<double> at;
    for (size_t i = 0; i < row.size(); ++i)
      at.push_back(row[i] < 0 ? -1 : slot_of(row[i], position[i]));
    return at;
  }
};

// Attention of these tokens to all slots that their requests have so far.
Array reference(const Array& q, const Array& k, const Array& v,
                const Tokens& of, const PagedAttentionOptions& o) {
  const int64_t h = q.shape[1], d = q.shape[2], g = k.shape[1];
  Array out = zeros_like(q.shape);
  for (int64_t i = 0; i < of.size(); ++i) {
    const double row = of.row[static_cast<size_t>(i)];
    for (int64_t hi = 0; hi < h && row >= 0; ++hi) {
      const auto last =
          static_cast<int64_t>(of.position[static_cast<size_t>(i)]);
      const int64_t first =
          o.window ? std::max(last + 1 - o.window, int64_t{0}) : 0;
      const auto at = [&](const Array& x, int64_t p, int64_t e) {
        const auto slot = static_cast<int64_t>(slot_of(row, double(p)));
        return x.at((slot * g + hi * g / h) * d + e);
      };
      double sum = 0;
      std::vector<double> weight;
      for (int64_t p = first; p <= last; ++p) {
        double x = 0;
        for (int64_t e = 0; e < d; ++e)
          x += q.at((i * h + hi) * d + e) * at(k, p, e);
        x *= o.scale != 0 ? o.scale : 1 / std::sqrt(double(d));
        if (o.soft_cap != 0) x = o.soft_cap * std::tanh(x / o.soft_cap);
        weight.push_back(std::exp(x));
        sum += weight.back();
      }
      for (int64_t p = first; p <= last; ++p)
        for (int64_t e = 0; e < d; ++e)
          out.at((i * h + hi) * d + e) +=
              weight[static_cast<size_t>(p - first)] / sum * at(v, p, e);
    }
  }
  return out;
}

// The heads of x [n, kv, d] that the cache has.
Array cached(const Array& x, const KvHeads& heads) {
  const int64_t n = x.shape[0], g = x.shape[1], d = x.shape[2],
                all = std::ssize(heads.heads);
  Array y = zeros_like({n, all, d});
  for (int64_t i = 0; i < n * all * d; ++i)
    y.at(i) = x.at(
        (i / d / all * g + heads.heads[static_cast<size_t>(i / d % all)]) * d +
        i % d);
  return y;
}

// An axis "cp" splits the pages.
Layout of_cache(const KvHeads& heads, const Mesh& mesh) {
  Layout l = Layout::replicated({kSlots, heads.dim.size(), kD});
  l.dims[1] = heads.dim;
  if (mesh.has_axis("cp"))
    l.dims[0] = Dim(kSlots, Split::over({mesh.axis("cp")}, kPage));
  return l;
}

// A chunk of a prompt, then single tokens among rows of no request, then both.
const Tokens kSteps[] = {{{0, 0, 0, 0, 0, 0, 0}, {0, 1, 2, 3, 4, 5, 6}},
                         {{1, -1, 0, 2}, {4, -1, 7, 0}},
                         {{2, 2, 2, 2, 2, 2, 2, 2, 2, 0, -1, 1},
                          {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, -1, 5}}};

void serve(const std::string& mesh_text, Heads heads, const std::string& axes,
           const PagedAttentionOptions& options, DType t, double tolerance) {
  SCOPED_TRACE(mesh_text + " " + std::to_string(heads.q) + " over " +
               std::to_string(heads.kv) + " in " + std::string(name(t)));
  on_mesh(mesh_text, [&](const Mesh& mesh) {
    const NoGrad no_grad;
    std::vector<int> over;
    for (int a = 0; a < mesh.num_axes(); ++a)
      if (mesh.axis_name(a) == axes) over.push_back(a);
    const KvHeads kv = kv_heads_of(heads.q, heads.kv, Split::over(over), mesh);
    const Shape room{kSlots, kv.dim.size(), kD};
    const DistTensor k = zeros(room, mesh, of_cache(kv, mesh), t),
                     v = zeros(room, mesh, of_cache(kv, mesh), t);
    const Spec* const at_first = k.spec();
    Array all_k = zeros_like({kSlots, heads.kv, kD}), all_v = all_k;
    int seed = 0;
    for (DType index : {DType::kI32, DType::kI64})
      for (const Tokens& step : kSteps) {
        const int64_t n = step.size();
        const Array q = values({n, heads.q, kD}, ++seed),
                    new_k = values({n, heads.kv, kD}, ++seed),
                    new_v = values({n, heads.kv, kD}, ++seed);
        const std::vector<double> slots = step.slots();
        const DistTensor at = put(integers({n}, slots, index), mesh);
        copy_into(k, put(cached(new_k, kv), mesh, "", t), 0, at);
        copy_into(v, put(cached(new_v, kv), mesh, "", t), 0, at);
        for (int64_t i = 0; i < n; ++i)
          for (int64_t e = 0; e < heads.kv * kD; ++e) {
            const auto to = static_cast<int64_t>(slots[size_t(i)]);
            if (to < 0) continue;
            all_k.at(to * heads.kv * kD + e) = new_k.at(i * heads.kv * kD + e);
            all_v.at(to * heads.kv * kD + e) = new_v.at(i * heads.kv * kD + e);
          }
        const DistTensor y = paged_attention(
            put(q, mesh, "", t), k, v, put(table(index), mesh),
            put(integers({n}, step.row, index), mesh),
            put(integers({n}, step.position, index), mesh), options);
        expect_near(array_of(y.full()),
                    reference(q, all_k, all_v, step, options), tolerance,
                    "step " + std::to_string(&step - kSteps));
        EXPECT_EQ(k.spec(), at_first);
      }
  });
}

TEST(PagedAttention, EqualsAPlainLoopOnEveryMesh) {
  const Heads all[] = {{6, 2}, {5, 5}, {8, 1}, {12, 4}, {4, 2}};
  for (const char* mesh : {"tp=1", "tp=2", "tp=3", "tp=5", "tp=7", "dp=2,tp=3",
                           "cp=2", "cp=3", "cp=5", "cp=2,tp=2", "tp=3,cp=2"})
    for (const Heads& heads : all)
      serve(mesh, heads, "tp", {.kv_heads = heads.kv, .page = kPage},
            DType::kF64, 1e-12);
}

TEST(PagedAttention, WindowsSoftCapsAndTypes) {
  const PagedAttentionOptions options = {
      .kv_heads = 2, .page = kPage, .scale = 0.7, .window = 5, .soft_cap = 2};
  for (const char* mesh : {"tp=1", "tp=3", "cp=3"})
    for (const auto& [t, tolerance] :
         {std::pair(DType::kF64, 1e-12), std::pair(DType::kF32, 2e-6),
          std::pair(DType::kBF16, 2e-2), std::pair(DType::kF16, 2e-3)})
      serve(mesh, {6, 2}, "tp", options, t, tolerance);
  // A cache that every rank has in full.
  serve("tp=2", {6, 2}, "", options, DType::kF64, 1e-12);
}

TEST(PagedAttention, HeadsOfKeysThatRanksNeed) {
  const Mesh three = Mesh::parse("tp=3"), two = Mesh::parse("tp=2");
  const KvHeads uneven = kv_heads_of(6, 2, Split::over({0}), three);
  EXPECT_EQ(uneven.heads, (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(uneven.dim, Dim(4, Split::at({0}, {0, 1, 3, 4}, three)));
  const KvHeads even = kv_heads_of(6, 2, Split::over({0}), two);
  EXPECT_EQ(even.heads, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(even.dim, Dim(2, Split::over({0})));
  const KvHeads few = kv_heads_of(2, 1, Split::over({0}), three);
  EXPECT_EQ(few.heads, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(few.dim.largest(three), 1);
  EXPECT_EQ(kv_heads_of(6, 3, {}, two).dim, Dim(3));
  EXPECT_EQ(
      error_of(1, [](const Mesh& m) { kv_heads_of(6, 4, {}, m); }),
      "[kv_heads_of] the number of query heads is 6, and that of key heads "
      "(kv_heads) is 4; write a kv_heads of at least 1 that divides the query "
      "heads");
}

// The first step decides, and the others neither decide nor send anything.
TEST(PagedAttention, LaterStepsAreWarmAndSendNothing) {
  run(3, [](Runtime& rt) {
    const NoGrad no_grad;
    const Mesh mesh = rt.mesh();
    const KvHeads kv = kv_heads_of(6, 2, Split::over({0}), mesh);
    const Shape room{kSlots, kv.dim.size(), kD};
    const DistTensor k = zeros(room, mesh, of_cache(kv, mesh), DType::kF64);
    const DistTensor q = randn({2, 6, kD}, mesh, "S1", DType::kF64, {1});
    const DistTensor new_k = narrow(k, 0, 0, 2) + 1.0;
    CacheUse decisions;
    int64_t plans = 0;
    for (int64_t step = 0; step < 12; ++step) {
      const auto p = static_cast<double>(step);
      const DistTensor row = put(integers({2}, {2, step % 3 ? 1.0 : -1}), mesh),
                       at = put(integers({2}, {p, p}), mesh),
                       slots = put(integers({2}, {slot_of(2, p), -1}), mesh),
                       pages = put(table(DType::kI64), mesh);
      rt.context().record = true;
      copy_into(k, new_k, 0, slots);
      const DistTensor y =
          paged_attention(q, k, k, pages, row, at,
                          {.kv_heads = 2, .page = kPage, .window = step});
      EXPECT_TRUE(rt.context().events.empty());
      EXPECT_EQ(y.spec(), q.spec());
      if (step == 0) {
        decisions = decision_use(rt.context());
        plans = rt.context().planner.plan_use().misses;
      }
      EXPECT_EQ(decision_use(rt.context()).misses, decisions.misses);
      EXPECT_EQ(rt.context().planner.plan_use().misses, plans);
    }
  });
}

// Ranks that share the pages exchange one number for each query and head. The
// result stays a partial sum, which is reduced later like any other.
TEST(PagedAttention, SplitPagesGivePartialSums) {
  run(6, [](Runtime& rt) {
    const NoGrad no_grad;
    const Mesh mesh = rt.mesh({{"cp", 3}, {"tp", 2}});
    const KvHeads kv = kv_heads_of(6, 2, Split::over({1}), mesh);
    const DistTensor k = zeros({kSlots, kv.dim.size(), kD}, mesh,
                               of_cache(kv, mesh), DType::kF64);
    const DistTensor q = randn({4, 6, kD}, mesh, "R,S1", DType::kF64, {1});
    const auto index = [&](Shape shape, std::vector<double> at) {
      return put(integers(std::move(shape), std::move(at)), mesh);
    };
    const DistTensor pages = index({2, 3}, {7, 1, 11, 4, 0, -1}),
                     row = index({4}, {0, 0, 1, -1}),
                     position = index({4}, {8, 9, 5, -1});
    rt.context().record = true;
    rt.context().events.clear();
    const DistTensor y = paged_attention(q, k, k, pages, row, position,
                                         {.kv_heads = 2, .page = kPage});
    EXPECT_EQ(y.spec()->to_string(), "f64[4, 6, 6](P,S1)");
    ASSERT_EQ(rt.context().events.size(), 1u);
    EXPECT_EQ(rt.context().events[0].predicted, 2 * 4 * 3 * 8);
    EXPECT_EQ(rt.context().events[0].counted, 2 * 4 * 3 * 8);
  });
}

// -1 in the table stands for a page whose keys a window has left behind.
TEST(PagedAttention, PagesThatAreGone) {
  on_mesh("tp=2", [](const Mesh& mesh) {
    const NoGrad no_grad;
    const DistTensor k = put(values({8, 2, kD}, 1), mesh, "S1"),
                     q = put(values({1, 2, kD}, 2), mesh, "S1");
    const auto with = [&](std::vector<double> pages) {
      return array_of(
          paged_attention(q, k, k, put(integers({1, 2}, pages), mesh),
                          put(integers({1}, {0}), mesh),
                          put(integers({1}, {6}), mesh),
                          {.kv_heads = 2, .page = kPage, .window = 3})
              .full());
    };
    expect_near(with({-1, 1}), with({0, 1}), 0, "behind the window");
    expect_near(with({-1, -1}), zeros_like({1, 2, kD}), 0, "no keys");
  });
}

TEST(PagedAttention, Errors) {
  struct Call {
    const char* what;
    std::string k = "S1", v = "S1";
    Shape q = {2, 4, 2}, keys = {8, 2, 2}, rows = {2};
    double page = 0, row = 0, position = 3;
    PagedAttentionOptions options = {.kv_heads = 2, .page = kPage};
    bool gradient = false;
  };
  const auto error = [](const Call& c) {
    return error_of(2, [c](const Mesh& m) {
      DistTensor q = put(values(c.q, 1), m, "S1");
      if (c.gradient) q.set_requires_grad();
      paged_attention(q, put(values(c.keys, 1), m, c.k),
                      put(values(c.keys, 1), m, c.v),
                      put(integers({1, 2}, {1, c.page}), m),
                      put(integers(c.rows, {-1, c.row}), m),
                      put(integers({2}, {-1, c.position}), m), c.options);
    });
  };
  EXPECT_EQ(error({""}), "no error");
  const std::string types = error_of(2, [](const Mesh& m) {
    const auto cache = cast(put(values({8, 2, 2}, 1), m, "S1"), DType::kF32);
    paged_attention(
        put(values({2, 4, 2}, 1), m, "S1"), cache, cache,
        put(integers({1, 2}, {1, 0}), m), put(integers({2}, {-1, 0}), m),
        put(integers({2}, {-1, 3}), m), {.kv_heads = 2, .page = kPage});
  });
  EXPECT_EQ(types.substr(0, 18), "[paged_attention] ");
  EXPECT_NE(types.find("f64"), types.npos) << types;
  EXPECT_NE(types.find("f32"), types.npos) << types;
  EXPECT_EQ(
      error({"", "S0@0|3|8", "S0@0|3|8"}),
      "[paged_attention] k is f64[8, 2, 2](S0@0|3|8) and v is f64[8, 2, "
      "2](S0@0|3|8), for q with heads = 4 and kv_heads = 2; pass both in one "
      "type and layout as [slots, 2, d], not partial, with the heads split as "
      "kv_heads_of() says, d whole, and the slots whole or split in pages of "
      "4");
  EXPECT_EQ(error({"", "S0", "S0"}), "no error");
  for (const char* v : {"R", "P", "S2"})
    EXPECT_NE(error({"", "S1", v}).find("kv_heads_of()"), std::string::npos);
  Call call{""};
  call.keys = {8, 4, 2};  // more heads than kv_heads_of() says
  EXPECT_NE(error(call).find("layout as [slots, 2, d]"), std::string::npos);
  call = {""};
  call.options.page = 3;
  EXPECT_EQ(
      error(call),
      "[paged_attention] k has shape [8, 2, 2], and page is 3; write a page of "
      "at least 1, and make the first size of k and v a multiple of it");
  call.options = {.kv_heads = 2, .page = kPage, .window = -1};
  EXPECT_EQ(error(call),
            "[paged_attention] window is -1; write the number of keys that a "
            "query attends to, or 0 (no window)");
  call.options = {.kv_heads = 2, .page = kPage, .soft_cap = HUGE_VAL};
  EXPECT_EQ(error(call),
            "[paged_attention] soft_cap is inf; write a finite number above 0 "
            "to bound the scores, or 0 (no cap)");
  call = {""};
  call.q = {2, 0, 2}, call.keys = {8, 0, 2};
  EXPECT_NE(error(call).find("q has shape [2, 0, 2]"), std::string::npos);
  call = {""};
  call.keys = {0, 2, 2}, call.options.page = int64_t{1} << 30;
  EXPECT_EQ(error(call),
            "[paged_attention] pages has shape [1, 2], and a page 1073741824 "
            "positions; pass fewer than 2^31 positions for each request");
  call = {""};
  call.rows = {2, 1};
  EXPECT_EQ(error(call),
            "[paged_attention] q has shape [2, 4, 2], pages [1, 2], row [2, 1] "
            "and position [2]; pass pages as [requests, m], and row and "
            "position as [2]");
  call = {""};
  call.q = {2, 4, 3};
  EXPECT_NE(error(call).find("pass q as [t, heads, d]"), std::string::npos);
  call = {""};
  call.gradient = true;
  EXPECT_EQ(error(call),
            "[paged_attention] f64[2, 4, 2](S1) requires a gradient, which "
            "paged_attention() does not compute; call it inside a NoGrad "
            "scope, or call attention()");
  const auto missing = [](const char* what, int id, int n) {
    return fmt::format(
        "[paged_attention] {} {} is not in [0, {}); write one that exists, or "
        "-1 for none",
        what, id, n);
  };
  call = {""};
  call.page = 2;
  EXPECT_EQ(error(call), missing("page", 2, 2));
  call = {""};
  call.row = 1;
  EXPECT_EQ(error(call), missing("row", 1, 1));
  call = {""};
  call.position = 8;
  EXPECT_EQ(error(call), missing("position", 8, 8));
}

}  // namespace
}  // namespace dtensor::testing
