// SPDX-License-Identifier: Apache-2.0
// portable/cuda_executor.cuh on the emulation in this folder: memory that lanes
// share, packs of 16 bytes, and lengths that do not fill them.
#define DT_CUDA_EMULATED
#include "dtensor/ops/kernels/portable/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "dtensor/ops/kernels/portable/tiles.h"
#include "dtensor/ops/kernels/portable/walk.h"

namespace dtensor::cuda {

cudaStream_t enter(Stream s) { return s.handle; }
void check(cudaError_t e, const char*) { ASSERT_EQ(e, cudaSuccess); }
void allow_shared_memory(const void*, int64_t) {}
void* allocate_scratch(cudaStream_t s, int64_t bytes) {
  void* data = nullptr;
  check(cudaMallocAsync(&data, static_cast<size_t>(bytes), s), "scratch");
  return data;
}
void release(void* data, cudaStream_t s) noexcept {
  EXPECT_EQ(cudaFreeAsync(data, s), cudaSuccess);
}
// The memory that graphs allocate.
static std::deque<std::vector<char>>* graphs = nullptr;
void* graph_memory(cudaStream_t, int64_t bytes) {
  return graphs ? graphs->emplace_back(static_cast<size_t>(bytes)).data()
                : nullptr;
}

}  // namespace dtensor::cuda

namespace dtensor::portable {
namespace {

// Lengths around a pack, a warp, and the limits at which a row gets more lanes.
constexpr int64_t kLengths[] = {0,   1,   3,   4,   5,    31,   32,  33,
                                127, 129, 512, 513, 1025, 8192, 8193};

// n elements. The first is `shift` elements behind an address that is aligned
// to 16 bytes. A guard follows the last.
template <class T>
class Shifted {
 public:
  Shifted(int64_t n, int64_t shift)
      : n_(n), lines_(static_cast<size_t>(n + shift) * sizeof(T) / 16 + 2) {
    std::memset(static_cast<void*>(lines_.data()), 0x5a, lines_.size() * 16);
    data_ = reinterpret_cast<T*>(lines_.data()) + shift;
  }
  T* data() { return data_; }
  T& operator[](int64_t i) { return data_[i]; }
  bool guarded() const {
    const char* end = reinterpret_cast<const char*>(data_ + n_);
    for (int i = 0; i < 16; ++i)
      if (end[i] != 0x5a) return false;
    return true;
  }

