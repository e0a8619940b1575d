// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "dtensor/ops/create.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/array.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

// Layouts of [5, 7], with empty and partial ones.
const std::vector<Case> kLayouts = {{"x=1", {"R"}},
                                    {"x=2", {"R"}},
                                    {"x=2", {"S0"}},
                                    {"x=3", {"S1"}},
                                    {"x=2", {"P"}},
                                    {"x=3", {"P(max)"}},
                                    {"x=2", {"P(mean)"}},
                                    {"x=2,y=2", {"S0,S1"}},
                                    {"x=2,y=2", {"S1,S1"}},
                                    {"x=3,y=2", {"P,S0"}},
                                    {"x=2,y=3", {"S0@0|5|5,R"}}};

using Maker = std::function<DistTensor(const Mesh&, const Placements&)>;

// Expects the same values on every mesh and in every layout; nothing is sent.
Array check_everywhere(const Maker& make, double tolerance = 0) {
  Array first;
  for (const Case& c : kLayouts) {
    const std::string label = c.mesh + " " + c.layouts[0];
    on_mesh(c.mesh, [&](const Mesh& mesh) {
      RankContext& context = RankContext::current();
      context.record = true;
      DistTensor x = make(mesh, Placements(c.layouts[0]));
      EXPECT_TRUE(context.events.empty()) << label;
      EXPECT_EQ(x.layout(), Placements(c.layouts[0]).resolve(mesh, x.shape()))
          << label;
      Array got = array_of(x.full());
      if (c.mesh == "x=1") first = got;
      expect_near(got, first, tolerance, label);
    });
    RunOptions dry;
    dry.world = Mesh::parse(c.mesh).num_ranks();
    dry.dry_run = true;
    run(dry,
        [&](Runtime&) { make(Mesh::parse(c.mesh), Placements(c.layouts[0])); });
  }
  return first;
}

const Shape kShape{5, 7};

TEST(FactoryTest, Constants) {
  auto all = [](const Array& a, double want) {
    for (double v : a.v) EXPECT_EQ(v, want);
  };
  all(check_everywhere([](const Mesh& m, const Placements& p) {
        return zeros(kShape, m, p);
      }),
      0);
  all(check_everywhere([](const Mesh& m, const Placements& p) {
        return ones(kShape, m, p, DType::kF64);
      }),
      1);
  all(check_everywhere([](const Mesh& m, const Placements& p) {
        return full(kShape, -2.5, m, p, DType::kBF16);
      }),
      -2.5);
  on_mesh("x=2", [](const Mesh& m) {
    EXPECT_EQ(full({}, 1, m, "R", DType::kBool).item(), 1);
    EXPECT_EQ(full({2}, -3, m, "S0", DType::kI32).full().at(1), -3);
  });
}

TEST(FactoryTest, Arange) {
  for (DType t : {DType::kI64, DType::kI32, DType::kF32, DType::kF64})
    for (const char* layout : {"R", "S0", "P"})
      on_mesh("x=3", [&](const Mesh& m) {
        DistTensor x = arange(5, m, layout, t);
        EXPECT_EQ(name(x.dtype()), name(t));
        expect_near(array_of(x.full()), {{5}, {0, 1, 2, 3, 4}, DType::kF64}, 0,
                    layout);
      });
  // Rank 0 has [0, 2), [4, 6) and [8, 10); rank 1 has the rest.
  on_mesh("x=2", [](const Mesh& m) {
    Layout l;
    l.dims = {Dim::product({Dim(3), Dim(4, Split::over({0}))})};
    DistTensor x = arange(12, m, l);
    EXPECT_EQ(x.local().at(2), x.region()[0][1].lo);
    for (int64_t i = 0; i < 12; ++i)
      EXPECT_EQ(x.full().at(i), static_cast<double>(i));
  });
}

TEST(RandomTest, EqualOnEveryLayout) {
  for (DType t : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    check_everywhere([=](const Mesh& m, const Placements& p) {
      return randn(kShape, m, p, t, {7, 11}, 0.5, 2);
    });
    check_everywhere([=](const Mesh& m, const Placements& p) {
      return uniform(kShape, m, p, t, {7, 11}, -1, 3);
    });
  }
  for (DType t : {DType::kI32, DType::kI64}) {
    Array a;
    for (const char* layout : {"R", "S0", "S1"})
      on_mesh("x=3", [&](const Mesh& m) {
        Array got = array_of(randint(-3, 9, kShape, m, layout, t, {7}).full());
        if (a.v.empty() && RankContext::current().world_rank == 0) a = got;
        for (double v : got.v)
          EXPECT_TRUE(v >= -3 && v < 9 && v == std::floor(v));
      });
  }
}

