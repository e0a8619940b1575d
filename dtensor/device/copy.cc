// SPDX-License-Identifier: Apache-2.0
#include "dtensor/device/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "dtensor/device/convert.h"
#include "dtensor/device/nest.h"
#include "dtensor/device/streaming.h"
#include "dtensor/placement/exact.h"

namespace dtensor {
namespace {

template <class T>
T load(const char* p) {
  T x;
  std::memcpy(&x, p, sizeof(T));
  return x;
}
template <class T>
void store(char* p, T x) {
  std::memcpy(p, &x, sizeof(T));
}

// Nontemporal stores pay from this length of a run (contiguous bytes) on.
constexpr int64_t kStreamedRun = 256;
// Runs that are shorter than this are copied inline, because a call of memcpy
// costs more.
constexpr int64_t kInlineBytes = 4096;

struct Line {
  char bytes[64];
};

// From 2 KiB on, glibc's memcpy uses `rep movsb`, which some processors run
// fifteen times slower than a loop unless both sides begin at a cache line.
inline bool lines_begin_at(const char* d, const char* s) {
  return (reinterpret_cast<uintptr_t>(d) | reinterpret_cast<uintptr_t>(s)) %
             sizeof(Line) ==
         0;
}

// Copies a run by its first and its last sizeof(T) bytes, which may overlap.
template <class T>
void copy_ends(char* d, const char* s, int64_t bytes) {
  constexpr int64_t kItem = sizeof(T);
  const T head = load<T>(s), tail = load<T>(s + bytes - kItem);
  store(d, head);
  store(d + bytes - kItem, tail);
}

inline void copy_run(char* d, const char* s, int64_t bytes) {
  struct Half {
    char bytes[16];
  };
  struct Full {
    char bytes[32];
  };
  if (bytes >= kInlineBytes && lines_begin_at(d, s)) {
    std::memcpy(d, s, static_cast<size_t>(bytes));
  } else if (bytes > 64) {
    const Line tail = load<Line>(s + bytes - 64);
    for (int64_t i = 0; i < bytes - 64; i += 64)
      store(d + i, load<Line>(s + i));
    store(d + bytes - 64, tail);
  } else if (bytes >= 32) {
    copy_ends<Full>(d, s, bytes);
  } else if (bytes >= 16) {
    copy_ends<Half>(d, s, bytes);
  } else if (bytes >= 8) {
    copy_ends<uint64_t>(d, s, bytes);
  } else if (bytes >= 4) {
    copy_ends<uint32_t>(d, s, bytes);
  } else {
    for (int64_t i = 0; i < bytes; ++i) d[i] = s[i];
  }
}

// Runs of equal length at constant distances: the two innermost loops.
struct Runs {
  explicit Runs(const Nest& nest) {
    const int loop = nest.loops() - 2;
    if (loop < 0) return;
    count = nest.n(loop);
    to_step = nest.step(loop, 0);
    from_step = nest.step(loop, 1);
  }
  int64_t count = 1, to_step = 0, from_step = 0;
  template <class Copy>
  void each(char* d, const char* s, Copy&& copy) const {
    for (int64_t i = 0; i < count; ++i, d += to_step, s += from_step)
      copy(d, s);
  }
  // Copies runs of sizeof(T) bytes, a length that the compiler knows.
  template <class T>
  void each_as(char* d, const char* s) const {
    each(d, s, [](char* to, const char* from) { store(to, load<T>(from)); });
  }
};

// Copies the two innermost loops. REQUIRES: the innermost one is a contiguous
// run. Returns the bytes copied.
int64_t copy_runs(const Nest& nest, char* d, const char* s, int64_t item,
                  bool streamed) {
  struct TwoLines {
    Line lines[2];
  };
  const int last = nest.loops() - 1;
  const int64_t bytes = nest.n(last) * item;
  const Runs runs(nest);
  if (streamed && bytes >= kStreamedRun) {
    runs.each(d, s, [&](char* to, const char* from) {
      stream_bytes(to, from, bytes);
    });
    return bytes * runs.count;
  }
  switch (bytes) {
    case 4:
      runs.each_as<uint32_t>(d, s);
      break;
    case 8:
      runs.each_as<uint64_t>(d, s);
      break;
    case 64:
      runs.each_as<Line>(d, s);
      break;
    case 128:
      runs.each_as<TwoLines>(d, s);
      break;
    default:
      runs.each(d, s,
                [&](char* to, const char* from) { copy_run(to, from, bytes); });
  }
  return bytes * runs.count;
}

template <class T>
int64_t copy_row(char* d, int64_t ds, const char* s, int64_t ss, int64_t n) {
  if (ss == 0) {
    const T x = load<T>(s);
    if (ds == sizeof(T))
      std::fill_n(reinterpret_cast<T*>(d), n, x);
    else
      for (int64_t i = 0; i < n; ++i) store(d + i * ds, x);
  } else if (ds == sizeof(T) && ss == -ds) {
    // The compiler knows these distances, and so reverses whole registers.
    constexpr auto kItem = static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < n; ++i)
      store(d + i * kItem, load<T>(s - i * kItem));
  } else if (ds == sizeof(T)) {
    for (int64_t i = 0; i < n; ++i)
      store(d + i * static_cast<int64_t>(sizeof(T)), load<T>(s + i * ss));
  } else {
    for (int64_t i = 0; i < n; ++i) store(d + i * ds, load<T>(s + i * ss));
  }
  return n * static_cast<int64_t>(sizeof(T));
}

// d[i, j] = s[i, j], where d is contiguous along j and s along i. Works in
// tiles, so that a cache line is not fetched again for each of its elements.
// Each whole tile goes through a small buffer: in d and s, its lines are often
// a power of two bytes apart, and would evict each other from the cache.
template <class T>
int64_t transpose(char* d, int64_t d_row, int64_t rows, const char* s,
                  int64_t s_column, int64_t columns) {
  constexpr int64_t kTile = std::clamp<int64_t>(64 / sizeof(T), 8, 32);
  constexpr int64_t kItem = sizeof(T);
  int64_t copied = 0;
  T tile[kTile][kTile];
  for (int64_t i0 = 0; i0 < rows; i0 += kTile) {
    const int64_t ni = std::min(kTile, rows - i0);
    for (int64_t j0 = 0; j0 < columns; j0 += kTile) {
      const int64_t nj = std::min(kTile, columns - j0);
      char* to = d + i0 * d_row + j0 * kItem;
      const char* from = s + i0 * kItem + j0 * s_column;
      if (ni == kTile && nj == kTile) {
        for (int64_t j = 0; j < kTile; ++j)
          std::memcpy(tile[j], from + j * s_column, sizeof(tile[j]));
        for (int64_t i = 0; i < kTile; ++i) {
          T line[kTile];
          for (int64_t j = 0; j < kTile; ++j) line[j] = tile[j][i];
          std::memcpy(to + i * d_row, line, sizeof(line));
        }
      } else {
        for (int64_t j = 0; j < nj; ++j)
          for (int64_t i = 0; i < ni; ++i)
            store(to + i * d_row + j * kItem,
                  load<T>(from + i * kItem + j * s_column));
      }
      copied += ni * nj * kItem;
    }
  }
  return copied;
}

template <class T>
int64_t copy_items(Nest& nest, char* base[2]) {
  constexpr int64_t kItem = sizeof(T);
  const int last = nest.loops() - 1;
  int64_t copied = 0;
  int along = -1;  // the loop in which the source is contiguous
  for (int l = 0; l < last; ++l)
    if (nest.step(l, 1) == kItem) along = l;
  if (along >= 0 && nest.step(last, 0) == kItem && nest.n(along) >= 4) {
    nest.reorder(along, last - 1);
    nest.each(2, base, [&] {
      copied += transpose<T>(base[0], nest.step(last - 1, 0), nest.n(last - 1),
                             base[1], nest.step(last, 1), nest.n(last));
    });
  } else {
    const Runs rows(nest);
    const int64_t ds = nest.step(last, 0), ss = nest.step(last, 1),
                  n = nest.n(last);
    nest.each(2, base, [&] {
      rows.each(base[0], base[1], [&](char* to, const char* from) {
        copied += copy_row<T>(to, ds, from, ss, n);
      });
    });
  }
  return copied;
}

}  // namespace

