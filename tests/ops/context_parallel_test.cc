// SPDX-License-Identifier: Apache-2.0
// Attention whose queries, keys and values are split along the sequence,
// computed in a ring, or after an all-to-all that splits heads instead.
#include "dtensor/allocator.h"
#include "dtensor/comm_event.h"
#include "dtensor/ops/attention.h"
#include "dtensor/placement/owned.h"
#include "dtensor/rank_context.h"
#include "dtensor/scopes.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

struct Sizes {
  int64_t b, s, h, g, d;
};

// The options of attention() that only some of these tests set.
struct More {
  int64_t window = 0;
  double soft_cap = 0;
};

// Self-attention [b, s, h, d] by its definition; `documents` may be null.
Array reference(const Array& q, const Array& k, const Array& v, bool causal,
                const Array* documents, const More& more) {
  const int64_t b = q.shape[0], s = q.shape[1], h = q.shape[2], d = q.shape[3];
  const int64_t g = k.shape[2];
  Array out = zeros_like(q.shape);
  for (int64_t bi = 0; bi < b; ++bi)
    for (int64_t hi = 0; hi < h; ++hi)
      for (int64_t i = 0; i < s; ++i) {
        std::vector<double> weight;
        double sum = 0;
        for (int64_t j = 0; j < s; ++j) {
          double x = 0;
          for (int64_t c = 0; c < d; ++c)
            x += q.at(((bi * s + i) * h + hi) * d + c) *
                 k.at(((bi * s + j) * g + hi * g / h) * d + c);
          const bool may = (!causal || j <= i) &&
                           (more.window == 0 || j > i - more.window) &&
                           (!documents || documents->at(bi * s + i) ==
                                              documents->at(bi * s + j));
          x *= 0.6;
          if (more.soft_cap != 0)
            x = more.soft_cap * std::tanh(x / more.soft_cap);
          weight.push_back(may ? std::exp(x) : 0);
          sum += weight.back();
        }
        for (int64_t j = 0; j < s; ++j)
          for (int64_t c = 0; c < d; ++c)
            out.at(((bi * s + i) * h + hi) * d + c) +=
                weight[static_cast<size_t>(j)] / sum *
                v.at(((bi * s + j) * g + hi * g / h) * d + c);
      }
  return out;
}

Problem problem(const Sizes& n, bool causal, ContextParallel how,
                const Array* documents = nullptr, const More& more = {}) {
  Problem p;
  p.inputs = {values({n.b, n.s, n.h, n.d}, 1), values({n.b, n.s, n.g, n.d}, 2),
              values({n.b, n.s, n.g, n.d}, 3)};
  if (documents) p.inputs.push_back(*documents);
  p.function = [=](const auto& x) {
    AttentionOptions options{causal, 0.6, how};
    options.window = more.window;
    options.soft_cap = more.soft_cap;
    if (x.size() > 3) options.documents = x[3];
    return attention(x[0], x[1], x[2], options);
  };
  p.reference = [=](const auto& x) {
    return reference(x[0], x[1], x[2], causal, x.size() > 3 ? &x[3] : nullptr,
                     more);
  };
  return p;
}

// The text of the layout of [b, s, heads, d] with s in zig-zag order over the
// first axis, and heads split over the second axis, if there is one.
std::string zig(const std::string& mesh_text, const Shape& shape) {
  const Mesh mesh = Mesh::parse(mesh_text);
  Layout layout = Layout::replicated(shape);
  layout.dims[1] = zigzag(shape[1], mesh, 0);
  if (mesh.num_axes() > 1 && shape.size() > 2)
    layout.dims[2] = Dim(shape[2], Split::over({1}));
  return layout.to_string(mesh);
}

Case zigzag_case(const std::string& mesh, const Sizes& n, bool documents) {
  const std::string kv = zig(mesh, {n.b, n.s, n.g, n.d});
  Case c{mesh, {zig(mesh, {n.b, n.s, n.h, n.d}), kv, kv}};
  if (documents) c.layouts.push_back(zig(mesh, {n.b, n.s}));
  return c;
}

