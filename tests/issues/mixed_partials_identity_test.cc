// SPDX-License-Identifier: Apache-2.0
// A value that becomes partial on several axes, with different reductions: the
// ranks of other terms have to hold the identity of the innermost reduction to
// which they are not the first. They held the outermost one's: -3 as P(prod),P
// read -6, as P(max),P(prod) inf, the i64 5 as P(min),P -2. And of a whole
// segment of a concatenation that several ranks hold, one of them gives it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

// -3, -2, ... 2, 3, 5 and so on: no zeros, of both signs.
Tensor numbers(const Shape& shape, DType dtype) {
  Tensor t = Tensor::empty(shape, dtype);
  visit(dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, double> || std::is_same_v<T, int64_t>)
      for (int64_t i = 0; i < t.numel(); ++i)
        t.mutable_ptr<T>()[i] = static_cast<T>(i % 7 == 3 ? 5 : i % 7 - 3);
  });
  return t;
}

void expect_equal(const Tensor& got, const Tensor& expected,
                  const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  const Tensor full = got.to_contiguous();
  visit(got.dtype(), [&]<class T>() {
    if constexpr (std::is_same_v<T, double> || std::is_same_v<T, int64_t>) {
      for (int64_t i = 0; i < full.numel(); ++i)
        EXPECT_EQ(full.ptr<T>()[i], expected.ptr<T>()[i])
            << what << " at " << i;
    }
  });
}

// Per axis one of the kinds, and the partials in both orders.
std::vector<Layout> layouts(const Mesh& mesh, const Shape& shape,
                            const std::vector<const char*>& kinds) {
  std::vector<Layout> all;
  for (const char* a : kinds)
    for (const char* b : kinds) {
      Layout l = parse_layout(std::string(a) + "," + b, mesh, shape);
      all.push_back(l);
      if (l.partials.size() < 2) continue;
      std::swap(l.partials[0], l.partials[1]);
      all.push_back(l.canonical(mesh));
    }
  return all;
}

TEST(MixedPartialsIdentity, TheTableOfTheReport) {
  run(4, [](Runtime&) {
    const Mesh mesh = Mesh::parse("a=2,b=2");
    for (const char* layout : {"P(prod),P", "P(max),P(prod)", "P(max),P",
                               "P(min),P", "P(prod),P(min)"})
      for (DType t : {DType::kF64, DType::kI64})
        for (double x : {-3., 5.}) {
          const DistTensor d =
              DistTensor::from_global(Tensor::full({3}, t, x), mesh, layout);
          EXPECT_EQ(d.full().at(2), x) << layout << " " << name(t);
        }
  });
}

TEST(MixedPartialsIdentity, EveryPairOnTwoAxes) {
  run(6, [&](Runtime&) {
    const Mesh mesh = Mesh::parse("a=2,b=3");
    const Shape shape{5, 3};
    std::vector<Layout> all = layouts(
        mesh, shape, {"R", "S0", "S1", "P", "P(max)", "P(prod)", "P(min)"});
    for (const char* tree : {"S0(2|a=3:a),R", "S0(2|a=3:a),P(max)",
                             "S0(2|a=3:a),S1", "R,S0(1|a=4:a)"})
      all.push_back(parse_layout(tree, mesh, shape));
    for (DType t : {DType::kF64, DType::kI64}) {
      const Tensor value = numbers(shape, t);
      for (const Layout& from : all) {
        const DistTensor x =
            DistTensor::from_global(value, mesh, Placements(from));
        for (const Layout& to : all) {
          const DistTensor y = x.redistribute(Spec::get(mesh, shape, to, t));
          expect_equal(y.full(), value,
                       from.to_string(mesh) + " -> " + to.to_string(mesh));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

TEST(MixedPartialsIdentity, ThreeAxesAndMeans) {
  run(8, [](Runtime&) {
    const Mesh mesh = Mesh::parse("2x2x2");
    const Tensor value = numbers({4, 2}, DType::kF64);
    for (const char* from : {"R,R,R", "S0,S1,R", "R,P(max),R", "S0,S0,P"})
      for (const char* to :
           {"P(prod),P,P(max)", "P(max),P(prod),P", "P,P(min),P(prod)",
            "P(prod),P(prod),P", "R,P(mean),P", "P,P(mean),R", "P(avg),P,R",
            "P,P(avg),P(max)", "P(mean),R,P(prod)"}) {
        DistTensor y;
        try {
          y = DistTensor::from_global(value, mesh, from).redistribute(to);
        } catch (const Error& e) {
          // An average of a split axis, and what no layout may say.
          const std::string what = e.what();
          EXPECT_TRUE(what.find("mean") != std::string::npos ||
                      what.find("average") != std::string::npos)
              << what;
          continue;
        }
        expect_equal(y.full(), value, std::string(from) + " -> " + to);
      }
  });
}

// What moves a mixed partial on: views and concatenations.
TEST(MixedPartialsIdentity, AfterReshapeAndCat) {
  run(4, [](Runtime&) {
    const Mesh mesh = Mesh::parse("2x2");
    const Shape shape{2, 3};
    const Tensor value = numbers(shape, DType::kI64);
    for (const char* text :
         {"[{},{}] P{a1:min} P{a0}", "[{},{}] P{a0} P{a1:max}",
          "[{},{}] P{a0:prod} P{a1}"}) {
      const DistTensor x = DistTensor::from_global(value, mesh, text);
      expect_equal(reshape(x, {3, 2}).full(), value.reshape({3, 2}), text);
      const DistTensor y =
          DistTensor::from_global(value, mesh, "[{},{}] P{a0} P{a1:max}");
      const DistTensor both = cat({x, y}, 0);
      expect_equal(both.full().slice(0, 0, 2), value, text);
      expect_equal(both.full().slice(0, 2, 4), value, text);
    }
  });
}

}  // namespace
}  // namespace dtensor