int64_t copy_strided(int64_t item_size, Sizes shape, void* dst,
                     Sizes dst_strides, const void* src, Sizes src_strides) {
  Nest nest(shape, 2);
  nest.set(0, dst_strides, item_size);
  nest.set(1, src_strides, item_size);
  if (!nest.simplify()) return 0;
  // The nest moves both pointers; the source is only read.
  char* base[2] = {static_cast<char*>(dst),
                   static_cast<char*>(const_cast<void*>(src))};
  const int last = nest.loops() - 1;
  const bool run = nest.n(last) == 1 || (nest.step(last, 0) == item_size &&
                                         nest.step(last, 1) == item_size);
  int64_t copied = 0;
  if (!run) switch (item_size) {
      case 1:
        return copy_items<uint8_t>(nest, base);
      case 2:
        return copy_items<uint16_t>(nest, base);
      case 4:
        return copy_items<uint32_t>(nest, base);
      case 8:
        return copy_items<uint64_t>(nest, base);
      default:
        nest.each(0, base, [&] {
          copy_run(base[0], base[1], item_size);
          copied += item_size;
        });
        return copied;
    }
  int64_t bytes = item_size;
  for (int64_t n : shape) bytes *= n;
  const bool streamed = bytes >= kStreamedBytes;
  nest.each(2, base, [&] {
    copied += copy_runs(nest, base[0], base[1], item_size, streamed);
  });
  if (streamed) streaming_fence();
  return copied;
}