constexpr ContextParallel kAll[] = {
    ContextParallel::kAuto, ContextParallel::kRing, ContextParallel::kAllToAll};

TEST(ContextParallelTest, EveryOrderOfTheSequence) {
  const Sizes n{2, 7, 4, 2, 2};
  for (ContextParallel how : kAll)
    for (bool causal : {false, true}) {
      SCOPED_TRACE(name(how));
      check_problem(problem(n, causal, how),
                    {{"cp=2", {"S1", "S1", "S1"}},
                     {"cp=3", {"S1", "S1", "S1"}},
                     {"cp=4", {"S1@0|1|1|5|7", "S1", "S1"}},
                     zigzag_case("cp=2", n, false),
                     zigzag_case("cp=3", n, false),
                     zigzag_case("cp=4", n, false),
                     {"cp=2", {zig("cp=2", {2, 7, 4, 2}), "S1", "S1"}},
                     {"cp=2", {"R", "S1", "S1"}},
                     {"cp=2", {"S1", "R", "S1"}},
                     {"cp=2", {"P", "S1", "P"}},
                     // v has another layout than k.
                     {"cp=3", {"S1", "S1", "P"}},
                     {"cp=2", {"S1", "S1", "S0"}},
                     {"cp=2", {"S1", "S1", "S2"}},
                     {"cp=2", {"S1", "S1", "R"}},
                     {"a=2,b=2", {"S1,S1", "S1,S1", "S1,S1"}},
                     {"a=2,b=2", {"S1,S1", "S1,R", "S1,R"}},
                     {"dp=2,cp=2", {"S0,S1", "S0,S1", "S0,S1"}}});
    }
}

// Windows of one key, of less than a block, and of several blocks.
TEST(ContextParallelTest, WindowsAndSoftCaps) {
  const Sizes n{1, 9, 4, 2, 2};
  for (ContextParallel how : kAll) {
    SCOPED_TRACE(name(how));
    for (const More& more : {More{1}, More{3, 0.5}, More{6}}) {
      SCOPED_TRACE(more.window);
      check_problem(problem(n, true, how, nullptr, more),
                    {{"cp=2", {"S1", "S1", "S1"}},
                     {"cp=4", {"S1", "S1", "S1"}},
                     {"cp=4", {"S1@0|1|1|5|9", "S1", "S1"}},
                     zigzag_case("cp=3", n, false),
                     zigzag_case("cp=4", n, false),
                     zigzag_case("cp=2,tp=3", n, false),
                     {"cp=3", {"S1", "S1", "R"}},
                     {"a=2,b=2", {"S1,S1", "S1,S1", "S1,S1"}},
                     {"a=2,b=2", {"S1,S1", "S1,R", "S1,R"}}});
    }
    check_problem(problem(n, false, how, nullptr, {0, 0.5}),
                  {{"cp=4", {"S1", "S1", "S1"}}});
    const Array ids = integers({1, 9}, {5, 5, 5, 5, 5, 2, 2, 2, 5});
    check_problem(problem(n, true, how, &ids, {4, 0.7}),
                  {{"cp=1", {"R", "R", "R", "R"}},
                   {"cp=2", {"S1", "S1", "S1", "S1"}},
                   zigzag_case("cp=3", n, true)});
  }
}

// More ranks than heads of k and v, or than any heads; heads split unevenly.
TEST(ContextParallelTest, WithHeadsSplitToo) {
  const Sizes n{1, 6, 6, 2, 2};
  for (ContextParallel how : kAll) {
    SCOPED_TRACE(name(how));
    check_problem(problem(n, true, how), {zigzag_case("cp=2,tp=2", n, false),
                                          zigzag_case("cp=2,tp=3", n, false),
                                          zigzag_case("cp=2,tp=4", n, false),
                                          zigzag_case("cp=3,tp=2", n, false)});
    const Sizes few{1, 5, 1, 1, 2};
    check_problem(problem(few, true, how),
                  {zigzag_case("cp=3", few, false),
                   {"cp=2,tp=2", {"S1,S2", "S1,S2", "S1,S2"}}});
  }
}

