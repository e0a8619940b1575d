// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/attrs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/op.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

struct Args {
  static constexpr Fields kFields = {"dim", "keep", "to", "shape",
                                     value("scale")};
  int64_t dim = 0;
  bool keep = false;
  DType to = DType::kF32;
  Shape shape;
  double scale = 1;
};
struct Length {
  static constexpr Fields kFields = {value_or_zero("length")};
  int64_t length;
};
struct One {
  static constexpr Fields kFields = {value("x")};
  double x;
};

std::string error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

struct Sizes {
  static constexpr Fields kFields = {"sizes"};
  Triple sizes;
};

TEST(Attrs, ATripleIsAShapeOfThreeSmallNumbers) {
  Attrs a = Sizes{Shape{3, -1}};
  EXPECT_EQ(a.to_string(), "sizes=3x-1");
  EXPECT_TRUE(a.decide_as(Sizes{Shape{3, -1}}));
  EXPECT_FALSE(a.decide_as(Sizes{Shape{3, -1, 0}}));
  a.set("sizes", "4x5x6", "test");
  EXPECT_EQ(Shape(a.as<Sizes>().sizes), (Shape{4, 5, 6}));
  for (const char* text : {"1x2x3x4", "2147483648"})
    EXPECT_EQ(error_of([&] { a.set("sizes", text, "test"); }),
              "[test] '" + std::string(text) +
                  "' does not fit; write at most three numbers of 32 bits, "
                  "such as 2x1");
  EXPECT_EQ(a.to_string(), "sizes=4x5x6");
  Triple full(Shape{1, 2, 3});
  EXPECT_EQ(error_of([&] { full.push_back(4); }),
            "[attrs] a fourth number, 4, was added to a list of three");
  EXPECT_EQ(error_of([&] { Triple(Shape{int64_t{1} << 31}); }),
            "[attrs] 2147483648 is out of range; write a number of at most 32 "
            "bits");
}

TEST(Attrs, HoldsPrintsAndReads) {
  Attrs a = Args{-1, true, DType::kBF16, {2, 3}, 0.5};
  EXPECT_EQ(a.to_string(), "dim=-1, keep=true, to=bf16, shape=2x3, scale=0.5");
  EXPECT_EQ(a.as<Args>().dim, -1);
  EXPECT_EQ(a.get<One>(), nullptr);
  a.set("dim", "7", "test");
  a.set("keep", "false", "test");
  a.set("to", "i64", "test");
  a.set("shape", "4x5x6", "test");
  a.set("scale", "1e-3", "test");
  EXPECT_EQ(a.to_string(),
            "dim=7, keep=false, to=i64, shape=4x5x6, scale=0.001");
  // Every argument can be read back from the printed text.
  for (const Op* op : all_ops())
    for (const Sample& s : op->samples()) {
      const std::string text = s.attrs.to_string();
      Attrs again = s.attrs;
      size_t from = 0;
      for (std::string_view name : s.attrs.names()) {
        const size_t eq = text.find('=', from), end = text.find(", ", from);
        again.set(name,
                  text.substr(eq + 1, std::min(end, text.size()) - eq - 1),
                  "test");
        from = end + 2;
      }
      EXPECT_EQ(again.to_string(), text) << op->name();
      EXPECT_TRUE(again.decide_as(s.attrs)) << op->name();
    }
}

TEST(Attrs, AValueOrZeroDecidesWhetherThereIsOne) {
  const Attrs none = Length{0}, three = Length{3};
  EXPECT_TRUE(three.decide_as(Length{4}));
  EXPECT_EQ(three.hash(), Attrs(Length{4}).hash());
  EXPECT_FALSE(three.decide_as(none));
  EXPECT_NE(three.hash(), none.hash());
}

TEST(Attrs, OnlyWhatDecidesIsCompared) {
  const Attrs a = Args{1, true, DType::kF32, {2}, 0.5};
  Attrs b = Args{1, true, DType::kF32, {2}, 7};
  EXPECT_TRUE(a.decide_as(b));
  EXPECT_EQ(a.hash(), b.hash());
  b.seed[0] = 9;
  EXPECT_TRUE(a.decide_as(b));
  for (const char* change : {"dim=2", "keep=false", "to=f64", "shape=2x1"}) {
    Attrs c = a;
    const std::string text = change;
    c.set(text.substr(0, text.find('=')), text.substr(text.find('=') + 1), "t");
    EXPECT_FALSE(a.decide_as(c)) << change;
    EXPECT_NE(a.hash(), c.hash()) << change;
  }
  EXPECT_FALSE(a.decide_as(One{0.5}));
  EXPECT_FALSE(a.decide_as({}));
  EXPECT_TRUE(Attrs().decide_as({}));
  // A shape that once was longer is the same shape.
  Args shorter{1, true, DType::kF32, {2, 3}, 0};
  shorter.shape.pop_back();
  EXPECT_TRUE(a.decide_as(shorter));
}

TEST(Attrs, MisuseIsASentence) {
  Attrs a = One{1};
  EXPECT_EQ(
      error_of([&] { a.as<Args>(); }),
      "[attributes] the operator reads the attributes dim, keep, to, shape, "
      "scale, but x were given; pass a struct of the type that it reads");
  EXPECT_EQ(error_of([&] { a.set("y", "1", "--args"); }),
            "[--args] there is no argument 'y'; write one of x");
  EXPECT_EQ(error_of([&] { a.set("x", "1,", "--args"); }),
            "[--args] '1,' is not a real number of 64 bits; write one, like "
            "0.5");
  Attrs b = Args{};
  EXPECT_EQ(error_of([&] { b.set("dim", "0.5", "--args"); }),
            "[--args] '0.5' is not a whole number of 64 bits; write one, like "
            "4");
  EXPECT_EQ(error_of([&] { b.set("keep", "yes", "--args"); }),
            "[--args] 'yes' is neither true nor false; write one of them");
}

}  // namespace
}  // namespace dtensor
