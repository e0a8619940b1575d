// SPDX-License-Identifier: Apache-2.0
// Every layout to every other: values, and bytes counted against planned.
#include "dtensor/redistribute.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor_impl.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

// All combinations of {R, S0, S1, P, P(max)} over the mesh's axes.
std::vector<std::string> layouts(int axes) {
  std::vector<std::string> all{""};
  for (int a = 0; a < axes; ++a) {
    std::vector<std::string> next;
    for (const std::string& head : all)
      for (const char* p : {"R", "S0", "S1", "P", "P(max)"})
        next.push_back(head.empty() ? p : head + "," + p);
    all = next;
  }
  return all;
}

// Whole numbers of both signs, so that sums are exact in any order.
double value(int64_t i) { return static_cast<double>((i * 7) % 23 - 9); }

// This rank's part. Partial sums differ on all ranks, and add up to the value.
// Partial maxima are the value on one rank and less on the others.
Tensor part(const Spec* spec, const Coord& at) {
  Tensor t = Tensor::empty(spec->local_shape(at), DType::kF64);
  Region region = spec->region(at);
  double scale = 1, less = 0;
  for (const Partial& p : spec->layout().partials) {
    int64_t size = spec->mesh().axis_size(p.axis), i = at[p.axis];
    if (p.op == ReduceOp::kSum)
      scale *= i + 1 < size ? -2 : 2.0 * static_cast<double>(size - 1) + 1;
    else
      less += i == size / 2 ? 0 : 100 * static_cast<double>(i + 1);
  }
  int64_t cols = spec->shape()[1], k = 0;
  for (const Interval& r : region[0])
    for (int64_t i = r.lo; i < r.hi; ++i)
      for (const Interval& c : region[1])
        for (int64_t j = c.lo; j < c.hi; ++j)
          t.mutable_ptr<double>()[k++] = scale * value(i * cols + j) - less;
  return t;
}

// True if the partials are of both kinds. part() cannot make such parts, since
// the maximum of sums is not the sum of maxima.
bool mixed(const Spec* s) {
  const auto& p = s->layout().partials;
  for (size_t i = 1; i < p.size(); ++i)
    if (p[i].op != p[0].op) return true;
  return false;
}

// Combines the rank's part with those of other ranks into `out`, the whole
// tensor.
void combine(const Spec* spec, const Coord& at, const Tensor& local,
             std::vector<double>& out) {
  Region region = spec->region(at);
  bool max =
      spec->partial_axes() && spec->layout().partials[0].op == ReduceOp::kMax;
  int64_t cols = spec->shape()[1], k = 0;
  // On replicated axes, only the first rank's part counts.
  AxisMask used = spec->split_axes() | spec->partial_axes();
  bool speaks = true;
  for (int a = 0; a < spec->mesh().num_axes(); ++a)
    if (!(used >> a & 1) && at[a] != 0) speaks = false;
  for (const Interval& r : region[0])
    for (int64_t i = r.lo; i < r.hi; ++i)
      for (const Interval& c : region[1])
        for (int64_t j = c.lo; j < c.hi; ++j) {
          double v = local.at(k++);
          double& o = out[static_cast<size_t>(i * cols + j)];
          if (speaks) o = max ? std::max(o, v) : o + v;
        }
}

struct Case {
  const char* mesh;
  Shape shape;
};

class EveryPair : public ::testing::TestWithParam<Case> {};

