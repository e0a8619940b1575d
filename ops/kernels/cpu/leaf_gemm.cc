// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cpu/leaf_gemm.h"

#include <algorithm>
#include <array>
#include <utility>

#include "dtensor/ops/kernels/cpu/dots.h"
#include "dtensor/ops/kernels/cpu/exact_tile.h"
#include "dtensor/ops/kernels/cpu/loops.h"
#include "dtensor/ops/kernels/cpu/small_product.h"

namespace dtensor::kernels::cpu {
namespace {

// The sums of a tile, a row of b and an element of a fill the registers.
constexpr int kRows = kVecBytes == 64 ? 14 : 6;
template <class T>
constexpr int64_t kColumns = 2 * Vec<T>::n;
template <class T>
constexpr int64_t kTile = kColumns<T>* kRows;  // elements

// The leaves that a tile adds while its sums stay in the first-level cache, and
// a panel of b in the second-level cache.
constexpr int64_t kMostLeaves = 16;
// The elements of a that are packed at a time; they stay in the last cache.
constexpr int64_t kMostPacked = 1 << 20;
// The columns of a block.
constexpr int64_t kMostColumns = 2048;
// Up to this many rows, b is read where it lies if it can be: packing takes as
// long as several rows of the product.
constexpr int64_t kFew = 2 * kRows;
// The columns of a, or rows of b, that are packed at a time if they are few.
constexpr int64_t kStep = 16;
// The elements between two packed rows of a. Without them, the tiles of usual
// sizes would be a multiple of 4 KiB apart, and share few lines of the cache.
constexpr int64_t kPad = 17;
// Up to this many elements of b, SmallProduct is faster.
constexpr int64_t kSmall = 1 << 15;

// Sets `to` to a leaf of R x kColumns elements. a has the R elements of each k
// in order, and b the kColumns elements of each k, b_row apart. If the leaf has
// begun, its sums so far lie there.
template <class T, int R>
void leaf(int64_t k, const T* a, const T* b, int64_t b_row, T* to, bool begun) {
  using V = Vec<T>;
  V sum[R][2];
#pragma GCC unroll 14
  for (int r = 0; r < R; ++r) {
    sum[r][0] = begun ? load(to + r * kColumns<T>) : V(0);
    sum[r][1] = begun ? load(to + r * kColumns<T> + V::n) : V(0);
  }
  for (; k > 0; --k, a += R, b += b_row) {
    const V x = in_register(load(b)), y = in_register(load(b + V::n));
    __builtin_prefetch(a + 16 * R);
#pragma GCC unroll 14
    for (int r = 0; r < R; ++r) {
      // Fills a vector with the element; see SmallProduct.
      const V z = in_register(V(a[r] - typename V::R{}));
      sum[r][0] = fused(z, x, sum[r][0]);
      sum[r][1] = fused(z, y, sum[r][1]);
    }
  }
#pragma GCC unroll 14
  for (int r = 0; r < R; ++r) {
    store(to + r * kColumns<T>, sum[r][0]);
    store(to + r * kColumns<T> + V::n, sum[r][1]);
  }
}
// The elements of a column that leaf_of_columns() reads at a time.
template <class S>
constexpr int64_t kAtOnce = 16 / sizeof(S);
// As leaf(), for a matrix b whose columns are contiguous and b_col apart, which
// it transposes in registers. It fetches the elements `ahead` further on.
// REQUIRES: k is a multiple of kAtOnce<S>.
template <class S, int R, class T = compute_t<S>>
void leaf_of_columns(int64_t k, const T* a, const S* b, int64_t b_col, T* to,
                     int64_t ahead) {
  using V = Vec<T>;
  constexpr int64_t n = 16 / sizeof(T), kLine = 64 / sizeof(S);
  V sum[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = V(0);
  // Half of the columns after the other: if they are some power of two apart,
  // the first-level cache holds the lines of few of them.
  for (int64_t p = 0; p < k; p += kLine)
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const S* const from = b + h * V::n * b_col + p;
      for (int64_t j = 0; j < V::n; ++j)
        __builtin_prefetch(from + j * b_col + ahead, 0, 2);
      const T* x = a + p * R;
      const auto add = [&](V y) __attribute__((always_inline)) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
          sum[r][h] = fused(V(x[r] - typename V::R{}), y, sum[r][h]);
        x += R;
      };
      const int64_t length = std::min(kLine, k - p);
      for (int64_t q = 0; q < length; q += kAtOnce<S>) {
        V y[n];
        read_rows<T>(from + q, b_col, y);
#pragma GCC unroll 4
        for (int64_t e = 0; e < n; ++e) {
          if constexpr (std::is_same_v<S, T>) {
            add(y[e]);
          } else {
            // A bf16 is the high half of its float.
            static_assert(std::is_same_v<S, bf16>);
            using Bits = typename Raw<T>::mask;
            const Bits pair = (Bits)y[e].v;
            add(V((typename Raw<T>::type)(pair << 16)));
            add(V((typename Raw<T>::type)(pair & ~0xffff)));
          }
        }
      }
    }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    store(to + r * kColumns<T>, sum[r][0]);
    store(to + r * kColumns<T> + V::n, sum[r][1]);
  }
}
// The rows whose sums, and what leaf_of_columns() transposes, fit the
// registers.
constexpr int kVeryFew = kVecBytes == 64 ? 8 : 2;
// leaf_of_columns() by R - 1.
template <class S>
constexpr auto kLeavesOfColumns = []<size_t... I>(std::index_sequence<I...>) {
  return std::array{leaf_of_columns<S, static_cast<int>(I + 1)>...};
}
(std::make_index_sequence<kVeryFew>());