TEST(ContextParallelTest, RanksWithoutAPart) {
  for (ContextParallel how : kAll)
    for (int64_t s : {1, 2, 3}) {
      const Sizes n{1, s, 2, 1, 2};
      SCOPED_TRACE(name(how));
      check_problem(problem(n, true, how), {{"cp=4", {"S1", "S1", "S1"}},
                                            zigzag_case("cp=4", n, false)});
    }
}

TEST(ContextParallelTest, Documents) {
  const Sizes n{2, 7, 2, 1, 2};
  // Ids 5 and 0 appear in two places of their rows.
  const Array ids =
      integers({2, 7}, {5, 5, 5, -1, -1, 5, 5, 0, 1, 1, 1, 1, 1, 0});
  for (ContextParallel how : kAll)
    for (bool causal : {false, true}) {
      SCOPED_TRACE(name(how));
      check_problem(problem(n, causal, how, &ids),
                    {{"cp=1", {"R", "R", "R", "R"}},
                     {"cp=2", {"S1", "S1", "S1", "S1"}},
                     {"cp=2", {"S1", "S1", "S1", "R"}},
                     zigzag_case("cp=2", n, true),
                     zigzag_case("cp=3", n, true)});
    }
}

// The mask of document ids is made for a limited number of queries at once.
// With more queries, the results are still those of one whole mask.
TEST(ContextParallelTest, LongDocuments) {
  const int64_t s = 600;
  Array ids = zeros_like({1, s}, DType::kI32);
  Array may = zeros_like({s, s}, DType::kBool);
  for (int64_t i = 0; i < s; ++i) ids.at(i) = static_cast<double>(i / 130 % 3);
  for (int64_t i = 0; i < s * s; ++i)
    may.at(i) = ids.at(i / s) == ids.at(i % s);
  std::vector<Array> want;
  for (const std::string mesh : {"cp=1", "cp=2", "cp=3"})
    on_mesh(mesh, [&](const Mesh& m) {
      const std::string at = zig(mesh, {1, s, 2, 2});
      std::vector<DistTensor> x;
      for (int i = 0; i < 3; ++i)
        x.push_back(put(values({1, s, 2, 2}, i), m, at).set_requires_grad());
      const auto found = [&](const DistTensor& y) {
        std::vector<Array> all{array_of(y.full())};
        for (const DistTensor& g : grad(sum(square(y)), x))
          all.push_back(array_of(g.full()));
        return all;
      };
      AttentionOptions options{true, 0.6, ContextParallel::kRing};
      if (m.num_ranks() == 1)
        want = found(attention(x[0], x[1], x[2], options, put(may, m)));
      options.documents = put(ids, m);
      const std::vector<Array> got =
          found(attention(x[0], x[1], x[2], options));
      for (size_t i = 0; i < want.size(); ++i)
        expect_near(got[i], want[i], 1e-12, mesh);
    });
}

// A mask of the whole square, of bools and of numbers that want a gradient.
TEST(ContextParallelTest, Masks) {
  Array may = zeros_like({7, 7}, DType::kBool);
  for (int64_t i = 0; i < 49; ++i) may.at(i) = i % 3 != 0;
  for (int64_t j = 0; j < 7; ++j) may.at(7 * 2 + j) = 0;  // one without keys
  for (const Array& mask : {may, values({1, 7, 7}, 4), values({7}, 5)}) {
    std::vector<Array> found;
    for (const std::string mesh : {"cp=1", "cp=2", "cp=3"})
      on_mesh(mesh, [&](const Mesh& m) {
        const Problem p = problem({1, 7, 2, 1, 2}, true, {});
        std::vector<DistTensor> x;
        for (const Array& a : p.inputs)
          x.push_back(put(a, m, zig(mesh, a.shape)).set_requires_grad());
        DistTensor added = put(mask, m);
        if (mask.dtype == DType::kF64) x.push_back(added.set_requires_grad());
        DistTensor y = attention(x[0], x[1], x[2],
                                 {true, 0.6, ContextParallel::kRing}, added);
        std::vector<Array> now{array_of(y.full())};
        for (const DistTensor& g : grad(sum(square(y)), x))
          now.push_back(array_of(g.full()));
        // Without the mask's gradient, the fused backward kernel is used.
        for (const DistTensor& g :
             grad(sum(square(attention(x[0], x[1], x[2],
                                       {true, 0.6, ContextParallel::kRing},
                                       added.detach()))),
                  {x[0], x[1], x[2]}))
          now.push_back(array_of(g.full()));
        if (m.num_ranks() == 1) found = now;
        for (size_t i = 0; i < now.size(); ++i)
          expect_near(now[i], found[i], 1e-12, mesh);
      });
  }
}

