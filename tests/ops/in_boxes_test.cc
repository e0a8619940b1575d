// SPDX-License-Identifier: Apache-2.0
// Operands that an operator reads in the other ranks' memory: values and bytes
// are those of gathered operands, and no memory is used for a gathered copy.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "dtensor/autograd.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/replicas.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using Use = std::function<DistTensor(const DistTensor& w)>;

DistTensor numbers(const Shape& s, const Mesh& m, const Placements& p,
                   uint64_t stream, DType t = DType::kF64) {
  return randn(s, m, p, t, {5, stream});
}

// A call's result, the bytes that it sends, and its peak of gathered memory.
struct Seen {
  std::vector<double> values;
  std::string layout;
  int64_t predicted = 0, counted = 0, gathered = 0;
};
Seen see(Runtime& rt, const Use& use, const DistTensor& w) {
  RankContext& ctx = rt.context();
  ctx.record = true;
  ctx.events.clear();
  ctx.allocator->reset_peak();
  const DistTensor y = use(w);
  Seen seen;
  seen.gathered = ctx.allocator->stats().of(MemoryKind::kGathered).peak_bytes;
  for (const CommEvent& e : ctx.events) {
    seen.predicted += e.predicted;
    seen.counted += e.counted;
  }
  ctx.record = false;
  seen.values = y.full().to_doubles();
  seen.layout = y.spec()->to_string();
  return seen;
}

struct Case {
  const char* name;
  Shape weight;
  const char* rests;  // how it is split
  bool in_place;
  Use use;
  DType dtype = DType::kF64;
};

std::vector<Case> cases(const Mesh& mesh) {
  const auto x = [mesh](Shape s, DType t = DType::kF64) {
    return numbers(s, mesh, "S0", 7, t);
  };
  const auto columns = [=](const DistTensor& w) {
    return matmul(x({14, w.shape()[0]}, w.dtype()), w);
  };
  const auto rows = [=](const DistTensor& w) {
    return linear(x({14, w.shape()[1]}, w.dtype()), w);
  };
  const auto with_bias = [=](Activation then) {
    return [=](const DistTensor& w) {
      const DistTensor bias =
          numbers({w.shape()[0]}, mesh, {}, 8, w.dtype()).as_parameter();
      return linear(x({2, 7, w.shape()[1]}, w.dtype()), w, bias, then);
    };
  };
  const auto added = [=](const DistTensor& w) {
    return add(numbers(w.shape(), mesh, {}, 9), w);
  };
  const auto broadcast = [=](const DistTensor& w) {
    return mul(numbers({3, w.shape()[0], w.shape()[1]}, mesh, {}, 9), w);
  };
  return {
      {"summed over the boxes", {131, 67}, "S0", true, columns},
      {"columns of the output", {131, 67}, "S1", true, columns},
      {"rows of a weight", {131, 67}, "S0", true, rows},
      {"a weight's own sum", {131, 67}, "S1", true, rows},
      {"bias", {131, 67}, "S0", true, with_bias(Activation::kNone)},
      {"bias, summed", {131, 67}, "S1", false, with_bias(Activation::kNone)},
      {"GELU", {131, 67}, "S0", true, with_bias(Activation::kGeluTanh)},
      {"ranks without a part", {2, 4500}, "S0", true, columns},
      {"in blocks", {144, 67}, "S0(4 h=36:h)", false, columns},
      {"little", {31, 17}, "S0", false, columns},
      {"half precision", {131, 270}, "S1", true, columns, DType::kBF16},
      {"rounded after each", {131, 270}, "S0", false, columns, DType::kBF16},
      {"element by element", {131, 67}, "S0", true, added},
      {"in strides", {131, 67}, "S1", false, added},
      {"broadcast", {131, 67}, "S0", false, broadcast},
  };
}

class InBoxes : public ::testing::TestWithParam<int64_t> {};

TEST_P(InBoxes, AsIfGathered) {
  const int64_t ranks = GetParam();
  const Mesh mesh = Mesh::parse("dp=" + std::to_string(ranks));
  run(ranks, [&](Runtime& rt) {
    const NoGrad no_grad;
    for (const Case& c : cases(mesh)) {
      SCOPED_TRACE(c.name);
      const DistTensor w = numbers(c.weight, mesh, c.rests, 2, c.dtype);
      const Seen whole = see(rt, c.use, w.redistribute("R").as_parameter());
      DistTensor parts = w.redistribute(c.rests);
      const Seen read = see(rt, c.use, parts.gather_on_use({}));
      EXPECT_EQ(read.layout, whole.layout);
      ASSERT_EQ(read.values.size(), whole.values.size());
      const double tolerance = c.dtype == DType::kF64 ? 1e-12 : 2e-2;
      for (size_t i = 0; i < read.values.size(); ++i)
        ASSERT_NEAR(read.values[i], whole.values[i],
                    tolerance * (1 + std::abs(whole.values[i])))
            << i;
      const Spec* to = parts.use_spec();
      EXPECT_EQ(read.gathered, c.in_place ? 0 : to->largest_part_bytes());
      // The bytes are those of a gather.
      EXPECT_EQ(whole.predicted, 0);
      EXPECT_EQ(read.predicted,
                rt.context().planner.plan(parts.spec(), to).bytes);
      EXPECT_EQ(read.counted, to->largest_part_bytes() - parts.local().bytes());
    }
  });
}