TEST_P(EveryPair, IsExactAndCountsWhatItPlanned) {
  Mesh mesh = Mesh::parse(GetParam().mesh);
  Shape shape = GetParam().shape;
  auto texts = layouts(mesh.num_axes());
  std::vector<SpecRef> specs;
  for (const std::string& t : texts)
    specs.push_back(
        Spec::get(mesh, shape, parse_layout(t, mesh, shape), DType::kF64));
  std::mutex mutex;
  std::vector<double> out;
  std::vector<int64_t> counted;
  int64_t bad = 0, pairs = 0;
  run(mesh.num_ranks(), [&](Runtime& rt) {
    RankContext& ctx = rt.context();
    Coord at = ctx.coordinate(mesh);
    Communicator& all = ctx.communicator(mesh, mesh.all_axes());
    for (const Spec* from : specs) {
      if (mixed(from)) continue;
      for (const Spec* to : specs) {
        if (mixed(to)) continue;
        all.barrier({StepKind::kBarrier, "test"});
        if (rt.rank() == 0) {
          bool max = to->partial_axes() &&
                     to->layout().partials[0].op == ReduceOp::kMax;
          out.assign(static_cast<size_t>(numel(shape)), max ? -1e300 : 0);
          counted.clear();
          ++pairs;
        }
        all.barrier({StepKind::kBarrier, "test"});
        ctx.record = true;
        ctx.events.clear();
        Tensor moved = redistribute_local(part(from, at), from, to);
        ctx.record = false;
        const Plan& plan = ctx.planner.plan(from, to);
        {
          std::lock_guard lock(mutex);
          combine(to, at, moved, out);
          counted.resize(std::max(counted.size(), ctx.events.size()));
          for (size_t i = 0; i < ctx.events.size(); ++i)
            counted[i] = std::max(counted[i], ctx.events[i].counted);
        }
        all.barrier({StepKind::kBarrier, "test"});
        if (rt.rank() == 0) {
          bool good = true;
          for (size_t i = 0; i < out.size(); ++i)
            good &= out[i] == value(static_cast<int64_t>(i));
          int64_t bytes = 0;
          for (int64_t b : counted) bytes += b;
          if (!good || bytes != plan.bytes) {
            ++bad;
            ADD_FAILURE() << from->to_string() << " -> " << to->to_string()
                          << ": values " << (good ? "right" : "WRONG")
                          << ", planned " << plan.bytes << ", counted "
                          << bytes;
          }
        }
      }
    }
  });
  EXPECT_EQ(bad, 0) << "of " << pairs;
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, EveryPair,
    ::testing::Values(Case{"a=2", {5, 3}}, Case{"a=3", {5, 2}},
                      Case{"a=4", {2, 3}}, Case{"a=2,b=2", {5, 7}},
                      Case{"a=2,b=3", {4, 5}}, Case{"a=2,b=2", {1, 3}},
                      Case{"a=2,b=2", {0, 4}}, Case{"a=1,b=2", {3, 3}}));

// (sum, count) pairs are kept like any other partial, and become the mean
// later.
TEST(RedistributeTest, AMeanOfUnevenPartsIsASumAndACount) {
  Mesh mesh = Mesh::parse("a=3");
  run(3, [&](Runtime& rt) {
    const Spec* pairs =
        Spec::get(mesh, {2}, parse_layout("P(mean)", mesh, {2}), DType::kF64);
    // Rank r has r + 1 values, all equal to 10 r (and to -r).
    double r = static_cast<double>(rt.rank());
    double mine[] = {10 * r * (r + 1), -r * (r + 1), r + 1, r + 1};
    DistTensor t = DistTensor::wrap(Tensor::from(Shape{2, 2}, mine), pairs);
    Tensor mean = t.full();
    EXPECT_DOUBLE_EQ(mean.at(0), (0 + 20 + 60) / 6.0);
    EXPECT_DOUBLE_EQ(mean.at(1), -(0 + 2 + 6) / 6.0);
    // Back to pairs: the first rank has (value, 1), the others (0, 0).
    DistTensor again = t.redistribute("R").redistribute("P(mean)");
    EXPECT_EQ(again.local().at(2), rt.rank() == 0 ? 1 : 0);
    EXPECT_DOUBLE_EQ(again.full().at(0), mean.at(0));
  });
}

// Dividing by three is not exact: 0.1 on 3 ranks must stay 0.1.
TEST(RedistributeTest, ReplicatedToPartialAndBackKeepsEveryBit) {
  Mesh mesh = Mesh::parse("a=3");
  run(3, [&](Runtime&) {
    for (const char* p : {"P", "P(max)", "P(min)", "P(prod)", "P(avg)"}) {
      DistTensor x = DistTensor::from_global(
          Tensor::full({4}, DType::kF32, 0.1), mesh, {});
      Tensor back = x.redistribute(p).redistribute("R").local();
      EXPECT_EQ(back.at(3), static_cast<double>(0.1f)) << p;
    }
  });
}

TEST(RedistributeTest, TwoConsumersOfOneLayoutShareTheMove) {
  Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime& rt) {
    DistTensor x =
        DistTensor::from_global(Tensor::full({4}, DType::kF64, 1), mesh, "S0");
    rt.context().record = true;
    DistTensor a = x.redistribute("R"), b = x.redistribute("R");
    EXPECT_EQ(rt.context().events.size(), 1u);
    EXPECT_NE(a.local().storage(), b.local().storage());
    // An in-place change makes the copy stale.
    x.impl()->local.fill(2);
    EXPECT_EQ(x.redistribute("R").local().at(3), 2);
    EXPECT_EQ(rt.context().events.size(), 2u);
  });
}

