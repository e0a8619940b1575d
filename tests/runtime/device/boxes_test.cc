#include "dtensor/runtime/device/portable/boxes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/runtime/device/copy.h"
#include "dtensor/runtime/device/portable/executor.h"

namespace dtensor {
namespace {

using portable::host_boxes;

constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kBF16,
                            DType::kI32, DType::kI64, DType::kBool};

// Memory of a device as a test sees it: bytes of which some are an array.
struct Array {
  std::vector<int64_t> strides;
  int64_t first = 0;  // the element of index 0
  std::vector<char> bytes;
  void* at(int64_t item) { return bytes.data() + first * item; }
  const void* at(int64_t item) const { return bytes.data() + first * item; }
};

class BoxesTest : public testing::TestWithParam<int> {
 protected:
  int64_t number(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random_);
  }

  std::vector<int64_t> shape(int64_t most_dims = 4) {
    std::vector<int64_t> all(static_cast<size_t>(number(0, most_dims)));
    for (int64_t& n : all) n = number(0, 20) == 0 ? 0 : number(1, 9);
    if (!all.empty() && number(0, 2) == 0) all.back() = 4 * number(1, 20);
    return all;
  }

  // In some order of the dimensions, some with gaps, some backwards; what is a
  // source may repeat its elements.
  Array array(const std::vector<int64_t>& shape, int64_t item, bool source) {
    std::vector<size_t> order(shape.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (number(0, 1)) std::shuffle(order.begin(), order.end(), random_);
    Array a;
    a.strides.resize(shape.size());
    int64_t step = number(0, 3) ? 1 : 2, lowest = 0, highest = 0;
    for (size_t k = order.size(); k-- > 0;) {
      const size_t i = order[k];
      const int64_t last = std::max<int64_t>(shape[i] - 1, 0);
      a.strides[i] = number(0, 4) ? step : -step;
      if (source && number(0, 5) == 0) a.strides[i] = 0;
      (a.strides[i] < 0 ? lowest : highest) += a.strides[i] * last;
      step *= std::max<int64_t>(shape[i], 1);
      if (number(0, 3) == 0) step += number(1, 3);
    }
    a.first = number(0, 1) - lowest;  // some are not aligned
    a.bytes.resize(static_cast<size_t>((a.first + highest + 1) * item));
    return a;
  }

  // Values of the type; of floats some that are no numbers.
  void fill(Array& a, DType t) {
    const int64_t n = static_cast<int64_t>(a.bytes.size()) / size_of(t);
    visit(t, [&]<class T>() {
      auto* x = reinterpret_cast<T*>(a.bytes.data());
      for (int64_t i = 0; i < n; ++i) {
        double value = std::normal_distribution<double>(0, 100)(random_);
        if (number(0, 9) == 0) value *= 1e18;
        if (number(0, 40) == 0)
          value = number(0, 1) ? std::numeric_limits<double>::quiet_NaN()
                               : -std::numeric_limits<double>::infinity();
        fill_strided(t, {}, x + i, {}, value);
      }
    });
  }

  const portable::Lanes lanes_{GetParam()};
  std::mt19937_64 random_{static_cast<uint64_t>(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(Lanes, BoxesTest, testing::Values(1, 3));

TEST_P(BoxesTest, CopiesAsTheCpu) {
  for (int round = 0; round < 600; ++round) {
    constexpr int64_t kItems[] = {1, 2, 4, 8, 3, 16};
    const int64_t item = kItems[number(0, 5)];
    const auto n = shape();
    Array got = array(n, item, false), want = got, src = array(n, item, true);
    for (char& c : src.bytes) c = static_cast<char>(number(1, 127));
    const int64_t bytes = host_boxes().copy(
        {}, item, n, got.at(item), got.strides, src.at(item), src.strides);
    EXPECT_EQ(bytes, copy_strided(item, n, want.at(item), want.strides,
                                  src.at(item), src.strides));
    ASSERT_EQ(got.bytes, want.bytes) << "round " << round;
  }
}

TEST_P(BoxesTest, CastsAsTheCpu) {
  for (DType to : kTypes)
    for (DType from : kTypes)
      for (int round = 0; round < 30; ++round) {
        const auto n = shape();
        Array got = array(n, size_of(to), false), want = got,
              src = array(n, size_of(from), true);
        fill(src, from);
        host_boxes().cast({}, n, to, got.at(size_of(to)), got.strides, from,
                          src.at(size_of(from)), src.strides);
        cast_strided(n, to, want.at(size_of(to)), want.strides, from,
                     src.at(size_of(from)), src.strides);
        ASSERT_EQ(got.bytes, want.bytes)
            << name(from) << " to " << name(to) << ", round " << round;
      }
}

// What is true may be any byte but 0.
TEST_P(BoxesTest, AnyByteIsABool) {
  const uint8_t src[] = {0, 1, 2, 255};
  const int64_t n[] = {4}, unit[] = {1};
  float got[4];
  host_boxes().cast({}, n, DType::kF32, got, unit, DType::kBool, src, unit);
  float want[4];
  cast_strided(n, DType::kF32, want, unit, DType::kBool, src, unit);
  EXPECT_EQ(std::to_array(got), std::to_array(want));
}

TEST_P(BoxesTest, FillsAsTheCpu) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (DType t : kTypes)
    for (double value : {0., -3.7, 1e30, infinity, -infinity}) {
      const auto n = shape();
      Array got = array(n, size_of(t), false), want = got;
      host_boxes().fill({}, t, n, got.at(size_of(t)), got.strides, value);
      fill_strided(t, n, want.at(size_of(t)), want.strides, value);
      ASSERT_EQ(got.bytes, want.bytes) << name(t) << " " << value;
    }
}

TEST_P(BoxesTest, DividesAsTheCpu) {
  for (DType t : {DType::kF32, DType::kF64, DType::kBF16}) {
    const std::vector<int64_t> n = {77};
    Array a = array(n, size_of(t), false), b = a;
    a.bytes.resize(static_cast<size_t>(80 * size_of(t)));
    b.bytes.resize(a.bytes.size());
    fill(a, t);
    fill(b, t);
    Array got = a, want = a;
    host_boxes().divide({}, t, 77, got.bytes.data(), got.bytes.data(),
                        b.bytes.data());
    divide(t, 77, want.bytes.data(), a.bytes.data(), b.bytes.data());
    EXPECT_EQ(got.bytes, want.bytes) << name(t);
  }
}

// All operators and types; operands of one layout and of several, more than one
// pass takes, one of them the destination itself.
TEST_P(BoxesTest, ReducesAsTheCpu) {
  for (int op = 0; op <= static_cast<int>(ReduceOp::kMean); ++op)
    for (DType t : kTypes)
      for (int round = 0; round < 40; ++round) {
        const auto reduce_op = static_cast<ReduceOp>(op);
        try {
          check_reducible(reduce_op, t, "test");
        } catch (const Error&) {
          continue;
        }
        const auto n = shape(round % 4 == 0 ? 2 : 3);
        const int64_t item = size_of(t);
        const int64_t k = round % 4 == 0   ? number(60, 140)
                          : round % 4 == 1 ? number(0, 2)
                                           : number(2, 8);
        const bool alike = number(0, 1);
        Array got = array(n, item, false);
        fill(got, t);
        Array want = got;
        std::vector<Array> srcs;
        for (int64_t j = 0; j < k; ++j) {
          srcs.push_back(alike && j > 0 ? srcs[0] : array(n, item, true));
          fill(srcs.back(), t);
        }
        const int64_t self = number(-1, k - 1);
        std::vector<Operand> of_got, of_want;
        for (int64_t j = 0; j < k; ++j) {
          const Array& src = srcs[static_cast<size_t>(j)];
          of_got.push_back(j == self ? Operand{got.at(item), got.strides}
                                     : Operand{src.at(item), src.strides});
          of_want.push_back(j == self ? Operand{want.at(item), want.strides}
                                      : Operand{src.at(item), src.strides});
        }
        const int64_t count = std::max<int64_t>(k, 1);
        EXPECT_EQ(host_boxes().reduce({}, reduce_op, t, n, got.at(item),
                                      got.strides, of_got, count),
                  reduce_strided(reduce_op, t, n, want.at(item), want.strides,
                                 of_want, count));
        ASSERT_EQ(got.bytes, want.bytes)
            << name(reduce_op) << " of " << name(t) << ", " << k
            << " operands, round " << round;
      }
}

}  // namespace
}  // namespace dtensor