// Converts between exact sums and floats.
namespace {
template <class T>
void cast_exact(const Nest& nest, char** base, bool to_exact) {
  const int last = nest.loops() - 1;
  const int64_t n = nest.n(last), ds = nest.step(last, 0),
                ss = nest.step(last, 1);
  constexpr bool kFloat = std::is_same_v<T, float>;
  const bool rows = kFloat && ds == sizeof(T) && ss == sizeof(Exact);
  nest.each(1, base, [&] {
    if (rows && !to_exact)
      Exact::values(reinterpret_cast<const Exact*>(base[1]), n,
                    reinterpret_cast<float*>(base[0]));
    else if (to_exact)
      for (int64_t i = 0; i < n; ++i)
        store(base[0] + i * ds,
              Exact(convert<double>(load<T>(base[1] + i * ss))));
    else
      for (int64_t i = 0; i < n; ++i)
        store(base[0] + i * ds, convert<T>(portable::compute_t<T>(
                                    load<Exact>(base[1] + i * ss).value())));
  });
}
}  // namespace

// Use registers of 512 bits, although GCC's tuning prefers 256.
#ifdef __AVX512F__
#pragma GCC push_options
#pragma GCC target("prefer-vector-width=512")
#endif
void cast_strided(Sizes shape, DType dst_dtype, void* dst, Sizes dst_strides,
                  DType src_dtype, const void* src, Sizes src_strides) {
  if (dst_dtype == src_dtype) {
    copy_strided(size_of(dst_dtype), shape, dst, dst_strides, src, src_strides);
    return;
  }
  Nest nest(shape, 2);
  nest.set(0, dst_strides, size_of(dst_dtype));
  nest.set(1, src_strides, size_of(src_dtype));
  if (!nest.simplify()) return;
  char* base[2] = {static_cast<char*>(dst),
                   static_cast<char*>(const_cast<void*>(src))};
  const bool to_exact = dst_dtype == DType::kExact;
  if (to_exact || src_dtype == DType::kExact)
    return visit(to_exact ? src_dtype : dst_dtype, [&]<class T>() {
      if constexpr (portable::is_floating<T>)
        cast_exact<T>(nest, base, to_exact);
      else
        refuse_arithmetic(DType::kExact);
    });
  const int last = nest.loops() - 1;
  const int64_t n = nest.n(last), ds = nest.step(last, 0),
                ss = nest.step(last, 1);
  visit_stored(dst_dtype, [&]<class D>() {
    visit_stored(src_dtype, [&]<class Source>() {
      // Read a bool as uint8_t, since its byte may have any value; the
      // compiler's loop stays simple.
      using S =
          std::conditional_t<std::is_same_v<Source, bool>, uint8_t, Source>;
      nest.each(1, base, [&] {
        if (ds == sizeof(D) && ss == sizeof(S)) {
          D* d = reinterpret_cast<D*>(base[0]);
          const S* s = reinterpret_cast<const S*>(base[1]);
#pragma GCC ivdep  // d and s share no memory
          for (int64_t i = 0; i < n; ++i) d[i] = convert<D>(s[i]);
        } else {
          for (int64_t i = 0; i < n; ++i)
            store(base[0] + i * ds, convert<D>(load<S>(base[1] + i * ss)));
        }
      });
    });
  });
}
#ifdef __AVX512F__
#pragma GCC pop_options
#endif

void fill(DType dtype, int64_t n, void* dst, double value) {
  if (dtype == DType::kExact) {
    std::fill_n(static_cast<Exact*>(dst), n, Exact(value));
    return;
  }
  visit_stored(dtype, [&]<class T>() {
    std::fill_n(static_cast<T*>(dst), n, fill_value<T>(value));
  });
}

void fill_strided(DType dtype, Sizes shape, void* dst, Sizes dst_strides,
                  double value) {
  const auto fill = [&]<class T>(T x) {
    const int64_t zero[kMaxLoops] = {};
    copy_strided(sizeof(T), shape, dst, dst_strides, &x, zero);
  };
  if (dtype == DType::kExact) return fill(Exact(value));
  visit_stored(dtype, [&]<class T>() { fill(fill_value<T>(value)); });
}

}  // namespace dtensor