// Steps of one kind over one group become one collective, and the bytes add up.
TEST(RedistributeTest, SeveralTensorsMoveTogether) {
  const Mesh mesh = Mesh::parse("a=2,b=2");
  run(4, [&](Runtime& rt) {
    RankContext& ctx = rt.context();
    struct Row {
      Shape shape;
      const char *from, *to;
    };
    const std::vector<Row> rows = {
        {{5, 3}, "S0,R", "S1,R"}, {{4}, "S0,S0", "R,S0"},
        {{7, 2}, "S1,R", "S0,R"}, {{6}, "R,R", "S0,R"},
        {{2, 2}, "R,R", "R,R"},   {{5, 3}, "S0,R", "S1,R"}};
    std::vector<DistTensor> x;
    std::vector<SpecRef> to;
    int64_t bytes = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      Tensor whole = Tensor::empty(rows[i].shape, DType::kF64);
      for (int64_t k = 0; k < whole.numel(); ++k)
        whole.mutable_ptr<double>()[k] = value(k + static_cast<int64_t>(i));
      x.push_back(DistTensor::from_global(whole, mesh, rows[i].from));
      to.push_back(
          x.back().spec()->with(parse_layout(rows[i].to, mesh, rows[i].shape)));
      bytes += ctx.planner.plan(x.back().spec(), to.back()).bytes;
    }
    ctx.record = true;
    const int64_t misses = ctx.planner.plan_use().misses;
    for (int twice = 0; twice < 2; ++twice) {
      ctx.events.clear();
      std::vector<DistTensor> y = x;
      relayout(y, to);
      ctx.record = false;
      std::set<std::pair<int64_t, StepKind>> collectives;
      int64_t predicted = 0;
      for (const CommEvent& e : ctx.events) {
        collectives.insert({e.collective, e.kind});
        predicted += e.predicted;
      }
      EXPECT_EQ(predicted, bytes);
      EXPECT_EQ(ctx.events.size(), 4u);
      EXPECT_LT(collectives.size(), 4u);
      for (size_t i = 0; i < y.size(); ++i) {
        EXPECT_EQ(y[i].spec(), to[i]);
        const Tensor all = y[i].full();
        for (int64_t k = 0; k < all.numel(); ++k)
          EXPECT_EQ(all.at(k), value(k + static_cast<int64_t>(i)));
      }
      ctx.record = true;
    }
    // The whole list is one new plan; full() needs four.
    EXPECT_LE(ctx.planner.plan_use().misses - misses, 1 + 4);
  });
}

// Parts that nobody else holds are reduced in place, and others are not.
TEST(RedistributeTest, OwnPartsAreReducedInPlace) {
  const Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    for (bool shared : {false, true}) {
      std::vector<DistTensor> y;
      for (double v : {1., 2.})
        y.push_back(DistTensor::from_local(Tensor::full({8}, DType::kF64, v),
                                           mesh, "P", {8}));
      const void* data = y[1].local().data();
      const DistTensor kept = shared ? y[1] : DistTensor();
      const Spec* whole = Spec::replicated(mesh, {8}, DType::kF64);
      const std::vector<SpecRef> to{whole, whole};
      relayout(y, to);
      EXPECT_EQ(y[0].local().at(7), 2);
      EXPECT_EQ(y[1].local().at(7), 4);
      EXPECT_EQ(y[1].local().data() == data, !shared);
      if (shared) {
        EXPECT_EQ(kept.local().at(0), 2);
      }
    }
  });
}

// A tensor that is moved away is overwritten, unless somebody else holds its
// part.
TEST(RedistributeTest, AValueThatIsGivenAwayGivesItsMemory) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    const Shape shape{40, 30};
    const int64_t bytes = 40 * 30 * 8;
    const auto stats = [&] { return rt.context().allocator->stats(); };
    const auto made = [&](const char* layout, double value) {
      return DistTensor::from_local(Tensor::full(shape, DType::kF64, value),
                                    mesh, layout, shape);
    };
    const int64_t before = stats().current_bytes;
    const double mine = static_cast<double>(1 + rt.rank());
    {
      DistTensor x = made("P", mine);
      const void* at = x.local().data();
      rt.context().allocator->reset_peak();
      const DistTensor y = std::move(x).redistribute("R");
      EXPECT_FALSE(x.defined());
      EXPECT_EQ(y.local().data(), at);
      EXPECT_EQ(stats().peak_bytes, before + bytes);
      EXPECT_EQ(y.local().at(7), 3);
    }
    {
      // If there is a second handle or the part is held, nothing is
      // overwritten.
      DistTensor x = made("P", mine), same = x;
      EXPECT_EQ(std::move(x).redistribute("R").local().at(7), 3);
      DistTensor other = made("P", mine);
      const Tensor kept = other.local();
      EXPECT_EQ(std::move(other).redistribute("R").local().at(7), 3);
      EXPECT_EQ(same.local().at(7), mine);
      EXPECT_EQ(kept.at(7), mine);
    }
    {
      // A smaller result takes less memory. A tensor in its own layout is not
      // copied, unless somebody holds its part.
      const DistTensor half = made("R", 5).redistribute("S0");
      EXPECT_EQ(stats().current_bytes, before + bytes / 2);
      EXPECT_EQ(half.local().at(7), 5);
      DistTensor x = made("R", 6);
      const void* at = x.local().data();
      const DistTensor y = std::move(x).redistribute("R");
      EXPECT_EQ(y.local().data(), at);
      const Tensor kept = y.local();
      const DistTensor z = DistTensor(y).redistribute("R");
      EXPECT_NE(z.local().data(), kept.data());
    }
    {
      // The result of an earlier call does not change.
      DistTensor x = made("P", mine);
      const DistTensor first = x.redistribute("R");
      DistTensor second = std::move(x).redistribute("R");
      EXPECT_NE(second.local().data(), first.local().data());
      second.local().mutable_ptr<double>()[7] = 0;
      EXPECT_EQ(first.local().at(7), 3);
    }
    {
      // A call that throws leaves the tensor as it was.
      DistTensor x = made("P", mine);
      const std::string e = testing::error_of(
          [&] { std::move(x).redistribute(x.spec()->with(DType::kF32)); });
      EXPECT_NE(e.find("cannot become"), e.npos) << e;
      EXPECT_EQ(x.local().at(7), mine);
    }
    EXPECT_EQ(stats().current_bytes, before);
  });
}

