// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "dtensor/device/combine.h"
#include "dtensor/device/copy.h"
#include "dtensor/device/values.h"
#include "dtensor/placement/error.h"
#include "tests/dtensor/device/gpu.h"

namespace dtensor {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kBF16,
                            DType::kI32, DType::kI64, DType::kBool,
                            DType::kI8};

// A box in some memory.
struct Box {
  std::vector<int64_t> strides;
  int64_t first = 0;  // the element of index 0
  std::vector<char> bytes;
  void* at(int64_t item) { return bytes.data() + first * item; }
  const void* at(int64_t item) const { return bytes.data() + first * item; }
};

// True if the bits are equal or both are NaN. Processors choose the bits of a
// NaN.
testing::AssertionResult same(DType t, const Box& got, const Box& want) {
  return visit_stored(t, [&]<class T>() -> testing::AssertionResult {
    for (size_t i = 0; i + sizeof(T) <= want.bytes.size(); i += sizeof(T)) {
      const char *x = got.bytes.data() + i, *y = want.bytes.data() + i;
      if (std::memcmp(x, y, sizeof(T)) == 0) continue;
      if constexpr (portable::is_floating<T>) {
        T a, b;
        std::memcpy(&a, x, sizeof(T));
        std::memcpy(&b, y, sizeof(T));
        if (std::isnan(portable::widened(a)) &&
            std::isnan(portable::widened(b)))
          continue;
      }
      return testing::AssertionFailure() << "element " << i / sizeof(T);
    }
    return testing::AssertionSuccess();
  });
}

class BoxesTest : public testing::Test {
 protected:
  void SetUp() override {
    device_ = gpu();
    if (!device_) GTEST_SKIP() << no_gpu();
    stream_ = device_->open_stream();
  }

  // A copy of a box on the device. The destructor copies it back.
  class There {
   public:
    There(BoxesTest& test, Box& box)
        : test_(test), box_(box), data_(box.bytes.data()) {
      data_ =
          static_cast<char*>(test_.device_->allocate(size(), test_.stream_));
      test_.device_->from_host(test_.stream_, data_, box_.bytes.data(), size());
    }
    There(There&& o) noexcept
        : test_(o.test_), box_(o.box_), data_(std::exchange(o.data_, {})) {}
    There& operator=(There&&) = delete;
    ~There() {
      if (!data_) return;
      test_.device_->to_host(test_.stream_, box_.bytes.data(), data_, size());
      test_.device_->release(data_, size(), test_.stream_);
    }
    char* at(int64_t item) const { return data_ + box_.first * item; }

   private:
    int64_t size() const { return static_cast<int64_t>(box_.bytes.size()); }
    BoxesTest& test_;
    Box& box_;
    char* data_;
  };