 private:
  struct alignas(16) Line {
    char bytes[16];
  };
  int64_t n_;
  std::vector<Line> lines_;
  T* data_;
};

TEST(CudaExecutorTest, EachIndexOnce) {
  for (int64_t n : kLengths) {
    std::vector<int> times(static_cast<size_t>(n));
    each({}, n, [times = times.data()](int64_t i) { ++times[i]; });
    EXPECT_EQ(times, std::vector<int>(static_cast<size_t>(n), 1));
  }
}

TEST(CudaExecutorTest, MapsAlignedOrNot) {
  for (int64_t n : {0, 1, 7, 8, 9, 1000})
    for (int64_t shift : {0, 1}) {
      Shifted<int16_t> a(n, shift);
      Shifted<float> b(n, 0), out(n, 0);
      for (int64_t i = 0; i < n; ++i)
        a[i] = static_cast<int16_t>(i), b[i] = static_cast<float>(2 * i);
      map(
          {}, n, out.data(),
          [](int64_t i, int16_t x, float y) {
            return static_cast<float>(i) + 10 * x + 100 * y;
          },
          a.data(), b.data());
      for (int64_t i = 0; i < n; ++i)
        ASSERT_EQ(out[i], 211 * static_cast<float>(i)) << n << " " << shift;
      EXPECT_TRUE(out.guarded());
    }
}

TEST(CudaExecutorTest, RowsReduceAndMap) {
  for (int64_t n : kLengths)
    for (int64_t shift : {0, 1}) {
      const int64_t count = n > 1000 ? 2 : 9, stride = n + 4;
      Shifted<float> x(count * stride, shift), y(count * stride, 0);
      std::vector<double> sums(static_cast<size_t>(count));
      for (int64_t i = 0; i < count * stride; ++i)
        x[i] = static_cast<float>(i % 97) - 40;
      float* const in = x.data();
      float* const out = y.data();
      double* const sum = sums.data();
      rows({}, count, n, [=](Row& row, int64_t r) {
        const double all = row.reduce(
            n, 0.0, Sum(), [](int64_t, float v) { return double{v}; },
            in + r * stride);
        // A second reduction, of a type of another size, follows at once.
        const int64_t most = row.reduce(
            n, int64_t{-1000}, Max(),
            [](int64_t, float v) { return static_cast<int64_t>(v); },
            in + r * stride);
        row.map_at(
            n, out + r * stride,
            [&](int64_t j, float v) {
              return v + static_cast<float>(most + j);
            },
            in + r * stride);
        // This lane sees what the other lanes wrote.
        row.each(1, [&](int64_t) {
          sum[r] = all + (n > 0 ? out[r * stride + n - 1] : 0);
        });
      });
      for (int64_t r = 0; r < count; ++r) {
        double all = 0;
        float most = -1000;
        for (int64_t j = 0; j < n; ++j) {
          all += x[r * stride + j];
          most = std::max(most, x[r * stride + j]);
        }
        for (int64_t j = 0; j < n; ++j)
          ASSERT_EQ(y[r * stride + j],
                    x[r * stride + j] + most + static_cast<float>(j));
        if (n > 0) all += y[r * stride + n - 1];
        ASSERT_EQ(sums[static_cast<size_t>(r)], all) << n << " " << r;
        char between[16];
        std::memset(between, 0x5a, sizeof(between));
        EXPECT_EQ(std::memcmp(&y[r * stride + n], between, 16), 0);
      }
    }
}

// Stores each row that is not const, at every length and alignment, and nothing
// after its end. A null row counts as zeros.
TEST(CudaExecutorTest, UpdatesAndSums) {
  for (const int64_t n : kLengths)
    for (const bool second : {false, true})
      for (const int64_t shift : {0, 1}) {
        Shifted<float> x(n, 0), first(n, shift), other(n, 0);
        for (int64_t i = 0; i < n; ++i) {
          x[i] = static_cast<float>(i % 89 - 40);
          first[i] = 1;
          other[i] = 2;
        }
        double sum = -1;
        rows({}, 1, n,
             [n, in = x.data(), a = first.data(),
              b = second ? other.data() : nullptr,
              out = &sum](Row& row, int64_t) {
               const double all = row.update_sum(
                   n,
                   [](auto& u, auto& v, const auto& value) {
                     u += value;
                     v += 3 * value;
                     return static_cast<double>(u + v);
                   },
                   a, b, static_cast<const float*>(in));
               row.put(out, all);
             });
        double expected = 0;
        for (int64_t i = 0; i < n; ++i) {
          expected += 1 + (second ? 2 : 0) + 4 * x[i];
          ASSERT_EQ(first[i], 1 + x[i]) << i;
          ASSERT_EQ(other[i], second ? 2 + 3 * x[i] : 2) << i;
        }
        EXPECT_EQ(sum, expected) << n;
        EXPECT_TRUE(first.guarded() && other.guarded()) << n;
      }
}

// How often a Kept fills its elements.
int fills(int stream, int key) {
  static int64_t streams[2];
  int times = 0;
  const Kept<float, int> kept(Stream{&streams[stream]}, key, 3, [&](float* to) {
    ++times;
    std::fill_n(to, 3, static_cast<float>(key));
  });
  EXPECT_EQ(kept.data()[2], static_cast<float>(key));
  return times;
}

// A thread fills the elements again only for another key or stream.
TEST(CudaExecutorTest, KeepsTheLastElements) {
  EXPECT_EQ(fills(0, 5), 1);
  EXPECT_EQ(fills(0, 5), 0);
  EXPECT_EQ(fills(0, 6), 1);
  EXPECT_EQ(fills(1, 6), 1);
  EXPECT_EQ(fills(1, 6), 0);
}

// Each capture fills the elements of every key and stream once. It uses none
// that were filled outside of it, since others may replace those before a
// replay.
TEST(CudaExecutorTest, ACaptureKeepsItsElements) {
  std::deque<std::vector<char>> memory;
  cuda::graphs = &memory;
  EXPECT_EQ(fills(0, 7), 1);
  for (const unsigned long long capture : {1, 2}) {
    at_once_capture = capture;
    EXPECT_EQ(fills(0, 7), 1);
    EXPECT_EQ(fills(0, 8), 1);
    EXPECT_EQ(fills(1, 7), 1);
    EXPECT_EQ(fills(0, 7) + fills(0, 8) + fills(1, 7), 0);
    EXPECT_EQ(memory.size(), 3 * capture);
  }
  at_once_capture = 0;
  EXPECT_EQ(fills(0, 7), 0);
  // Without memory of a graph, a capture keeps nothing.
  cuda::graphs = nullptr;
  at_once_capture = 3;
  EXPECT_EQ(fills(0, 7), 1);
  EXPECT_EQ(fills(0, 7), 1);
  at_once_capture = 0;
}

// Equal values give the same bits in every lane, however they are aligned, even
// with an operator that is not symmetric.
TEST(CudaExecutorTest, ReducesToTheSameBits) {
  struct Add {
    float operator()(float a, float b) const { return a + b * (1 + 0x1p-23f); }
  };
  for (int64_t n : {33, 127, 300, 512, 600, 1025, 2000}) {
    constexpr int64_t kRows = 4;
    const int64_t stride = n / 4 * 4 + 5;  // each row is aligned in its own way
    Shifted<float> x(kRows * stride, 0);
    for (int64_t i = 0; i < kRows * stride; ++i)
      x[i] = 1 / static_cast<float>(i % stride * 7919 % 1009 + 3);
    std::vector<float> of_lanes(static_cast<size_t>(kRows * n));
    rows({}, kRows, n,
         [=, in = x.data(), to = of_lanes.data()](Row& row, int64_t r) {
           const float mine = row.reduce(
               n, 0.f, Add(), [](int64_t, float v) { return v; },
               in + r * stride);
           row.each(n, [&](int64_t j) { to[r * n + j] = mine; });
         });
    EXPECT_EQ(of_lanes, std::vector<float>(of_lanes.size(), of_lanes[0])) << n;
  }
}

// Lanes exchange a struct as a whole.
TEST(CudaExecutorTest, ReducesStructs) {
  struct Best {
    double value;
    int64_t at;
  };
  struct Better {
    Best operator()(const Best& a, const Best& b) const {
      return a.value > b.value || (a.value == b.value && a.at < b.at) ? a : b;
    }
  };
  for (int64_t n : {1, 40, 600, 9000}) {
    std::vector<double> x(static_cast<size_t>(n));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<double>(i * 7919 % 1009);
    const auto at = std::max_element(x.begin(), x.end()) - x.begin();
    Best found = {};
    rows({}, 1, n, [=, to = &found, in = x.data()](Row& row, int64_t) {
      const Best best = row.reduce(
          n, Best{-1, n}, Better(),
          [](int64_t j, double v) {
            return Best{v, j};
          },
          in);
      row.each(1, [&](int64_t) { *to = best; });
    });
    EXPECT_EQ(found.at, at);
    EXPECT_EQ(found.value, x[static_cast<size_t>(at)]);
  }
}

// Strided and broadcast operands are mapped in packs if they fill some, and one
// by one otherwise. Rows may be padded to whole packs, of which only a part
// counts.
TEST(CudaExecutorTest, MapsStridedBoxes) {
  for (int64_t n : {1, 3, 8, 40})
    for (bool transposed : {false, true})
      for (int64_t pitch : {n, (n + 3) / 4 * 4}) {
        const int64_t m = 13, shape[] = {m, n}, to[] = {pitch, 1};
        const int64_t row[] = {0, 1};
        const int64_t from[] = {transposed ? 1 : pitch, transposed ? m : 1};
        Shifted<float> x(m * pitch, 0), y(pitch, 0), out(m * pitch, 0);
        for (int64_t i = 0; i < m * pitch; ++i)
          x[i] = static_cast<float>(i), out[i] = -1;
        for (int64_t j = 0; j < n; ++j) y[j] = static_cast<float>(1000 * j);
        map(
            {}, Walk<3>(shape, {to, from, row}), out.data(),
            [](float a, float b) { return a + b; }, x.data(), y.data());
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < pitch; ++j)
            ASSERT_EQ(out[i * pitch + j],
                      j < n ? x[i * from[0] + j * from[1]] + y[j] : -1)
                << n << " of " << pitch;
        EXPECT_TRUE(out.guarded());
      }
}

// Each row has fast memory of its own.
TEST(CudaExecutorTest, FastMemoryIsTheRows) {
  for (int64_t n : {20, 600}) {
    constexpr int64_t kRows = 11;
    std::vector<int64_t> out(static_cast<size_t>(kRows * n));
    rows(
        {}, kRows, n,
        [=, to = out.data()](Row& row, int64_t r) {
          int* fast = row.fast<int>();
          row.each(n, [&](int64_t j) { fast[j] = static_cast<int>(r * j); });
          row.each(n, [&](int64_t j) { to[r * n + j] = fast[n - 1 - j]; });
        },
        n * static_cast<int64_t>(sizeof(int)));
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t j = 0; j < n; ++j)
        ASSERT_EQ(out[static_cast<size_t>(r * n + j)], r * (n - 1 - j));
  }
}