// A rank's part of several ranges: the columns of q, k and v in a fused
// weight.
TEST(RandomTest, SeveralRanges) {
  Array whole;
  on_mesh("x=1", [&](const Mesh& m) {
    whole = array_of(uniform({4, 18}, m, {}, DType::kF64, {1, 2}).full());
  });
  on_mesh("x=2", [&](const Mesh& m) {
    Layout l;
    l.dims = {Dim(4),
              Dim::concat({Dim(8, Split::over({0})), Dim(4, Split::over({0})),
                           Dim(6, Split::over({0}))})};
    DistTensor x = uniform({4, 18}, m, l, DType::kF64, {1, 2});
    EXPECT_EQ(x.region()[1].size(), 3u);
    expect_near(array_of(x.full()), whole, 0, "q|k|v");
  });
}

TEST(RandomTest, SeedsAndStreamsDiffer) {
  on_mesh("x=1", [](const Mesh& m) {
    auto draw = [&](uint64_t seed, uint64_t stream) {
      return array_of(uniform({64}, m, {}, DType::kF64, {seed, stream}).full());
    };
    EXPECT_EQ(draw(1, 2).v, draw(1, 2).v);
    EXPECT_NE(draw(1, 2).v, draw(1, 3).v);
    EXPECT_NE(draw(1, 2).v, draw(2, 2).v);
  });
}

TEST(RandomTest, Moments) {
  on_mesh("x=2", [](const Mesh& m) {
    constexpr int64_t n = 20000;
    auto moments = [](const Array& a, double* mean, double* deviation) {
      *mean = 0, *deviation = 0;
      for (double v : a.v) *mean += v / n;
      for (double v : a.v) *deviation += (v - *mean) * (v - *mean) / n;
      *deviation = std::sqrt(*deviation);
    };
    double mean, deviation;
    moments(array_of(randn({n}, m, "S0", DType::kF32, {3}, 1, 2).full()), &mean,
            &deviation);
    EXPECT_NEAR(mean, 1, 0.06);
    EXPECT_NEAR(deviation, 2, 0.05);
    Array u = array_of(uniform({n}, m, "S0", DType::kF32, {3}, 2, 5).full());
    moments(u, &mean, &deviation);
    EXPECT_NEAR(mean, 3.5, 0.03);
    EXPECT_NEAR(deviation, 3 / std::sqrt(12.0), 0.02);
    for (double v : u.v) EXPECT_TRUE(v >= 2 && v < 5);
  });
}

// In bf16, 1 + 255/256 would be rounded to 2.
TEST(RandomTest, UniformNumbersAreBelowTheUpperEnd) {
  on_mesh("x=2", [](const Mesh& m) {
    for (const auto& [lo, hi] : std::vector<std::pair<double, double>>{
             {1, 2}, {-3, -2}, {0, 0.1}, {-1, 0}, {3, 3}})
      for (DType t : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64})
        for (const Array u =
                 array_of(uniform({4096}, m, "S0", t, {7}, lo, hi).full());
             double v : u.v)
          ASSERT_TRUE(v >= lo && (v < hi || lo == hi))
              << name(t) << " " << v << " of " << lo << " to " << hi;
  });
}

TEST(DropoutTest, OneMaskOnEveryLayout) {
  const Array x = values(kShape, 1);
  Array first;
  for (const Case& c : kLayouts) {
    if (c.layouts[0] == "P(mean)" || c.layouts[0] == "P(max)") continue;
    on_mesh(c.mesh, [&](const Mesh& mesh) {
      const std::string label = c.mesh + " " + c.layouts[0];
      DistTensor in = put(x, mesh, c.layouts[0]).set_requires_grad();
      RankContext::current().record = true;
      DistTensor y = dropout(in, 0.4, {5, 6});
      EXPECT_TRUE(RankContext::current().events.empty()) << label;
      EXPECT_EQ(y.spec(), in.spec()) << label;
      Array got = array_of(y.full());
      if (c.mesh == "x=1") first = got;
      expect_near(got, first, 1e-15, label);
      // The gradient is the mask that was drawn.
      auto g = grad(sum(y), {in});
      Array scale = array_of(g[0].full());
      for (int64_t i = 0; i < numel(kShape); ++i) {
        EXPECT_TRUE(scale.at(i) == 0 ||
                    std::abs(scale.at(i) - 1 / 0.6) < 1e-15);
        EXPECT_NEAR(got.at(i), scale.at(i) * x.at(i), 1e-15) << label;
      }
    });
  }
}