TEST(ContextParallelTest, Types) {
  const std::string at = zig("x=2", {2, 6, 2, 4});
  for (ContextParallel how : kAll)
    check_types(problem({2, 6, 2, 2, 4}, true, how), {at, at, at});
}

// [1, s, heads, 4] of f64, split along the sequence.
DistTensor input_on(const std::string& mesh, int64_t s, int64_t heads, int seed,
                    bool zigzagged = true) {
  const Shape shape{1, s, heads, 4};
  return put(values(shape, seed), Mesh::parse(mesh),
             zigzagged ? zig(mesh, shape) : "S1")
      .set_requires_grad();
}

// The bytes that each pass sends for tensors of input_on() on p ranks, and the
// number of collectives.
struct Sent {
  int64_t forward = 0, backward = 0, events = 0;
};
Sent sent(int64_t p, int64_t s, int64_t h, int64_t g, ContextParallel how,
          bool dry, bool zigzagged = true, int64_t window = 0) {
  const std::string text = "cp=" + std::to_string(p);
  Sent all;
  RunOptions options;
  options.world = p;
  options.dry_run = dry;
  run(options, [&](Runtime& rt) {
    const DistTensor q = input_on(text, s, h, 1, zigzagged),
                     k = input_on(text, s, g, 2, zigzagged),
                     v = input_on(text, s, g, 3, zigzagged);
    rt.context().record = true;
    int64_t events = 0;
    const auto bytes = [&] {
      int64_t predicted = 0, counted = 0;
      for (const CommEvent& e : rt.context().events) {
        predicted += e.predicted;
        counted += e.counted;
        EXPECT_TRUE(e.op == "attention" || e.op == "attention_backward" ||
                    e.op == "grad")
            << e.op;
        ++events;
      }
      EXPECT_EQ(counted, dry ? 0 : predicted);
      rt.context().events.clear();
      return predicted;
    };
    AttentionOptions attend{true, 0, how};
    attend.window = window;
    DistTensor y = attention(q, k, v, attend);
    EXPECT_EQ(y.spec()->layout(), q.spec()->layout());
    const int64_t forward = bytes();
    const DistTensor seed = DistTensor::wrap(y.local().clone(), y.spec());
    for (const DistTensor& x : grad(y, {q, k, v}, {.cotangent = seed}))
      EXPECT_EQ(x.size(1), s);
    const int64_t backward = bytes();
    if (dry || rt.rank() == 0) all = {forward, backward, events};
  });
  return all;
}

// Forward, a rank sends p-1 blocks of keys and of values. Backward, it sends
// these again, and their gradients, which return to their owners.
TEST(ContextParallelTest, ARingSendsItsBlocks) {
  for (int64_t p : {2, 3, 4})
    for (bool dry : {false, true}) {
      const int64_t s = 12 * p, g = 2;
      const int64_t block = s / p * g * 4 * 8;
      const Sent ring = sent(p, s, 4, g, ContextParallel::kRing, dry);
      EXPECT_EQ(ring.forward, 2 * (p - 1) * block) << p;
      EXPECT_EQ(ring.backward, 4 * (p - 1) * block) << p;
    }
}

// Query i of a block of 12 attends to keys from i + 1 - window on: a block that
// no rank's queries attend to is not sent.
TEST(ContextParallelTest, ARingSendsWhatWindowsReach) {
  constexpr int64_t kRanks = 4, kBlock = 12;
  constexpr std::pair<int64_t, int64_t> kBlocksOfWindows[] = {
      {1, 0}, {2, 1}, {13, 1}, {14, 2}, {25, 2}, {26, 3}, {48, 3}};
  for (const auto& [window, blocks] : kBlocksOfWindows)
    for (bool dry : {false, true}) {
      const Sent ring = sent(kRanks, kRanks * kBlock, 4, 2,
                             ContextParallel::kRing, dry, false, window);
      const int64_t block = kBlock * 2 * 4 * 8;
      EXPECT_EQ(ring.forward, 2 * blocks * block) << window;
      EXPECT_EQ(ring.backward, 4 * blocks * block) << window;
    }
}