// leaf() by R - 1.
template <class T>
using Leaf = void (*)(int64_t, const T*, const T*, int64_t, T*, bool);
template <class T>
constexpr auto kLeaves = []<size_t... I>(std::index_sequence<I...>) {
  return std::array<Leaf<T>, kRows>{leaf<T, static_cast<int>(I + 1)>...};
}
(std::make_index_sequence<kRows>());

// to[p * width + i] = from[i, p] for i < m; 0 for the other i < width. Fetches
// the elements `ahead` further on if it is not 0.
template <class S, class T = compute_t<S>>
void pack(int64_t m, int64_t k, Mat<const S> from, T* to, int64_t width,
          int64_t ahead = 0) {
  using V = Vec<T>;
  if (from.row == 1) {
    for (int64_t p = 0; p < k; ++p)
      for (int64_t i = 0; i < width; i += V::n) {
        const S* const x = from.p + p * from.col + i;
        __builtin_prefetch(x + 16 * from.col);
        T* const y = to + p * width + i;
        if (i + V::n <= m)
          store(y, load(x));
        else
          store_n(y, load_n(x, std::max<int64_t>(0, m - i)),
                  std::min(V::n, width - i));
      }
    return;
  }
  if (m < width) std::fill(to, to + k * width, T(0));
  for (int64_t i = 0; i < m; i += V::n) {
    const S* const x = from.p + i * from.row;
    const int64_t rows = std::min(V::n, m - i);
    for (int64_t p = 0; p < k; p += V::n) {
      const int64_t columns = std::min(V::n, k - p);
      if (from.col == 1) {
        if (ahead != 0)
          for (int64_t r = 0; r < rows; ++r)
            __builtin_prefetch(x + r * from.row + p + ahead, 0, 2);
        T* const y = to + p * width + i;
        if constexpr (std::is_same_v<S, T>) {
          transpose(rows, columns, x + p, from.row, y, width);
        } else {
          T square[V::n * V::n];
          for (int64_t r = 0; r < rows; ++r)
            store(square + r * V::n, load_n(x + r * from.row + p, columns));
          transpose(rows, columns, square, V::n, y, width);
        }
      } else {
        for (int64_t q = p; q < p + columns; ++q)
          for (int64_t r = 0; r < rows; ++r)
            to[q * width + i + r] =
                static_cast<T>(x[r * from.row + q * from.col]);
      }
    }
  }
}

// Calls f(begin, end) for parts of [0, n) of at most `most`, whose sizes differ
// by at most 1.
template <class F>
void in_parts(int64_t n, int64_t most, F&& f) {
  int64_t begin = 0;
  for (int64_t parts = (n + most - 1) / most; parts > 0; --parts) {
    const int64_t end = begin + (n - begin + parts - 1) / parts;
    f(begin, end);
    begin = end;
  }
}