TEST(DropoutTest, Differentiated) {
  std::vector<double> mask;
  on_mesh("x=1", [&](const Mesh& m) {
    mask =
        array_of(dropout(ones({5, 3}, m, {}, DType::kF64), 0.25, {1, 2}).full())
            .v;
  });
  Problem p{{values({5, 3}, 1)},
            [](const auto& x) {
              return square(dropout(x[0], 0.25, {1, 2}));
            },
            [&](const auto& x) {
              Array y = x[0];
              for (size_t i = 0; i < y.v.size(); ++i)
                y.v[i] *= mask[i] * y.v[i] * mask[i];
              return y;
            }};
  check_problem(p, {{"x=2", {"S0"}}, {"x=2", {"P"}}, {"x=2,y=2", {"S1,S0"}}});
}

TEST(DropoutTest, Share) {
  on_mesh("x=2", [](const Mesh& m) {
    constexpr int64_t n = 20000;
    DistTensor x = ones({n}, m, "S0");
    double kept =
        sum(cast(ne(dropout(x, 0.3, {1, 1}), zeros({n}, m, "S0")), DType::kF32))
            .item();
    EXPECT_NEAR(kept / n, 0.7, 0.015);
    for (double v : array_of(dropout(x, 1, {1, 1}).full()).v) EXPECT_EQ(v, 0);
    EXPECT_EQ(dropout(x, 0, {1, 1}).local().storage(), x.local().storage());
  });
}

// Setting an earlier random_state() repeats the numbers drawn after it.
TEST(RandomTest, TheStateOfTheRunsOwnGenerators) {
  on_mesh("x=2,y=2", [&](const Mesh& mesh) {
    const Mesh half({{"z", 2}}, {0, 1});
    manual_seed(7);
    EXPECT_EQ(random_state(), (RandomState{7, {}}));
    const auto draw = [&] {
      std::string text = randn({3}, mesh).to_string();
      if (RankContext::current().coordinate_or_null(half))
        text += randn({3}, half).to_string();
      return text;
    };
    const std::string first = draw();
    const RandomState state = random_state();
    const std::string second = draw();
    EXPECT_NE(first, second);
    manual_seed(9);
    EXPECT_NE(draw(), second);
    set_random_state(state);
    EXPECT_EQ(random_state(), state);
    EXPECT_EQ(draw(), second);
  });
}

TEST(RandomTest, Errors) {
  EXPECT_EQ(
      error_of(1, [](const Mesh& m) { randint(3, 3, {2}, m); }),
      "[randint] cannot draw integers from [3, 3); write -2^53 <= lo < hi "
      "<= 2^53");
  EXPECT_EQ(error_of(1,
                     [](const Mesh& m) {
                       randint(0, int64_t{1} << 40, {2}, m, {}, DType::kI32);
                     }),
            "[randint] integers from [0, 1099511627776) do not fit i32; write "
            "DType::kI64");
  EXPECT_EQ(
      error_of(1,
               [](const Mesh& m) { randint(0, 3, {2}, m, {}, DType::kF32); }),
      "[randint] cannot draw integers of type f32; write DType::kI32 or "
      "DType::kI64");
  EXPECT_EQ(error_of(1, [](const Mesh& m) { dropout(ones({2}, m), 1.5, {}); }),
            "[dropout] p is 1.5; write a probability in [0, 1]");
  EXPECT_NE(error_of(1, [](const Mesh& m) { randn({2}, m, {}, DType::kI32); })
                .find("[randn] cannot draw floats of type i32"),
            std::string::npos);
  EXPECT_EQ(
      error_of(1, [](const Mesh& m) { uniform({2}, m, {}, DType::kI64); }),
      "[uniform] cannot draw floats of type i64; write DType::kF32, "
      "kF64, kBF16 or kF16, or call randint() for integers");
}

