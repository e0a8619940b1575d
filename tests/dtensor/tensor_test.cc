// SPDX-License-Identifier: Apache-2.0
#include "dtensor/tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "tests/array.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;
using testing::values;

// 0, 1, 2, ... in row-major order.
Tensor iota(const Shape& shape, DType dtype = DType::kF64) {
  Tensor t = Tensor::empty(shape, dtype);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.as_strided({1}, {1}, i).fill(static_cast<double>(i));
  return t;
}

// Calls fn(index) for every index of `shape`, in row-major order.
template <class Fn>
void for_each_index(const Shape& shape, Fn fn) {
  const int64_t n = numel(shape);
  for (int64_t i = 0; i < n; ++i) {
    Shape index = Shape::filled(shape.size(), 0);
    int64_t rest = i;
    for (int d = shape.size() - 1; d >= 0; --d) {
      index[d] = rest % shape[d];
      rest /= shape[d];
    }
    fn(index);
  }
}

// The expected values of a tensor, in row-major order.
struct Model {
  Shape shape;
  std::vector<double> v;

  double at(const Shape& index) const {
    int64_t i = 0;
    for (int d = 0; d < shape.size(); ++d) i = i * shape[d] + index[d];
    return v[static_cast<size_t>(i)];
  }
  // The tensor of shape `to` whose element at i is this one's at from(i).
  template <class Fn>
  Model gather(const Shape& to, Fn from) const {
    Model m{to, {}};
    for_each_index(to, [&](const Shape& i) { m.v.push_back(at(from(i))); });
    return m;
  }
};

// Do any strides put the elements of t, in row-major order, into shape `to`?
bool strides_exist(const Tensor& t, const Shape& to) {
  std::vector<int64_t> offsets;  // of t's elements, in row-major order
  for_each_index(t.shape(), [&](const Shape& i) {
    int64_t at = 0;
    for (int d = 0; d < i.size(); ++d) at += i[d] * t.strides()[d];
    offsets.push_back(at);
  });
  // One step along a dimension says its stride; the rest has to follow.
  const Shape steps = contiguous_strides(to);
  bool follows = true;
  for_each_index(to, [&](const Shape& i) {
    int64_t position = 0, at = offsets[0];
    for (int d = 0; d < i.size(); ++d) {
      position += i[d] * steps[d];
      if (to[d] > 1)
        at += i[d] * (offsets[static_cast<size_t>(steps[d])] - offsets[0]);
    }
    follows &= offsets[static_cast<size_t>(position)] == at;
  });
  return follows;
}

TEST(TensorTest, UndefinedAndEmpty) {
  EXPECT_FALSE(Tensor().defined());
  Tensor t = Tensor::empty({2, 0, 3}, DType::kF32);
  EXPECT_TRUE(t.defined());
  EXPECT_EQ(t.numel(), 0);
  EXPECT_EQ(t.bytes(), 0);
  EXPECT_TRUE(t.contiguous());
  t.fill(1);
  t.copy_from(Tensor::empty({2, 0, 3}, DType::kF32));
  EXPECT_EQ(t.reshape({0, 7}).shape(), (Shape{0, 7}));
  EXPECT_EQ(Tensor::full({}, DType::kI64, 5).at(0), 5);
}

TEST(TensorTest, FullOfEveryType) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType t = static_cast<DType>(i);
    Tensor x = Tensor::full({3, 2}, t, 1);
    EXPECT_EQ(x.dtype(), t);
    EXPECT_EQ(x.bytes(), 6 * size_of(t));
    EXPECT_EQ(values(x), std::vector<double>(6, 1)) << name(t);
  }
  EXPECT_EQ(Tensor::full({1}, DType::kI32, -7.9).at(0), -7);
  EXPECT_EQ(Tensor::full({1}, DType::kBF16, 1.0 / 3).at(0), 0.333984375);
  EXPECT_EQ(Tensor::full({1}, DType::kF16, 1.0 / 3).at(0), 0.333251953125);
}