// Short rows have a warp each, and fast memory of their own. Every lane gets
// the sum.
TEST(CudaExecutorTest, ShortRows) {
  for (int64_t n : {0, 1, 20, 33, 100})
    for (int64_t bytes : {800, 8000}) {
      constexpr int64_t kRows = 11;
      std::vector<int64_t> out(static_cast<size_t>(kRows * n));
      short_rows(
          {}, kRows,
          [=, to = out.data()](Row& row, int64_t r) {
            int64_t* fast = row.fast<int64_t>();
            row.each(n, [&](int64_t j) { fast[j] = r * j; });
            const int64_t sum = row.reduce(n, int64_t{0}, Sum(),
                                           [&](int64_t j) { return fast[j]; });
            row.each(n, [&](int64_t j) { to[r * n + j] = sum - fast[j]; });
          },
          bytes);
      for (int64_t r = 0; r < kRows; ++r)
        for (int64_t j = 0; j < n; ++j)
          ASSERT_EQ(out[static_cast<size_t>(r * n + j)],
                    r * (n * (n - 1) / 2 - j));
    }
}

// Records, for each access of a warp to Watched elements, the sectors touched.
struct Seen {
  using Request = std::pair<unsigned, int>;  // a warp of a block, its how many
  std::map<Request, std::set<uintptr_t>> sectors[2];
  std::map<std::pair<unsigned, unsigned>, int> requests[2];  // of a thread
  const char *begin[2], *end[2];
  // The most sectors of 32 bytes that one access of a warp touches.
  size_t most(int of) const {
    size_t most = 0;
    for (const auto& [request, touched] : sectors[of])
      most = std::max(most, touched.size());
    return most;
  }
}* seen = nullptr;