// Calls tile(i, rows, j, columns, leaf) for all tiles of a product. leaf(g, to)
// sets `to` to leaf g of the tile; it is to be called for each of the leaves
// [first, last) in turn. Column 0 of a, and row 0 of b, belong to the first.
// REQUIRES: the leaves have at most kMostLeaves * kLeaf products.
template <class S, class F>
void tiles(int64_t m, int64_t n, const Leaves& leaves, int64_t first,
           int64_t last, Mat<const S> a, Mat<const S> b, F&& tile) {
  using T = compute_t<S>;
  constexpr bool kSame = std::is_same_v<S, T>;
  const int64_t origin = leaves.begin(first), k = leaves.end(last - 1) - origin;
  constexpr int64_t kWidth = kColumns<T>;
  T* const rows_of_a = scratch<T>(kScratchPackA, m * (k + kPad));
  // Reads memory in order: a few columns of a at a time if they lie there.
  const int64_t step = a.row == 1 ? kStep : k;
  for (int64_t p = 0; p < k; p += step)
    in_parts(m, kRows, [&](int64_t i, int64_t end) {
      pack<S>(end - i, std::min(step, k - p),
              {a.p + i * a.row + p * a.col, a.row, a.col},
              rows_of_a + i * (k + kPad) + p * (end - i), end - i);
    });
  const bool one = m <= kRows, of_columns = m <= kVeryFew && b.row == 1;
  T* const panel = scratch<T>(kScratchPackB, (one ? kLeaf : k) * kWidth);
  for (int64_t j = 0; j < n; j += kWidth) {
    const int64_t columns = std::min(kWidth, n - j);
    const bool in_place = kSame && m <= kFew && b.col == 1 && columns == kWidth;
    in_parts(m, kRows, [&](int64_t i, int64_t end) {
      const Leaf<T> compute = kLeaves<T>[static_cast<size_t>(end - i - 1)];
      tile(i, end - i, j, columns, [&](int64_t g, T* to) {
        const int64_t begin = leaves.begin(g) - origin,
                      length = leaves.end(g) - leaves.begin(g);
        const S* const at = b.p + begin * b.row + j * b.col;
        // Later elements of b arrive meanwhile, also those of its next rows.
        const auto ahead = [&](int64_t p) {
          return p + kLeaf < k ? kLeaf : kWidth * b.col + kLeaf - k;
        };
        if constexpr (kSame || std::is_same_v<S, bf16>)
          if (of_columns && columns == kWidth && length % kAtOnce<S> == 0)
            return kLeavesOfColumns<S>[static_cast<size_t>(end - i - 1)](
                length, rows_of_a + i * (k + kPad) + begin * (end - i), at,
                b.col, to, ahead(begin));
        T* const packed = one ? panel : panel + begin * kWidth;
        const int64_t rows = end - i, step = one && rows <= 4 ? kStep : kLeaf;
        for (int64_t p = 0; p < length; p += step) {
          const int64_t count = std::min(step, length - p);
          const Mat<const S> from{at + p * b.row, b.row, b.col};
          const T* copy = packed + p * kWidth;
          if (i == 0 && !in_place)
            pack(columns, count, from.transposed(), packed + p * kWidth, kWidth,
                 one ? ahead(begin + p) : 0);
          if constexpr (kSame)
            if (in_place) copy = from.p;
          compute(count, rows_of_a + i * (k + kPad) + (begin + p) * rows, copy,
                  in_place ? b.row : kWidth, to, p > 0);
        }
      });
    });
  }
}

// Calls f(m, n, a, b, c) for blocks of the product.
template <class S, class TC, class F>
void in_blocks(int64_t m, int64_t n, int64_t k, Mat<const S> a, Mat<const S> b,
               Mat<TC> c, F&& f) {
  constexpr int64_t kWidth = kColumns<compute_t<S>>;
  // Rows of a tile may be few, but its columns are always as many.
  if ((n < m && n < kWidth) || (m >= kWidth && c.row == 1 && c.col != 1))
    return in_blocks<S, TC>(n, m, k, b.transposed(), a.transposed(),
                            c.transposed(), f);
  in_parts(n, kMostColumns, [&](int64_t j, int64_t j_end) {
    in_parts(m, kMostPacked / std::min(k, kMostLeaves * kLeaf),
             [&](int64_t i, int64_t i_end) {
               f(i_end - i, j_end - j,
                 Mat<const S>{a.p + i * a.row, a.row, a.col},
                 Mat<const S>{b.p + j * b.col, b.row, b.col},
                 Mat<TC>{c.p + i * c.row + j * c.col, c.row, c.col});
             });
  });
}