TEST(TensorTest, FromCopiesRowMajor) {
  const float f[] = {1, 2, 3, 4, 5, 6};
  Tensor t = Tensor::from({2, 3}, f);
  EXPECT_EQ(t.dtype(), DType::kF32);
  EXPECT_EQ(values(t.transpose(0, 1)), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  const bool b[] = {true, false};
  EXPECT_EQ(values(Tensor::from({2}, b)), (std::vector<double>{1, 0}));
}

// A long random walk through views, against values in row-major order.
TEST(TensorTest, ViewsAgainstBruteForce) {
  std::mt19937 rng(7);
  auto below = [&](int64_t n) {
    return static_cast<int64_t>(rng() % static_cast<uint64_t>(n));
  };
  int views = 0, copies = 0;
  for (int walk = 0; walk < 3000; ++walk) {
    Shape shape;
    for (int64_t i = 0, n = below(5); i < n; ++i)
      shape.push_back(below(12) == 0 ? 0 : 1 + below(6));
    const DType dtype = walk % 2 ? DType::kF64 : DType::kI32;
    Tensor t = iota(shape, dtype);
    Model m{shape, {}};
    for (int64_t i = 0; i < t.numel(); ++i)
      m.v.push_back(static_cast<double>(i));
    for (int step = 0; step < 8; ++step) {
      switch (below(5)) {
        case 0: {  // permute
          std::vector<int64_t> order(static_cast<size_t>(m.shape.size()));
          std::iota(order.begin(), order.end(), 0);
          std::shuffle(order.begin(), order.end(), rng);
          const Shape o{std::span<const int64_t>(order)};
          Shape to;
          for (int64_t d : o) to.push_back(m.shape[static_cast<int>(d)]);
          m = m.gather(to, [&](const Shape& i) {
            Shape from = i;
            for (int d = 0; d < o.size(); ++d)
              from[static_cast<int>(o[d])] = i[d];
            return from;
          });
          t = t.permute(o);
          break;
        }
        case 1: {  // slice
          if (m.shape.empty()) break;
          const int d = static_cast<int>(below(m.shape.size()));
          const int64_t lo = below(m.shape[d] + 1);
          const int64_t hi = lo + below(m.shape[d] - lo + 1);
          const int64_t step = 1 + below(3);
          Shape to = m.shape;
          to[d] = (hi - lo + step - 1) / step;
          m = m.gather(to, [&](Shape i) {
            i[d] = lo + i[d] * step;
            return i;
          });
          t = t.slice(d, lo, hi, step);
          break;
        }
        case 2: {  // expand, some with a new dimension
          Shape to = m.shape;
          for (int64_t& n : to)
            if (n == 1 && below(2)) n = below(4);
          const int added = to.size() < 5 && below(3) == 0 ? 1 : 0;
          if (added) to.insert(0, 2);
          if (numel(to) > 3000) break;
          const Shape from_shape = m.shape;
          m = m.gather(to, [&](const Shape& i) {
            Shape from = from_shape;
            for (int d = 0; d < from.size(); ++d)
              from[d] = from_shape[d] == 1 ? 0 : i[added + d];
            return from;
          });
          t = t.expand(to);
          break;
        }
        case 3: {  // reshape
          Shape to;
          int64_t left = numel(m.shape);
          if (left == 0) break;
          while (left > 1 && to.size() < 4) {
            int64_t f = 1 + below(left);
            while (left % f != 0) --f;
            to.push_back(f);
            left /= f;
          }
          to.push_back(left);
          m.shape = to;
          const bool view = t.can_view(to);
          EXPECT_EQ(view, strides_exist(t, to))
              << to_string(t.shape()) << to_string(t.strides())
              << to_string(to);
          Tensor r = t.reshape(to);
          EXPECT_EQ(r.storage() == t.storage(), view);
          ++(view ? views : copies);
          t = r;
          break;
        }
        default:  // copies
          if (below(2)) {
            EXPECT_EQ(t.to_contiguous().storage() == t.storage(),
                      t.contiguous());
            t = t.to_contiguous();
          } else {
            t = t.clone();
          }
          EXPECT_TRUE(t.contiguous());
          break;
      }
      ASSERT_EQ(t.shape(), m.shape);
      ASSERT_EQ(t.numel(), numel(m.shape));
      ASSERT_EQ(values(t), m.v);
      for (int64_t i = 0; i < t.numel(); ++i)
        ASSERT_EQ(t.at(i), m.v[static_cast<size_t>(i)]);
    }
  }
  // The walk reshaped to views and to copies.
  EXPECT_GT(views, 50);
  EXPECT_GT(copies, 50);
}

// can_view says yes exactly when some strides describe the reshaped tensor.
TEST(TensorTest, CanViewIsExact) {
  Tensor t = iota({4, 6});
  EXPECT_TRUE(t.can_view({24}));
  EXPECT_FALSE(t.can_view({25}));
  Tensor columns = t.slice(1, 0, 3);
  EXPECT_FALSE(columns.can_view({12}));
  EXPECT_TRUE(columns.can_view({2, 2, 3}));
  EXPECT_TRUE(columns.can_view({2, 2, 1, 3, 1}));
  EXPECT_FALSE(columns.can_view({6, 2}));
  Tensor turned = t.transpose(0, 1);
  EXPECT_TRUE(turned.can_view({3, 2, 4}));
  EXPECT_FALSE(turned.can_view({24}));
  // Size-1 dimensions do not count, whatever their strides.
  Tensor one = t.as_strided({4, 1, 6}, {6, 999, 1}, 0);
  EXPECT_TRUE(one.contiguous());
  EXPECT_TRUE(one.can_view({24}));
  EXPECT_TRUE(t.slice(0, 1, 3).contiguous());
  EXPECT_FALSE(columns.contiguous());
}

TEST(TensorTest, CopyFromAnyStrides) {
  Tensor t = iota({3, 4, 5});
  Tensor out = Tensor::full({5, 3, 4}, DType::kF64, -1);
  out.copy_from(t.permute({2, 0, 1}));
  for_each_index({5, 3, 4}, [&](const Shape& i) {
    EXPECT_EQ(out.at((i[0] * 3 + i[1]) * 4 + i[2]),
              (i[1] * 4 + i[2]) * 5 + i[0]);
  });
  Tensor half = out.slice(2, 0, 4, 2);
  half.copy_from(Tensor::full({5, 3, 1}, DType::kF64, 9).expand({5, 3, 2}));
  EXPECT_EQ(out.at(0), 9);
  EXPECT_EQ(out.at(1), 5);
}

// Windows on the same memory are copied as if the source were elsewhere.
TEST(TensorTest, CopyBetweenOverlappingWindows) {
  Tensor t = iota({6});
  t.slice(0, 1, 6).copy_from(t.slice(0, 0, 5));
  EXPECT_EQ(values(t), (std::vector<double>{0, 0, 1, 2, 3, 4}));
  Tensor m = iota({3, 3});
  m.copy_from(m.transpose(0, 1));
  EXPECT_EQ(values(m), (std::vector<double>{0, 3, 6, 1, 4, 7, 2, 5, 8}));
}

TEST(TensorTest, IntegersAreReadExactly) {
  // No double equals the first of these, and the last is the smallest int64_t.
  const int64_t v[] = {(int64_t{1} << 53) + 1, -7,
                       std::numeric_limits<int64_t>::min()};
  const Tensor x = Tensor::from({3}, v);
  EXPECT_EQ(x.to_integers(), std::vector<int64_t>(std::begin(v), std::end(v)));
  EXPECT_EQ(x.slice(0, 0, 3, 2).to_integers(),
            (std::vector<int64_t>{v[0], v[2]}));
  EXPECT_EQ(Tensor::full({2}, DType::kI32, -3).to_integers(),
            (std::vector<int64_t>{-3, -3}));
  EXPECT_TRUE(Tensor::empty({0}, DType::kI64).to_integers().empty());
  EXPECT_EQ(error_of([] { Tensor::full({2}, DType::kF32, 1).to_integers(); }),
            "[to_integers] the type is f32, not i32 or i64; call to_doubles()");
}

TEST(TensorTest, WritesRaiseTheVersion) {
  Tensor t = iota({2, 2}), other = iota({2, 2});
  const uint64_t v = t.storage()->version();
  const uint64_t o = other.storage()->version();
  Tensor window = t.slice(0, 0, 1);
  EXPECT_EQ(t.storage()->version(), v);
  window.fill(3);
  EXPECT_EQ(t.storage()->version(), v + 1);
  t.copy_from(other);
  EXPECT_EQ(t.storage()->version(), v + 2);
  EXPECT_EQ(other.storage()->version(), o);
  t.storage()->bump_version();
  EXPECT_EQ(window.storage()->version(), v + 3);
}

TEST(TensorTest, Errors) {
  Tensor t = iota({2, 3});
  EXPECT_EQ(error_of([&] { t.slice(1, 2, 4); }),
            "[slice] [2, 4) is not a range of dimension 1 of [2, 3]; write 0 "
            "<= lo <= hi <= 3");
  EXPECT_EQ(error_of([&] { t.slice(1, 0, 3, 0); }),
            "[slice] the step is 0; write 1 or more");
  EXPECT_EQ(error_of([&] {
              t.permute({0, 0});
            }),
            "[permute] the order [0, 0] names dimension 0 twice; name each "
            "dimension once");
  EXPECT_THROW(t.permute({0}), Error);
  EXPECT_THROW(t.permute({0, 2}), Error);
  EXPECT_THROW(t.transpose(0, 2), Error);
  EXPECT_EQ(error_of([&] {
              t.expand({2, 6});
            }),
            "[expand] [2, 3] cannot become [2, 6], because dimension 1 is 3 "
            "and only a dimension of size 1 can be repeated; keep its size");
  EXPECT_THROW(t.expand({3}), Error);
  EXPECT_EQ(error_of([&] { t.reshape({4}); }),
            "[reshape] [2, 3] has 6 elements, but [4] has 4; write a shape "
            "with as many elements");
  EXPECT_EQ(error_of([&] {
              t.as_strided({2, 2}, {5, 1}, 0);
            }),
            "[as_strided] shape [2, 2] with strides [5, 1], from element 0 of "
            "the storage on, reaches elements 0 to 6, but the storage has 6, "
            "numbered from 0; choose a view inside the storage");
  EXPECT_EQ(error_of([&] {
              t.as_strided({2, 2}, {1}, 0);
            }),
            "[as_strided] shape [2, 2] and strides [1] differ in length; pass "
            "one stride for each dimension");
  EXPECT_EQ(error_of([&] { t.as_strided({3}, {int64_t{1} << 62}, 0); }),
            "[as_strided] shape [3] with strides [4611686018427387904] and "
            "offset 0 reaches more elements than 64 bits can count; write "
            "smaller ones");
  EXPECT_THROW(t.as_strided({2}, {-1}, 0), Error);
  EXPECT_THROW(t.as_strided({4, 1}, {-1, -1}, 1), Error);
  EXPECT_THROW(t.as_strided({2, 2}, {int64_t{1} << 62, int64_t{1} << 62}, 0),
               Error);
  EXPECT_EQ(values(t.as_strided({2}, {-1}, 1)), (std::vector<double>{1, 0}));
  // Entries beyond the size of a shape are ignored.
  Shape shape{2, 9}, strides{3, 9};
  shape.pop_back();
  strides.pop_back();
  EXPECT_EQ(values(t.as_strided(shape, strides, 0)),
            (std::vector<double>{0, 3}));
  EXPECT_EQ(error_of([&] {
              t.copy_from(iota({3, 2}));
            }),
            "[copy_from] f64[3, 2] cannot be copied to f64[2, 3]; pass a "
            "tensor of that type and shape");
  EXPECT_THROW(t.copy_from(iota({2, 3}, DType::kI32)), Error);
  EXPECT_EQ(
      error_of([] { Tensor::full({}, DType::kF32, 0).copy_from(Tensor()); }),
      "[copy_from] an undefined Tensor cannot be copied to f32[]; pass a "
      "tensor of that type and shape");
  Tensor repeated = iota({1}).expand({4});
  EXPECT_EQ(error_of([&] { repeated.fill(0); }),
            "[fill] a tensor of shape [4] repeats its elements along dimension "
            "0; write to a clone() of it");
  EXPECT_EQ(
      error_of([&] { t.at(6); }),
      "[at] there is no element 6: the tensor has 6 elements, numbered from 0");
}

// A rank's tensors come from its allocator, under the running op's name, and
// keep that allocator alive.
TEST(TensorTest, RanksAllocateFromTheirOwn) {
  Tensor kept;
  std::shared_ptr<Allocator> mine = Allocator::on(cpu());
  {
    RankContext context;
    context.allocator = mine;
    RankContext::set_current(&context);
    Scoped<std::string_view> op(context.op, "matmul");
    kept = Tensor::full({10}, DType::kF32, 4);
    RankContext::set_current(nullptr);
  }
  EXPECT_EQ(mine->stats().current_bytes, 40);
  EXPECT_EQ(mine->stats().largest_by_tag.at("matmul"), 40);
  std::weak_ptr<Allocator> watch = mine;
  mine.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(kept.at(9), 4);
  kept = Tensor();
  EXPECT_TRUE(watch.expired());
}

// Memory counts as the rank's current memory_kind, and its kind may be changed
// later.
TEST(TensorTest, MemoryHasAKind) {
  RankContext context;
  context.allocator = Allocator::on(cpu());
  RankContext::set_current(&context);
  const auto bytes = [&](MemoryKind k) {
    return context.allocator->stats().of(k).current_bytes;
  };
  Tensor t;
  {
    const Scoped<MemoryKind> kind(context.memory_kind, MemoryKind::kState);
    t = Tensor::empty({10}, DType::kF64);
  }
  EXPECT_EQ(t.storage()->kind(), MemoryKind::kState);
  EXPECT_EQ(bytes(MemoryKind::kState), 80);
  const Tensor other = Tensor::empty({2}, DType::kF64);
  EXPECT_EQ(bytes(MemoryKind::kActivations), 16);
  t.storage()->set_kind(MemoryKind::kGradients);
  EXPECT_EQ(bytes(MemoryKind::kState), 0);
  EXPECT_EQ(bytes(MemoryKind::kGradients), 80);
  t = Tensor();
  EXPECT_EQ(bytes(MemoryKind::kGradients), 0);
  RankContext::set_current(nullptr);
}

TEST(TensorTest, DryRunsHaveShapesAndNoData) {
  RankContext context;
  context.allocator = Allocator::on(no_device());
  RankContext::set_current(&context);
  Tensor t = Tensor::full({1 << 20, 1 << 15}, DType::kF32, 1);
  EXPECT_EQ(t.data(), nullptr);
  EXPECT_EQ(t.bytes(), int64_t{1} << 37);
  Tensor v = t.transpose(0, 1).slice(0, 0, 5);
  EXPECT_EQ(v.data(), nullptr);
  EXPECT_EQ(v.shape(), (Shape{5, 1 << 20}));
  EXPECT_EQ(v.clone().data(), nullptr);
  EXPECT_EQ(v.reshape({5 << 20}).shape(), (Shape{5 << 20}));
  const uint64_t version = t.storage()->version();
  t.fill(0);
  EXPECT_EQ(t.storage()->version(), version + 1);
  EXPECT_THROW(t.at(0), Error);
  RankContext::set_current(nullptr);
}

}  // namespace
}  // namespace dtensor