template <class T>
struct Watched {
  T value = {};
  Watched() = default;
  Watched(const Watched& o) { *this = o; }
  Watched& operator=(const Watched& o) {
    value = o.value;
    look(&o, 0);
    look(this, 1);
    return *this;
  }
  static void look(const Watched* at, int of) {
    const char* const p = reinterpret_cast<const char*>(at);
    if (p < seen->begin[of] || p >= seen->end[of]) return;
    const int k = seen->requests[of][{blockIdx.x, threadIdx.x}]++;
    const unsigned warp = blockIdx.x * 1024 + threadIdx.x / 32;
    seen->sectors[of][{warp, k}].insert(reinterpret_cast<uintptr_t>(p) / 32);
  }
};

// Counts the sectors that a warp touches at once when it reads and writes in a
// transposed copy of such elements: at most one more than they fill.
template <class T>
void expect_neighbours() {
  constexpr int64_t kRows = 192, kColumns = 128;
  const int64_t shape[] = {kRows, kColumns}, to[] = {kColumns, 1},
                from[] = {1, kRows};
  const auto item = static_cast<int64_t>(sizeof(T));
  Shifted<Watched<T>> x(kRows * kColumns, 0), y(kRows * kColumns, 0);
  for (int64_t i = 0; i < kRows * kColumns; ++i)
    x[i].value = static_cast<T>(i * 7919 % 251);
  Seen all;
  all.begin[0] = reinterpret_cast<const char*>(x.data());
  all.begin[1] = reinterpret_cast<const char*>(y.data());
  for (int of : {0, 1}) all.end[of] = all.begin[of] + kRows * kColumns * item;
  seen = &all;
  const auto tiles = Tiles::of(item, shape, to, from);
  ASSERT_TRUE(tiles);
  copy({}, *tiles, y.data(), x.data());
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j)
      ASSERT_EQ(y[i * kColumns + j].value, x[i + j * kRows].value);
  EXPECT_TRUE(y.guarded());
  const auto filled = static_cast<size_t>(item);
  for (int of : {0, 1}) {
    EXPECT_GE(all.most(of), filled);
    EXPECT_LE(all.most(of), filled + 1) << "of " << item << " bytes, " << of;
    int64_t requests = 0;
    for (const auto& [thread, n] : all.requests[of]) requests += n;
    EXPECT_EQ(requests, kRows * kColumns);
  }
}

TEST(CudaExecutorTest, TilesTouchNeighbours) {
  expect_neighbours<uint8_t>();
  expect_neighbours<uint16_t>();
  expect_neighbours<uint32_t>();
  expect_neighbours<uint64_t>();
}

// Lanes that read a column of a tile use different banks. The lanes are those
// of a warp, or of half a warp if each moves 8 bytes.
TEST(CudaExecutorTest, ColumnsOfTilesAreInBanksOfTheirOwn) {
  for (int64_t item : {1, 2, 4, 8}) {
    const int64_t lanes = item == 8 ? 16 : 32;
    EXPECT_EQ(tile_edge(item) % lanes, 0);
    for (int64_t first = 0; first < tile_edge(item); first += lanes)
      for (int64_t column = 0; column < tile_edge(item); ++column) {
        std::map<int64_t, std::set<int64_t>> words;  // of each bank
        for (int64_t lane = first; lane < first + lanes; ++lane) {
          const int64_t at = (lane * tile_pitch(item) + column) * item;
          for (int64_t b = at; b < at + item; b += 4)
            words[b / 4 % 32].insert(b / 4);
        }
        for (const auto& [bank, of] : words)
          ASSERT_EQ(of.size(), 1u) << "bank " << bank << " of " << item;
      }
  }
}

}  // namespace
}  // namespace dtensor::portable