// randn() and uniform() without a Generator gave the same numbers at every
// call, so that two weights began equal.

using testing::values;

// The numbers that a program draws, one call after the other.
std::vector<std::vector<double>> program(const Mesh& mesh,
                                         const Placements& p) {
  return {values(randn({6}, mesh, p)),
          values(randn({6}, mesh, p)),
          values(uniform({6}, mesh, p)),
          values(uniform({6}, mesh, p)),
          values(randint(0, 1 << 30, {6}, mesh, p)),
          values(randint(0, 1 << 30, {6}, mesh, p)),
          values(dropout(ones({40}, mesh, p), 0.5)),
          values(dropout(ones({40}, mesh, p), 0.5))};
}

std::vector<std::vector<double>> on_one_rank() {
  std::vector<std::vector<double>> drawn;
  run(1, [&](Runtime& rt) { drawn = program(rt.mesh(), {}); });
  return drawn;
}

TEST(RandomWithoutGenerator, EveryCallDrawsOtherNumbers) {
  const auto drawn = on_one_rank();
  for (size_t i = 0; i < drawn.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      EXPECT_NE(drawn[i], drawn[j]) << i << " " << j;
}

TEST(RandomWithoutGenerator, AlikeOnEveryMeshAndLayout) {
  const auto want = on_one_rank();
  for (const char* text : {"x=3", "x=2,y=2"}) {
    const Mesh mesh = Mesh::parse(text);
    for (const char* layout : {"R", "S0"})
      run(mesh.num_ranks(), [&](Runtime&) {
        const std::string all =
            mesh.num_axes() == 1 ? layout : std::string(layout) + ",R";
        EXPECT_EQ(program(mesh, Placements(all)), want)
            << text << " " << layout;
      });
  }
}

TEST(RandomWithoutGenerator, ManualSeed) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    const auto before = values(randn({6}, mesh, "S0"));
    manual_seed(0);
    EXPECT_EQ(values(randn({6}, mesh)), before);
    manual_seed(1);
    const auto other = values(randn({6}, mesh));
    EXPECT_NE(other, before);
    manual_seed(1);
    EXPECT_EQ(values(randn({6}, mesh)), other);
    EXPECT_NE(values(randn({6}, mesh)), other);
  });
}

// A generator that is given neither advances the run's own nor shares its
// numbers.
TEST(RandomWithoutGenerator, GivenGeneratorsAreApart) {
  const auto want = on_one_rank();
  run(1, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    const auto given = values(randn({6}, mesh, {}, DType::kF32, {0, 0}));
    EXPECT_EQ(values(randn({6}, mesh, {}, DType::kF32, {0, 0})), given);
    EXPECT_EQ(values(randn({6}, mesh)), want[0]);
    EXPECT_NE(given, want[0]);
  });
}

// Ranks that draw on a mesh of their own still agree with the others
// afterwards.
TEST(RandomWithoutGenerator, SubMeshesHaveTheirOwn) {
  const auto want = on_one_rank();
  run(3, [&](Runtime& rt) {
    const Mesh first = Mesh::parse("a=2 of ranks 0,1"),
               last = Mesh::parse("a=1 of ranks 2");
    std::vector<double> mine;
    if (rt.rank() < 2)
      mine = values(randn({6}, first, "S0"));
    else
      mine = values(randn({6}, last));
    EXPECT_NE(mine, want[0]);
    EXPECT_EQ(values(randn({6}, rt.mesh(), "S0")), want[0]);
    EXPECT_EQ(values(randn({6}, rt.mesh(), "R")), want[1]);
  });
}

TEST(RandomWithoutGenerator, MeshesOverTheSameRanksShareOne) {
  const auto drawn_with = [](const char* other) {
    std::vector<std::vector<double>> drawn;
    run(3, [&](Runtime& rt) {
      if (rt.rank() == 2) return;
      const auto first = values(randn({6}, Mesh::parse("a=2 of ranks 0,1"))),
                 second = values(randn({6}, Mesh::parse(other)));
      if (rt.rank() == 0) drawn = {first, second};
    });
    return drawn;
  };
  const auto same = drawn_with("a=2 of ranks 0,1");
  EXPECT_NE(same[0], same[1]);
  EXPECT_EQ(drawn_with("a=2 of ranks 1,0"), same);
}

}  // namespace
}  // namespace dtensor::testing
