// SPDX-License-Identifier: Apache-2.0
// Bugs about layouts and redistribution that other libraries have fixed. Views
// are in view_test.cc, slices in slice_test.cc, and cotangents in
// tests/dtensor/autograd_test.cc. Issue numbers are PyTorch's unless the
// comment names another project.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/losses.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

// 1, 2, 3, ... in row-major order.
Tensor counted(const Shape& shape, DType type = DType::kF64) {
  std::vector<double> v;
  for (int64_t i = 0; i < numel(shape); ++i)
    v.push_back(static_cast<double>(i + 1));
  Tensor t = Tensor::from(shape, v.data());
  if (type == DType::kF64) return t;
  Tensor other = Tensor::empty(shape, type);
  for (int64_t i = 0; i < t.numel(); ++i)
    if (type == DType::kF32)
      other.mutable_ptr<float>()[i] = static_cast<float>(t.at(i));
  return other;
}

void expect_equal(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(to_string(got.shape()), to_string(want.shape()));
  for (int64_t i = 0; i < want.numel(); ++i) ASSERT_EQ(got.at(i), want.at(i));
}

// The collectives that `fn` runs: "all-gather on a0, ...".
std::string collectives(Runtime& rt, const std::function<void()>& fn) {
  RankContext& ctx = rt.context();
  ctx.record = true;
  ctx.events.clear();
  fn();
  std::string text;
  for (const CommEvent& e : ctx.events)
    text += (text.empty() ? "" : ", ") + std::string(name(e.kind)) + " on " +
            e.mesh.axes_to_string(e.axes);
  ctx.record = false;
  ctx.events.clear();
  return text;
}

// The rows of each rank of the mesh, by its own region.
std::vector<int64_t> rows_of(const Spec* s) {
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < s->mesh().num_ranks(); ++r)
    rows.push_back(length(s->region(s->mesh().coordinate(r))[0]));
  return rows;
}

const Spec* spec(const char* mesh, const Shape& shape, const char* layout) {
  Mesh m = Mesh::parse(mesh);
  return Spec::get(m, shape, parse_layout(layout, m, shape), DType::kF32);
}

// #124339, #103306, #194457: sizes of parts, by default and as listed.
TEST(Pitfalls, Chunking) {
  using Rows = std::vector<int64_t>;
  EXPECT_EQ(rows_of(spec("4", {5}, "S0")), (Rows{1, 1, 1, 2}));
  EXPECT_EQ(rows_of(spec("4", {5}, "S0@0|2|4|5|5")), (Rows{2, 2, 1, 0}));
  EXPECT_EQ(rows_of(spec("3x2", {8}, "S0,S0")), (Rows{1, 1, 2, 1, 1, 2}));
  EXPECT_EQ(rows_of(spec("3x2", {8}, "S0@0|2|3|5|6|7|8,S0")),
            (Rows{2, 1, 2, 1, 1, 1}));
  EXPECT_EQ(rows_of(spec("2x2", {5}, "S0,S0")), (Rows{1, 1, 1, 2}));
  EXPECT_EQ(rows_of(spec("2x2", {5}, "S0@0|2|3|4|5,S0")), (Rows{2, 1, 1, 1}));
}

TEST(Pitfalls, NoRowIsLostOnTheWayToFull) {
  for (const char* layout :
       {"S0,S0", "[{a1,a0},{}]", "S0@0|2|3|4|5,S0", "S0@0|0|5|5|5,S0", "S0,R",
        "R,S0", "S0,S1", "S1,S0", "P,S0", "S0,P"})
    run(4, [&](Runtime& rt) {
      Mesh mesh = rt.mesh({{"a0", 2}, {"a1", 2}});
      Tensor whole = counted({5, 3});
      DistTensor x = DistTensor::from_global(whole, mesh, layout);
      expect_equal(x.full(), whole);
    });
}