// Forward sends q, k, v and the result, of each of which a rank keeps 1/p.
// Backward would send the cotangent and three gradients.
TEST(ContextParallelTest, AnAllToAllSendsEachTensorOnce) {
  for (int64_t p : {2, 4})
    for (bool dry : {false, true}) {
      const int64_t s = 4 * p, h = 8, g = 4;
      const int64_t all = s * (2 * h + 2 * g) * 4 * 8;
      const Sent heads = sent(p, s, h, g, ContextParallel::kAllToAll, dry);
      EXPECT_EQ(heads.forward, all / p * (p - 1) / p) << p;
    }
}

// kAuto takes the ring if heads are too few, and the cheaper way otherwise.
TEST(ContextParallelTest, TheCheaperOneIsChosen) {
  const auto same = [](const Sent& a, const Sent& b) {
    return a.forward == b.forward && a.events == b.events;
  };
  const auto chosen = [&](int64_t p, int64_t s, int64_t h) {
    const Sent found = sent(p, s, h, h, ContextParallel::kAuto, true);
    const bool ring =
        same(found, sent(p, s, h, h, ContextParallel::kRing, true));
    const bool heads =
        same(found, sent(p, s, h, h, ContextParallel::kAllToAll, true));
    EXPECT_NE(ring, heads);
    return ring ? "ring" : "all-to-all";
  };
  // A ring hides its messages behind the work on long sequences. One head
  // cannot be split. Work on short sequences ends before the ring has gone
  // round.
  EXPECT_STREQ(chosen(4, 16384, 8), "ring");
  EXPECT_STREQ(chosen(4, 4096, 1), "ring");
  EXPECT_STREQ(chosen(4, 64, 8), "all-to-all");
}

// In order, a ring with a short window sends one block of three. In zig-zag
// order it sends two, and computes too little to hide them.
TEST(ContextParallelTest, AWindowIsPriced) {
  const auto chosen = [](int64_t s, int64_t window, bool zigzagged) {
    const auto events = [&](ContextParallel how) {
      return sent(4, s, 8, 8, how, true, zigzagged, window).events;
    };
    const int64_t ring = events(ContextParallel::kRing);
    EXPECT_NE(ring, events(ContextParallel::kAllToAll));
    return events(ContextParallel::kAuto) == ring ? "ring" : "all-to-all";
  };
  EXPECT_STREQ(chosen(64, 0, false), "all-to-all");
  EXPECT_STREQ(chosen(64, 2, false), "ring");
  EXPECT_STREQ(chosen(1024, 0, true), "ring");
  EXPECT_STREQ(chosen(1024, 2, true), "all-to-all");
}

// Besides its own part, a rank of a ring holds at most two blocks of keys and
// of values. With gathered keys it would hold p.
TEST(ContextParallelTest, MemoryOfARing) {
  const int64_t p = 4, s = 4096, d = 16;
  const std::string text = "cp=4";
  run(p, [&](Runtime& rt) {
    const Mesh mesh = Mesh::parse(text);
    const Shape shape{1, s, 2, d};
    const auto input = [&] {
      return put(values(shape, 1), mesh, zig(text, shape)).set_requires_grad();
    };
    const DistTensor q = input(), k = input(), v = input();
    const int64_t block = s / p * 2 * d * 8;
    auto& allocator = *rt.context().allocator;
    const auto peak = [&](const std::function<void()>& fn) {
      allocator.reset_peak();
      const int64_t before = allocator.stats().current_bytes;
      fn();
      return allocator.stats().peak_bytes - before;
    };
    const AttentionOptions ring{true, 0, ContextParallel::kRing};
    // The output, three temporaries of its size for merging, and four blocks.
    DistTensor y;
    EXPECT_LE(peak([&] { y = attention(q, k, v, ring); }), 9 * block);
    const DistTensor seed = DistTensor::wrap(y.local().clone(), y.spec());
    EXPECT_LE(peak([&] {
                grad(y, {q, k, v}, {.cotangent = seed});
              }),
              20 * block);
  });
}