// Calls f(first, last) for ranges of leaves that tiles() takes.
template <class F>
void in_ranges(const Leaves& leaves, F&& f) {
  for (int64_t first = 0; first < leaves.count();) {
    const int64_t most = leaves.begin(first) + kMostLeaves * kLeaf;
    int64_t last = first + 1;
    while (last < leaves.count() && leaves.end(last) <= most) ++last;
    f(first, last);
    first = last;
  }
}

template <class S>
Mat<const S> columns_from(Mat<const S> a, int64_t k) {
  return {a.p + k * a.col, a.row, a.col};
}
template <class S>
Mat<const S> rows_from(Mat<const S> b, int64_t k) {
  return {b.p + k * b.row, b.row, b.col};
}

// Writes a tile to c, or adds it.
template <class T>
void write(const T* tile, int64_t rows, int64_t columns, Mat<T> c, bool add) {
  using V = Vec<T>;
  for (int64_t r = 0; r < rows; ++r, tile += kColumns<T>) {
    T* const to = c.p + r * c.row;
    if (c.col == 1 && columns == kColumns<T>) {
      for (int64_t q = 0; q < columns; q += V::n)
        store(to + q, add ? load(to + q) + load(tile + q) : load(tile + q));
    } else {
      for (int64_t q = 0; q < columns; ++q)
        to[q * c.col] = add ? to[q * c.col] + tile[q] : tile[q];
    }
  }
}

// Adds the leaves to c in turn; the first one replaces c if not `accumulate`.
template <class S, class T = compute_t<S>>
void sum_in_turn(int64_t m, int64_t n, int64_t k, Mat<const S> a,
                 Mat<const S> b, Mat<T> c, bool accumulate) {
  const Leaves leaves{k};
  in_ranges(leaves, [&](int64_t first, int64_t last) {
    const int64_t p = leaves.begin(first);
    tiles<S>(
        m, n, leaves, first, last, columns_from(a, p), rows_from(b, p),
        [&](int64_t i, int64_t rows, int64_t j, int64_t columns, auto&& leaf) {
          const Mat<T> to{c.p + i * c.row + j * c.col, c.row, c.col};
          alignas(64) T sums[kTile<T>];
          for (int64_t g = first; g < last; ++g) {
            leaf(g, sums);
            write(sums, rows, columns, to, accumulate || g > 0);
          }
        });
  });
}

// Adds the leaves to `sums`, which hold nothing yet if not `begun`. If
// `rounded` is not null, it gets the sums instead, or adds them. `sums` may
// then be null if there are at most kMostLeaves.
template <class S>
void sum_exactly(int64_t m, int64_t n, const Leaves& leaves, Mat<const S> a,
                 Mat<const S> b, Mat<Exact> sums, bool begun,
                 Mat<float> rounded, bool add) {
  using Tile = ExactTile<kRows>;
  static_assert(Tile::kTile == kTile<float>);
  Tile tile;
  constexpr int64_t kMost = 8;  // leaves at a time
  alignas(64) float numbers[kMost * kTile<float>];
  in_ranges(leaves, [&](int64_t first, int64_t last) {
    const bool reads = begun || first > 0;
    const bool ends = rounded.p != nullptr && last == leaves.count();
    const int64_t p = leaves.begin(first);
    tiles<S>(
        m, n, leaves, first, last, columns_from(a, p), rows_from(b, p),
        [&](int64_t i, int64_t rows, int64_t j, int64_t columns, auto&& leaf)
            __attribute__((always_inline)) {
              const Mat<Exact> to{
                  sums.p ? sums.p + i * sums.row + j * sums.col : nullptr,
                  sums.row, sums.col};
              for (int64_t g = first; g < last; g += kMost) {
                const int64_t count = std::min(kMost, last - g);
                for (int64_t q = 0; q < count; ++q) {
                  if (g == first && to.p && to.col == 1)
                    for (int64_t r = q; r < rows; r += count)
                      for (int64_t x = 0; x < columns; x += 4)
                        __builtin_prefetch(to.p + r * to.row + x, 1);
                  leaf(g + q, numbers + q * kTile<float>);
                }
                const bool fresh = g == first && !reads;
                if (g == first && reads)
                  tile.load_from({to.p, to.row, to.col}, rows, columns);
                tile.add(count, fresh, rows, numbers);
              }
              if (!ends) return tile.store_to(to, rows, columns);
              tile.round(rows, numbers);
              write(numbers, rows, columns,
                    {rounded.p + i * rounded.row + j * rounded.col, rounded.row,
                     rounded.col},
                    add);
            });
  });
}

}  // namespace