// A parameter that the operator gathers because that is cheapest.
TEST_P(InBoxes, OfAParameterThatMoves) {
  const int64_t ranks = GetParam();
  const Mesh mesh = Mesh::parse("dp=" + std::to_string(ranks));
  run(ranks, [&](Runtime& rt) {
    const DistTensor x = numbers({4096, 96}, mesh, "S0", 1).set_requires_grad();
    DistTensor w = numbers({96, 96}, mesh, "S0", 2);
    w.as_parameter(Keep::kGatherOnUse);
    const DistTensor whole = w.detach().redistribute("R").as_parameter();
    const auto stats = [&] { return rt.context().allocator->stats(); };
    rt.context().allocator->reset_peak();
    const int64_t before = stats().current_bytes;
    const DistTensor y = matmul(x, w);
    EXPECT_EQ(y.spec(), matmul(x, whole).spec());
    EXPECT_LT(stats().peak_bytes - before,
              2 * y.local().bytes() + w.local().bytes());
    const auto g = grad(sum(square(y)), {x, w});
    const auto want = grad(sum(square(matmul(x, whole))), {x, whole});
    for (size_t i = 0; i < 2; ++i) {
      const auto a = g[i].full().to_doubles(), b = want[i].full().to_doubles();
      for (size_t k = 0; k < a.size(); ++k)
        ASSERT_NEAR(a[k], b[k], 1e-9 * (1 + std::abs(b[k])));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, InBoxes, ::testing::Values(2, 3));

// Every rank adds up in the same order, so copies of the result are equal.
TEST(InBoxesOnTwoAxes, ReplicasAreEqual) {
  const Mesh mesh = Mesh::parse("dp=2,tp=2");
  run(4, [&](Runtime&) {
    const NoGrad no_grad;
    const DistTensor x = numbers({5, 131}, mesh, {}, 1);
    DistTensor w = numbers({131, 67}, mesh, "S0,S1", 2);
    const DistTensor whole = matmul(x, w.redistribute("R,S1").as_parameter());
    w.gather_on_use("R,S1");
    const DistTensor y = matmul(x, w);
    EXPECT_EQ(y.spec(), whole.spec());
    const auto a = y.full().to_doubles(), b = whole.full().to_doubles();
    for (size_t k = 0; k < a.size(); ++k) ASSERT_NEAR(a[k], b[k], 1e-12);
    const NamedTensor named[] = {{"y", y}};
    check_replicas(named);
  });
}

// The parameter is gathered, not read in place, if a gradient will need it.
TEST(InBoxesWithGradients, HeldForTheGradient) {
  const Mesh mesh = Mesh::parse("dp=2");
  run(2, [&](Runtime& rt) {
    const DistTensor x = numbers({14, 131}, mesh, "S0", 1).set_requires_grad();
    DistTensor w = numbers({131, 67}, mesh, "S0", 2);
    const DistTensor whole = w.redistribute("R").as_parameter();
    w.gather_on_use({});
    const auto held = [&] {
      return rt.context()
          .allocator->stats()
          .of(MemoryKind::kGathered)
          .current_bytes;
    };
    rt.context().gather_budget = 1 << 20;
    const DistTensor y = matmul(x, w);
    EXPECT_EQ(held(), w.use_spec()->largest_part_bytes());
    const auto g = grad(sum(square(y)), {x, w}, {.release_graph = true});
    EXPECT_EQ(held(), 0);
    const auto want = grad(sum(square(matmul(x, whole))), {x, whole});
    EXPECT_EQ(g[0].full().to_doubles(), want[0].full().to_doubles());
  });
}

// A value that another run left cannot be read: the ranks that hold its parts
// are gone.
TEST(InBoxesOfAnotherRun, IsRefused) {
  const Mesh mesh = Mesh::parse("dp=2");
  std::vector<DistTensor> kept(2);
  run(2, [&](Runtime& rt) {
    kept[static_cast<size_t>(rt.rank())] =
        numbers({131, 67}, mesh, "S0", 2).as_parameter(Keep::kGatherOnUse);
  });
  run(2, [&](Runtime& rt) {
    const DistTensor x = numbers({4096, 131}, mesh, "S0", 1);
    const std::string e = testing::error_of(
        [&] { matmul(x, kept[static_cast<size_t>(rt.rank())]); });
    EXPECT_NE(e.find("belongs to another run()"), e.npos) << e;
  });
}

}  // namespace
}  // namespace dtensor