// Each change of the layout on one axis takes at most one collective.
TEST(Pitfalls, OneCollectiveForOneChange) {
  const struct {
    const char *from, *to, *sends;
  } cases[] = {{"S0", "R", "all-gather on a0"},
               {"S0", "S1", "all-to-all on a0"},
               {"S1", "S0", "all-to-all on a0"},
               {"R", "S0", ""},
               {"P", "R", "all-reduce on a0"},
               {"P", "S1", "reduce-scatter on a0"},
               {"P(max)", "S0", "reduce-scatter on a0"},
               {"R", "P", ""},
               {"S0", "P", ""},
               {"R", "P(max)", ""},
               {"P", "P(max)", "reduce-scatter on a0"}};
  for (const auto& c : cases)
    run(3, [&](Runtime& rt) {
      Mesh mesh = rt.mesh({{"a0", 3}});
      Tensor whole = counted({5, 7});
      DistTensor x = DistTensor::from_global(whole, mesh, c.from), y;
      EXPECT_EQ(collectives(rt, [&] { y = x.redistribute(c.to); }), c.sends)
          << c.from << " -> " << c.to;
      expect_equal(y.full(), whole);
    });
}

// R -> P is exact: coordinate 0 keeps the value (dividing by 3 is not).
TEST(Pitfalls, ReplicatedToPartialKeepsEveryBit) {
  run(3, [](Runtime& rt) {
    Mesh mesh = rt.mesh({{"a0", 3}});
    Tensor tenth = Tensor::full({4}, DType::kF32, 0.1);
    DistTensor x = DistTensor::from_global(tenth, mesh, "R");
    expect_equal(x.redistribute("P").full(), tenth);
    expect_equal(add(x, x.redistribute("P")).full(),
                 Tensor::full({4}, DType::kF32, 0.2f));
  });
}

// #131210, oneflow#6292: the split over (a0, a1) is not the one over a1.
TEST(Pitfalls, TwoAxesOnOneDimension) {
  const struct {
    const char *from, *to, *sends;
  } cases[] = {{"S1,S1", "S1,S2", "all-to-all on a1"},
               {"S0,S0", "R,S0", "exchange on a0,a1"},
               {"S0,P", "S0,S0", "reduce-scatter on a1"},
               {"R,S1", "S0,S0", nullptr}};
  for (const auto& c : cases)
    run(4, [&](Runtime& rt) {
      Mesh mesh = rt.mesh({{"a0", 2}, {"a1", 2}});
      Tensor whole = counted({5, 7, 3});
      DistTensor x = DistTensor::from_global(whole, mesh, c.from), y;
      std::string sent = collectives(rt, [&] { y = x.redistribute(c.to); });
      if (c.sends) {
        EXPECT_EQ(sent, c.sends) << c.from << " -> " << c.to;
      }
      EXPECT_EQ(y.layout().to_string(mesh), c.to);
      expect_equal(y.full(), whole);
    });
}

// #144109: parts of 2, 3, 4 and 5 columns are 14 columns; no size is guessed.
TEST(Pitfalls, ColumnsAsTheyCome) {
  run(4, [](Runtime& rt) {
    Mesh mesh = rt.mesh({{"a0", 4}});
    Tensor whole = counted({3, 14});
    DistTensor x = DistTensor::from_global(whole, mesh, "S1@0|2|5|9|14");
    EXPECT_EQ(x.local().shape()[1], rt.rank() + 2);
    DistTensor y = DistTensor::from_local(x.local().clone(), mesh,
                                          "S1@0|2|5|9|14", {3, 14});
    expect_equal(y.full(), whole);
    expect_equal(y.redistribute("S0").full(), whole);
    // Parts that are not the layout's are refused on every rank that has one.
    if (rt.rank() != 1 && rt.rank() != 2) {
      EXPECT_THROW(DistTensor::from_local(x.local(), mesh, "S1", {3, 14}),
                   Error);
    }
  });
}

// #143372: a part without rows is a part like any other.
TEST(Pitfalls, EmptyPartsAreOrdinary) {
  run(4, [](Runtime& rt) {
    Mesh mesh = rt.mesh({{"a0", 4}});
    Tensor whole = counted({2, 6});
    DistTensor x = DistTensor::from_global(whole, mesh, "S0");
    EXPECT_EQ(x.local().shape()[0], rt.rank() % 2);
    expect_equal(view(x, {2, 2, 3}).full(), whole.reshape({2, 2, 3}));
    expect_equal(x.redistribute("S1").full(), whole);
    EXPECT_EQ(sum(x).item(), 78);
    DistTensor none = slice(x, 0, 1, 1);
    EXPECT_EQ(none.full().numel(), 0);
  });
}