  int64_t number(int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random_);
  }

  std::vector<int64_t> shape(int64_t most_dims = 4) {
    std::vector<int64_t> all(static_cast<size_t>(number(0, most_dims)));
    for (int64_t& n : all) n = number(0, 20) == 0 ? 0 : number(1, 9);
    if (!all.empty() && number(0, 2) == 0) all.back() = 4 * number(1, 20);
    return all;
  }

  // A box with its dimensions in any order in memory, some with gaps, some
  // backwards. If it is a `source`, it may repeat elements.
  Box box(const std::vector<int64_t>& shape, int64_t item, bool source) {
    std::vector<size_t> order(shape.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (number(0, 1)) std::shuffle(order.begin(), order.end(), random_);
    Box a;
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

  // Random values of the type. A few floats are NaN or infinite.
  void fill(Box& a, DType t) {
    const int64_t n = static_cast<int64_t>(a.bytes.size()) / size_of(t);
    visit_stored(t, [&]<class T>() {
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

  Device* device_ = nullptr;
  Stream stream_;
  std::mt19937_64 random_;
};

TEST_F(BoxesTest, CopiesAsTheCpu) {
  for (int round = 0; round < 600; ++round) {
    constexpr int64_t kItems[] = {1, 2, 4, 8, 3, 16};
    const int64_t item = kItems[number(0, 5)];
    const auto n = shape();
    Box got = box(n, item, false), want = got, src = box(n, item, true);
    for (char& c : src.bytes) c = static_cast<char>(number(1, 127));
    const int64_t bytes = copy_strided(item, n, want.at(item), want.strides,
                                       src.at(item), src.strides);
    {
      const There to(*this, got), from(*this, src);
      EXPECT_EQ(device_->copy(stream_, item, n, to.at(item), got.strides,
                              from.at(item), src.strides),
                bytes);
    }
    ASSERT_EQ(got.bytes, want.bytes) << "round " << round;
  }
}

// Compares copies between transposed boxes with a plain loop. Such copies work
// by tiles; the last tiles may not be full.
TEST_F(BoxesTest, Transposes) {
  struct Case {
    std::vector<int64_t> shape;
    std::vector<size_t> order;   // of the source's dimensions in memory
    int64_t gap = 0, first = 0;  // elements after a row; before all
    int backwards = -1;          // this dimension, in the source
  };
  const Case cases[] = {
      {{64, 64}, {1, 0}},
      {{32, 32}, {1, 0}},
      {{65, 33}, {1, 0}},
      {{31, 100}, {1, 0}, 3, 1},
      {{8, 200}, {1, 0}},
      {{200, 8}, {1, 0}},
      {{7, 90}, {1, 0}},
      {{1, 70}, {1, 0}},
      {{70, 1}, {1, 0}},
      {{0, 64}, {1, 0}},
      {{64, 0}, {1, 0}},
      {{129, 66}, {1, 0}, 0, 5, 0},
      {{67, 40}, {1, 0}, 2, 0, 1},
      {{3, 40, 35}, {0, 2, 1}},
      {{40, 3, 35}, {2, 1, 0}},
      {{40, 3, 35}, {2, 0, 1}, 1},
      {{40, 35, 3}, {1, 2, 0}},
      {{2, 33, 5, 66}, {0, 2, 1, 3}},
      {{2, 33, 5, 66}, {3, 0, 2, 1}},
      {{5, 70, 2, 34}, {0, 3, 2, 1}, 1, 1},
      {{2, 0, 33, 40}, {3, 2, 1, 0}},
      {{2, 2, 2, 2, 9, 2, 10}, {6, 5, 3, 4, 1, 2, 0}},
  };
  for (const Case& c : cases)
    for (int64_t item : {1, 2, 4, 8})
      for (int64_t gap : {0, 3}) {
        const size_t dims = c.shape.size();
        Box dst, src;
        dst.strides.resize(dims);
        src.strides.resize(dims);
        int64_t to = 1, from = 1;
        for (size_t k = dims; k-- > 0;) {
          dst.strides[k] = to;
          to = to * c.shape[k] + (k + 1 == dims ? gap : 0);
          const size_t d = c.order[k];
          src.strides[d] = from;
          from = from * c.shape[d] + c.gap;
        }
        src.first = dst.first = c.first;
        if (c.backwards >= 0) {
          const auto d = static_cast<size_t>(c.backwards);
          src.first += src.strides[d] * (c.shape[d] - 1);
          src.strides[d] *= -1;
        }
        dst.bytes.resize(static_cast<size_t>((to + c.first) * item), 'd');
        src.bytes.resize(static_cast<size_t>((from + c.first) * item));
        for (char& b : src.bytes) b = static_cast<char>(number(-128, 127));
        Box want = dst;
        int64_t count = 1;
        for (int64_t n : c.shape) count *= n;
        for (int64_t i = 0; i < count; ++i) {
          int64_t left = i, t = 0, f = 0;
          for (size_t k = dims; k-- > 0; left /= c.shape[k]) {
            t += left % c.shape[k] * dst.strides[k];
            f += left % c.shape[k] * src.strides[k];
          }
          std::memcpy(static_cast<char*>(want.at(item)) + t * item,
                      static_cast<char*>(src.at(item)) + f * item,
                      static_cast<size_t>(item));
        }
        int64_t bytes;
        {
          const There there(*this, dst), of(*this, src);
          bytes = device_->copy(stream_, item, c.shape, there.at(item),
                                dst.strides, of.at(item), src.strides);
        }
        EXPECT_EQ(bytes, count * item);
        ASSERT_EQ(dst.bytes, want.bytes)
            << "case " << &c - cases << ", of " << item << " bytes";
      }
}

TEST_F(BoxesTest, CastsAsTheCpu) {
  for (DType to : kTypes)
    for (DType from : kTypes)
      for (int round = 0; round < 30; ++round) {
        const auto n = shape();
        const int64_t to_size = size_of(to), from_size = size_of(from);
        Box got = box(n, to_size, false), want = got,
            src = box(n, from_size, true);
        fill(src, from);
        cast_strided(n, to, want.at(to_size), want.strides, from,
                     src.at(from_size), src.strides);
        {
          const There dst(*this, got), of(*this, src);
          device_->cast(stream_, n, to, dst.at(to_size), got.strides, from,
                        of.at(from_size), src.strides);
        }
        ASSERT_TRUE(same(to, got, want))
            << name(from) << " to " << name(to) << ", round " << round;
      }
}

// Includes bytes that are no bool.
TEST_F(BoxesTest, CastsAnyByteAsTheCpu) {
  const std::vector<int64_t> n = {4}, unit = {1};
  Box src{unit, 0, {0, 1, 2, '\xff'}}, got{unit, 0, std::vector<char>(16)},
      want = got;
  cast_strided(n, DType::kF32, want.at(4), unit, DType::kBool, src.at(1), unit);
  {
    const There to(*this, got), from(*this, src);
    device_->cast(stream_, n, DType::kF32, to.at(4), unit, DType::kBool,
                  from.at(1), unit);
  }
  EXPECT_EQ(got.bytes, want.bytes);
}

TEST_F(BoxesTest, FillsAsTheCpu) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (DType t : kTypes)
    for (double value : {0., -3.7, 1e30, infinity, -infinity})
      for (int round = 0; round < 5; ++round) {
        const auto n = shape();
        const int64_t item = size_of(t);
        Box got = box(n, item, false), want = got;
        fill_strided(t, n, want.at(item), want.strides, value);
        {
          const There to(*this, got);
          device_->fill(stream_, t, n, to.at(item), got.strides, value);
        }
        ASSERT_TRUE(same(t, got, want)) << name(t) << " " << value;
      }
}

TEST_F(BoxesTest, DividesAsTheCpu) {
  for (DType t : {DType::kF32, DType::kF64, DType::kBF16}) {
    const auto bytes = static_cast<size_t>(77 * size_of(t));
    Box a{{1}, 0, std::vector<char>(bytes)}, b = a;
    fill(a, t);
    fill(b, t);
    Box got = a, want = a;
    divide(t, 77, want.bytes.data(), a.bytes.data(), b.bytes.data());
    {
      const There to(*this, got), by(*this, b);
      device_->divide(stream_, t, 77, to.at(1), to.at(1), by.at(1));
    }
    EXPECT_TRUE(same(t, got, want)) << name(t);
  }
}

// All operators and types. The operands have one layout or several, are
// sometimes more than one pass takes, and may include the destination.
TEST_F(BoxesTest, ReducesAsTheCpu) {
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
        Box got = box(n, item, false);
        fill(got, t);
        Box want = got;
        std::vector<Box> srcs;
        for (int64_t j = 0; j < k; ++j) {
          srcs.push_back(alike && j > 0 ? srcs[0] : box(n, item, true));
          fill(srcs.back(), t);
        }
        const int64_t self = number(-1, k - 1), count = std::max<int64_t>(k, 1);
        std::vector<Operand> operands;
        for (int64_t j = 0; j < k; ++j) {
          const Box& src = j == self ? want : srcs[static_cast<size_t>(j)];
          operands.push_back({src.at(item), src.strides});
        }
        const int64_t bytes = reduce_strided(reduce_op, t, n, want.at(item),
                                             want.strides, operands, count);
        {
          const There to(*this, got);
          std::vector<There> from;
          from.reserve(srcs.size());
          for (size_t j = 0; j < srcs.size(); ++j) {
            from.emplace_back(*this, srcs[j]);
            operands[j] = static_cast<int64_t>(j) == self
                              ? Operand{to.at(item), got.strides}
                              : Operand{from[j].at(item), srcs[j].strides};
          }
          EXPECT_EQ(device_->reduce(stream_, reduce_op, t, n, to.at(item),
                                    got.strides, operands, count),
                    bytes);
        }
        ASSERT_TRUE(same(t, got, want))
            << name(reduce_op) << " of " << name(t) << ", " << k
            << " operands, round " << round;
      }
}

// Reduces into one place or several, sometimes more than one kernel writes.
// Some are not aligned, or are sources too; sometimes there are more sources
// than one pass takes.
TEST_F(BoxesTest, ReducesIntoAllAsTheCpu) {
  for (DType t : {DType::kF32, DType::kBF16, DType::kI64})
    for (int round = 0; round < 24; ++round) {
      const int64_t n = number(0, 100), results = round % 4 ? number(1, 5) : 70,
                    k = round % 3 ? number(1, 4) : 70, item = size_of(t);
      std::vector<Box> got, srcs;
      for (int64_t i = 0; i < results + k; ++i) {
        Box x = {{1}, number(0, 1), {}};
        x.bytes.resize(static_cast<size_t>((x.first + n) * item));
        fill(x, t);
        (i < results ? got : srcs).push_back(std::move(x));
      }
      const bool in_place = number(0, 1);
      std::vector<Box> want = got;
      const auto reduce = [&](auto&& to, auto&& from, auto&& call) {
        std::vector<char*> dsts;
        std::vector<const char*> all;
        for (auto& x : to) dsts.push_back(static_cast<char*>(x.at(item)));
        for (auto& x : from)
          all.push_back(static_cast<const char*>(x.at(item)));
        if (in_place) all.back() = dsts.back();
        EXPECT_EQ(call(dsts, all), n * item);
      };
      reduce(want, srcs, [&](const auto& dsts, const auto& all) {
        return reduce_into_all(ReduceOp::kSum, t, n, dsts, all, k);
      });
      {
        std::vector<There> to, from;
        for (Box& x : got) to.emplace_back(*this, x);
        for (Box& x : srcs) from.emplace_back(*this, x);
        reduce(to, from, [&](const auto& dsts, const auto& all) {
          return device_->reduce_into_all(stream_, ReduceOp::kSum, t, n, dsts,
                                          all, k);
        });
      }
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_TRUE(same(t, got[i], want[i]))
            << name(t) << ", result " << i << " of " << results << ", " << k
            << " operands, round " << round;
    }
}

}  // namespace
}  // namespace dtensor