// The bytes that attention() on p ranks holds beyond q, k and v, which are f64
// in zig-zag order: by context_bytes(), and measured in a dry run.
struct Held {
  int64_t counted = 0, measured = 0;
};
Held held(int64_t p, int64_t s, int64_t h, int64_t g,
          const AttentionOptions& options) {
  const std::string text = "cp=" + std::to_string(p);
  Held all;
  RunOptions dry;
  dry.world = p;
  dry.dry_run = true;
  run(dry, [&](Runtime& rt) {
    const DistTensor q = input_on(text, s, h, 1), k = input_on(text, s, g, 2),
                     v = input_on(text, s, g, 3);
    all.counted = context_bytes(q.spec(), k.spec(), v.spec(), options);
    auto& allocator = *rt.context().allocator;
    const int64_t before = allocator.stats().current_bytes;
    allocator.reset_peak();
    const DistTensor y = attention(q, k, v, options);
    const DistTensor seed = DistTensor::empty(y.spec());
    grad(y, {q, k, v}, {.cotangent = seed, .release_graph = true});
    all.measured = allocator.stats().peak_bytes - before;
  });
  return all;
}

TEST(ContextParallelTest, HoldsWhatIsCounted) {
  for (const ContextParallel how :
       {ContextParallel::kRing, ContextParallel::kAllToAll})
    for (const auto& [h, g] : {std::pair{8, 8}, {8, 4}, {8, 1}, {2, 2}, {1, 1}})
      for (const int64_t p : {2, 4}) {
        const Held x = held(p, 4096, h, g, {true, 0, how});
        const auto ratio =
            static_cast<double>(x.measured) / static_cast<double>(x.counted);
        EXPECT_GT(ratio, 0.8) << name(how) << h << " " << g << " " << p;
        EXPECT_LT(ratio, 1.25) << name(how) << h << " " << g << " " << p;
      }
}

// kAuto takes the cheaper of the ways that fit into the limit. If none fits, it
// takes the one that holds less memory.
TEST(ContextParallelTest, ALimitOfMemoryDecides) {
  const auto chosen = [](int64_t s, int64_t h, int64_t limit) {
    AttentionOptions options{true, 0, ContextParallel::kAuto, limit};
    const auto of = [&](ContextParallel how) {
      return held(4, s, h, h, {true, 0, how}).counted;
    };
    const int64_t found = held(4, s, h, h, options).counted;
    EXPECT_NE(of(ContextParallel::kRing), of(ContextParallel::kAllToAll));
    return found == of(ContextParallel::kRing) ? "ring" : "all-to-all";
  };
  const auto bytes = [](int64_t s, int64_t h, ContextParallel how) {
    return held(4, s, h, h, {true, 0, how}).counted;
  };
  // The ring is cheaper, and holds more memory.
  const int64_t s = 16384, ring = bytes(s, 8, ContextParallel::kRing);
  EXPECT_GT(ring, bytes(s, 8, ContextParallel::kAllToAll));
  EXPECT_STREQ(chosen(s, 8, 0), "ring");
  EXPECT_STREQ(chosen(s, 8, ring), "ring");
  EXPECT_STREQ(chosen(s, 8, ring - 1), "all-to-all");
  EXPECT_STREQ(chosen(s, 8, 1), "all-to-all");
  // After an all-to-all, the rank with the only head holds its whole sequence.
  const int64_t few = bytes(64, 1, ContextParallel::kAllToAll);
  EXPECT_GT(few, bytes(64, 1, ContextParallel::kRing));
  EXPECT_STREQ(chosen(64, 1, 0), "all-to-all");
  EXPECT_STREQ(chosen(64, 1, few), "all-to-all");
  EXPECT_STREQ(chosen(64, 1, few - 1), "ring");
}