// #162692: the mean of uneven parts, and of none.
TEST(Pitfalls, MeanOfUnevenParts) {
  for (int64_t rows : {7, 5, 2, 1})
    run(4, [&](Runtime& rt) {
      Mesh mesh = rt.mesh({{"a0", 4}});
      DistTensor x = DistTensor::from_global(counted({rows, 3}), mesh, "S0");
      EXPECT_DOUBLE_EQ(mean(x).item(), (static_cast<double>(rows) * 3 + 1) / 2);
    });
}

// #166598: the operands split a contracted dimension in different axis orders.
TEST(Pitfalls, OperandsOfDifferentAxisOrders) {
  run(4, [](Runtime& rt) {
    Mesh mesh = rt.mesh({{"a0", 2}, {"a1", 2}});
    Tensor a = counted({3, 5}), b = counted({5, 2});
    DistTensor c = matmul(DistTensor::from_global(a, mesh, "[{},{a0,a1}]"),
                          DistTensor::from_global(b, mesh, "[{a1,a0},{}]"));
    Tensor got = c.full();
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 2; ++j) {
        double want = 0;
        for (int64_t k = 0; k < 5; ++k)
          want += a.at(i * 5 + k) * b.at(k * 2 + j);
        EXPECT_EQ(got.at(i * 2 + j), want);
      }
  });
}

// #150433: types that differ between ranks are an error on all of them, not a
// hang.
TEST(Pitfalls, TypesThatDifferBetweenRanks) {
  try {
    run(2, [](Runtime& rt) {
      Mesh mesh = rt.mesh({{"a0", 2}});
      DistTensor x = DistTensor::from_global(
          counted({4, 2}, rt.rank() ? DType::kF32 : DType::kF64), mesh, "S0");
      x.full();
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("f32[4, 2]"), std::string::npos)
        << e.what();
    EXPECT_NE(std::string(e.what()).find("f64[4, 2]"), std::string::npos)
        << e.what();
  }
}

// So are layouts that differ between ranks.
TEST(Pitfalls, LayoutsThatDifferBetweenRanks) {
  EXPECT_THROW(run(2,
                   [](Runtime& rt) {
                     Mesh mesh = rt.mesh({{"a0", 2}});
                     DistTensor x = DistTensor::from_global(
                         counted({4, 4}), mesh, rt.rank() ? "S0" : "S1");
                     x.full();
                   }),
               Error);
}

// Megatron#1754: the number of ranks does not divide the vocabulary.
// tt-mlir#9317: nor the dimension of a reduce-scatter.
TEST(Pitfalls, SizesThatRanksDoNotDivide) {
  run(2, [](Runtime& rt) {
    Mesh mesh = rt.mesh({{"tp", 2}});
    constexpr int64_t kVocabulary = 50257;
    DistTensor logits =
        randn({3, kVocabulary}, mesh, "S1", DType::kF64, {1, 2});
    EXPECT_EQ(logits.local().shape()[1], rt.rank() ? 25129 : 25128);
    const int64_t which[] = {0, 25128, 50256};
    DistTensor target =
        DistTensor::from_global(Tensor::from({3}, which), mesh, "R");
    double split = cross_entropy(logits, target).item();
    double whole = cross_entropy(logits.redistribute("R"), target).item();
    EXPECT_NEAR(split, whole, 1e-12 * whole);
    DistTensor partial =
        DistTensor::from_global(counted({kVocabulary}), mesh, "P");
    DistTensor scattered = partial.redistribute("S0");
    EXPECT_EQ(scattered.local().numel(), rt.rank() ? 25129 : 25128);
    expect_equal(scattered.full(), counted({kVocabulary}));
  });
}

// An error's text has the operator, every operand's spec, and the mesh.
TEST(Pitfalls, ErrorsShowTheOperands) {
  try {
    run(2, [](Runtime& rt) {
      Mesh mesh = rt.mesh({{"dp", 2}});
      matmul(DistTensor::from_global(counted({4, 5}), mesh, "S0"),
             DistTensor::from_global(counted({4, 5}), mesh, "R"));
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    std::string text = e.what();
    EXPECT_NE(text.find("[matmul]"), std::string::npos) << text;
    EXPECT_NE(text.find("[4, 5]"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace dtensor