template <class S>
void leaf_gemm(int64_t m, int64_t n, int64_t k, Mat<const S> a, Mat<const S> b,
               Mat<portable::compute_t<S>> c, bool accumulate) {
  using T = compute_t<S>;
  if (m == 0 || n == 0) return;
  if (k == 0) {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        T& x = c.p[i * c.row + j * c.col];
        x = accumulate ? x + T(0) : T(0);
      }
    return;
  }
  if constexpr (std::is_same_v<S, T>) {
    using Small = SmallProduct<T>;
    if (kFuses && k <= kLeaf && c.col == 1 && Small::padded(n) * k <= kSmall &&
        (m > (b.col == 1 ? 8 : 32) || Small::padded(n) * k <= 4096 ||
         Small::is_in_place(n, b)))
      return Small::run(m, n, k, a, b, c, accumulate);
  }
  in_blocks<S, T>(m, n, k, a, b, c,
                  [k, accumulate](int64_t m, int64_t n, Mat<const S> a,
                                  Mat<const S> b, Mat<T> c) {
                    if constexpr (std::is_same_v<T, float>)
                      if (k > kLeaf) {
                        Exact* const sums =
                            k <= kMostLeaves * kLeaf
                                ? nullptr
                                : scratch<Exact>(kScratchPackC, m * n);
                        return sum_exactly<S>(m, n, {k}, a, b, {sums, n, 1},
                                              false, c, accumulate);
                      }
                    sum_in_turn<S>(m, n, k, a, b, c, accumulate);
                  });
}
template void leaf_gemm<float>(int64_t, int64_t, int64_t, Mat<const float>,
                               Mat<const float>, Mat<float>, bool);
template void leaf_gemm<double>(int64_t, int64_t, int64_t, Mat<const double>,
                                Mat<const double>, Mat<double>, bool);

template void leaf_gemm<bf16>(int64_t, int64_t, int64_t, Mat<const bf16>,
                              Mat<const bf16>, Mat<float>, bool);
template void leaf_gemm<f16>(int64_t, int64_t, int64_t, Mat<const f16>,
                             Mat<const f16>, Mat<float>, bool);

template <class S>
void leaf_gemm_exact(int64_t m, int64_t n, const Leaves& leaves, Mat<const S> a,
                     Mat<const S> b, Mat<Exact> c, bool accumulate) {
  if (m == 0 || n == 0) return;
  if (leaves.k == 0) {
    for (int64_t i = 0; i < m && !accumulate; ++i)
      for (int64_t j = 0; j < n; ++j) c.p[i * c.row + j * c.col] = Exact();
    return;
  }
  in_blocks<S, Exact>(
      m, n, leaves.k, a, b, c,
      [&leaves, accumulate](int64_t m, int64_t n, Mat<const S> a,
                            Mat<const S> b, Mat<Exact> c) {
        sum_exactly<S>(m, n, leaves, a, b, c, accumulate, {}, false);
      });
}
template void leaf_gemm_exact<float>(int64_t, int64_t, const Leaves&,
                                     Mat<const float>, Mat<const float>,
                                     Mat<Exact>, bool);
template void leaf_gemm_exact<bf16>(int64_t, int64_t, const Leaves&,
                                    Mat<const bf16>, Mat<const bf16>,
                                    Mat<Exact>, bool);
template void leaf_gemm_exact<f16>(int64_t, int64_t, const Leaves&,
                                   Mat<const f16>, Mat<const f16>, Mat<Exact>,
                                   bool);

}  // namespace dtensor::kernels::cpu