TEST(ContextParallelTest, RefusedBeforeAnythingIsSent) {
  const auto error = [](const std::function<DistTensor(DistTensor)>& fn) {
    return error_of(2, [&](const Mesh& m) {
      fn(put(values({1, 4, 2, 2}, 1), m, "S1"));
    });
  };
  const AttentionOptions ring{true, 0, ContextParallel::kRing};
  EXPECT_EQ(error([&](const DistTensor& x) {
              ExplicitOnly scope;
              return attention(x, x, x, ring);
            }),
            "[attention] would have to communicate, which ExplicitOnly "
            "forbids: its keys f64[1, 4, 2, 2](S1) are split along the "
            "sequence (128 bytes in a ring); call redistribute() on k and v "
            "before it, so that their sequence is whole");
  EXPECT_EQ(error([&](const DistTensor& x) {
              ExplicitOnly scope;
              return attention(x, x, x, {true, 0, ContextParallel::kAllToAll});
            }),
            "[attention] would have to communicate, which ExplicitOnly "
            "forbids: input 0 is f64[1, 4, 2, 2](S1) and is needed as "
            "f64[1, 4, 2, 2](S2) (all-to-all, 32 bytes); write "
            "x.redistribute(\"S2\") before it");
  EXPECT_NE(error([&](const DistTensor& x) {
              CommBudget scope(127);
              return attention(x, x, x, ring);
            }).find("the ring inside attention"),
            std::string::npos);
  EXPECT_EQ(error([&](const DistTensor& x) {
              CommBudget scope(128);
              return attention(x, x, x, ring);
            }),
            "no error");
}

TEST(ContextParallelTest, BadLimit) {
  EXPECT_EQ(error_of(1,
                     [](const Mesh& m) {
                       const DistTensor x = put(values({1, 4, 2, 2}, 1), m);
                       AttentionOptions options;
                       options.memory_bytes = -1;
                       attention(x, x, x, options);
                     }),
            "[attention] memory_bytes is -1; write 0 (no limit) or more");
}

TEST(ContextParallelTest, BadDocuments) {
  const auto error = [](const Shape& ids, DType t, bool masked) {
    return error_of(1, [&](const Mesh& m) {
      const DistTensor x = put(values({1, 4, 2, 2}, 1), m);
      AttentionOptions options;
      options.documents = put(zeros_like(ids, t), m);
      attention(x, x, x, options,
                masked ? put(values({4, 4}, 1), m) : DistTensor());
    });
  };
  EXPECT_EQ(error({1, 4}, DType::kI64, true),
            "[attention] got both documents and a mask; pass one of them, or "
            "include the documents in the mask");
  EXPECT_EQ(error({1, 3}, DType::kI64, false),
            "[attention] documents are i64[1, 3], q is [1, 4, 2, 2] and k [1, "
            "4, 2, 2]; pass documents of i32 or i64 and of shape [b, s], q as "
            "[b, s, heads, d] and k as [b, s, kv_heads, d]");
  EXPECT_NE(error({1, 4}, DType::kF64, false).find("documents are f64"),
            std::string::npos);
}

TEST(ContextParallelTest, Names) {
  for (ContextParallel how : kAll) EXPECT_EQ(parse_context(name(how)), how);
  EXPECT_EQ(error_of(1, [](const Mesh&) { parse_context("rings"); }),
            "[context] there is no context parallelism \"rings\"; write auto, "
            "ring or all-to-all");
}

// Positions are those of the sequence, whatever ranges a rank has.
TEST(ContextParallelTest, RotaryInZigzagOrder) {
  const Array x = values({2, 7, 3, 4}, 1);
  Array one;
  for (const std::string mesh : {"cp=1", "cp=2", "cp=3", "cp=5"})
    on_mesh(mesh, [&](const Mesh& m) {
      const DistTensor y = rotary(put(x, m, zig(mesh, x.shape)), 100, 3);
      EXPECT_EQ(y.spec()->dim(1), zigzag(7, m, 0));
      const Array got = array_of(y.full());
      if (m.num_ranks() == 1) one = got;
      expect_near(got, one, 1e-15, mesh);
    });
}

}  // namespace
}  // namespace dtensor::testing