TEST(RedistributeTest, BadInputIsOneSentenceOnEveryRank) {
  const Mesh mesh = Mesh::parse("a=2,b=2");
  std::mutex mutex;
  std::map<int, std::set<std::string>> messages;
  run(4, [&](Runtime&) {
    const DistTensor x = DistTensor::from_global(
        Tensor::full({6}, DType::kF32, 1), mesh, "S0,R");
    const std::vector<std::function<void()>> wrong = {
        [&] { x.redistribute("S0@0|3|5,R"); },
        [&] { x.redistribute("S0@0|7|6,R"); },
        [&] {
          x.redistribute({{"a", Shard(0)}, {"a", PartialOf()}});
        },
        [&] {
          x.redistribute(
              Layout{{Dim(6, Split::over({0}))}, {{0, ReduceOp::kSum}}});
        },
        [&] { x.redistribute("S0,S1"); },
        [&] { x.redistribute("S0"); },
        [&] {
          Spec::get(mesh, {int64_t{1} << 40, int64_t{1} << 40},
                    Layout::replicated({int64_t{1} << 40, int64_t{1} << 40}),
                    DType::kF32);
        },
        [&] {
          const Spec* other = Spec::replicated(mesh, {7}, DType::kF32);
          x.redistribute(other);
        },
        [&] { x.redistribute(x.spec()->with(DType::kF64)); }};
    for (size_t i = 0; i < wrong.size(); ++i) {
      const std::string m = testing::error_of([&] { wrong[i](); });
      std::lock_guard lock(mutex);
      messages[static_cast<int>(i)].insert(m);
    }
    EXPECT_EQ(x.full().at(5), 1);  // and the run goes on
  });
  for (const auto& [i, texts] : messages) {
    EXPECT_EQ(texts.size(), 1u) << i;
    const std::string& m = *texts.begin();
    EXPECT_EQ(m[0], '[') << m;
    EXPECT_EQ(m.find('\n'), m.npos) << m;
  }
}

TEST(RedistributeTest, WrongPartsAreRefused) {
  Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime& rt) {
    // 5 rows over 2 ranks are 2 and 3, not 3 and 2.
    int64_t rows = rt.rank() == 0 ? 3 : 2;
    EXPECT_THROW(DistTensor::from_local(Tensor::full({rows}, DType::kF32, 0),
                                        mesh, "S0", {5}),
                 Error);
    EXPECT_THROW(DistTensor::from_global(Tensor::full({5}, DType::kF32, 0),
                                         mesh, {{"b", Shard(0)}}),
                 Error);
    EXPECT_THROW(DistTensor::from_global(Tensor::full({5}, DType::kF32, 0),
                                         mesh, {{"a", Shard(1)}}),
                 Error);
  });
}

TEST(DistTensorTest, PrintsSpecAndValues) {
  Mesh mesh = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    double v[] = {1, 2, 3, 4};
    DistTensor x =
        DistTensor::from_global(Tensor::from(Shape{2, 2}, v), mesh, "S1");
    EXPECT_EQ(x.to_string(), "f64[2, 2](S1) [[1, 2], [3, 4]]");
    EXPECT_EQ(x.local().shape(), (Shape{2, 1}));
    EXPECT_THROW(x.item(), Error);
  });
}

}  // namespace
}  // namespace dtensor
