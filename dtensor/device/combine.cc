// SPDX-License-Identifier: Apache-2.0
#include "dtensor/device/combine.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "dtensor/device/copy.h"
#include "dtensor/device/nest.h"
#include "dtensor/device/reduce_op.h"
#include "dtensor/device/streaming.h"
#include "dtensor/device/values.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/exact.h"

namespace dtensor {
namespace {

// A block of this size stays in the first-level cache until it is used again.
constexpr int64_t kBlockBytes = 16 << 10;

// Reduces one row of n elements. The loops carry no dependency (ivdep): a
// source is either exactly the destination, or does not overlap it.
template <class T, class Op>
struct Row {
  using A = portable::compute_t<T>;

  static void two(T* d, const T* a, const T* b, int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) d[i] = T(Op::apply(A(a[i]), A(b[i])));
  }
  static void three(T* d, const T* a, const T* b, const T* c, int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i)
      d[i] = T(Op::apply(Op::apply(A(a[i]), A(b[i])), A(c[i])));
  }
  static void four(T* out, const T* a, const T* b, const T* c, const T* d,
                   int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i)
      out[i] = T(
          Op::apply(Op::apply(Op::apply(A(a[i]), A(b[i])), A(c[i])), A(d[i])));
  }

  // Reduces any number of sources, in blocks that stay in the first-level
  // cache. The destination is written last because it may be one of the
  // sources.
  static void many(T* d, char* const* s, int k, int64_t n, A divisor) {
    constexpr int64_t kBlock = 1024;
    A acc[kBlock];
    for (int64_t i0 = 0; i0 < n; i0 += kBlock) {
      const int64_t m = std::min(kBlock, n - i0);
      const T* first = reinterpret_cast<const T*>(s[0]) + i0;
      for (int64_t i = 0; i < m; ++i) acc[i] = A(first[i]);
      for (int j = 1; j < k; ++j) {
        const T* next = reinterpret_cast<const T*>(s[j]) + i0;
        for (int64_t i = 0; i < m; ++i) acc[i] = Op::apply(acc[i], A(next[i]));
      }
      finish(d + i0, acc, m, divisor);
    }
  }

  static void finish(T* d, const A* acc, int64_t n, A divisor) {
    if constexpr (std::is_floating_point_v<A>) {
      if (divisor != A(1)) {
        for (int64_t i = 0; i < n; ++i) d[i] = T(acc[i] / divisor);
        return;
      }
    }
    for (int64_t i = 0; i < n; ++i) d[i] = T(acc[i]);
  }

  static void contiguous(char* d, char* const* s, int k, int64_t n, A divisor) {
    T* out = reinterpret_cast<T*>(d);
    auto in = [&](int j) { return reinterpret_cast<const T*>(s[j]); };
    // Converting f16 takes so long that the loops for two to four sources gain
    // nothing.
    if constexpr (std::is_same_v<T, f16>) return many(out, s, k, n, divisor);
    if (divisor != A(1) || k < 2 || k > 4) return many(out, s, k, n, divisor);
    if (k == 2) return two(out, in(0), in(1), n);
    if (k == 3) return three(out, in(0), in(1), in(2), n);
    return four(out, in(0), in(1), in(2), in(3), n);
  }

  // Like contiguous(), but in blocks whose results bypass the cache
  // (streaming.h).
  static void streamed(char* d, char* const* s, int k, int64_t n, A divisor) {
    constexpr int64_t kBlock = kBlockBytes / static_cast<int64_t>(sizeof(T));
    alignas(64) T block[kBlock];
    std::vector<char*> at(s, s + k);
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      const int64_t bytes = m * static_cast<int64_t>(sizeof(T));
      char* to = reinterpret_cast<char*>(block);
      contiguous(to, at.data(), k, m, divisor);
      stream_bytes(d, to, bytes);
      d += bytes;
      for (char*& p : at) p += bytes;
    }
    streaming_fence();
  }

  static void strided(char* const* base, const Nest& nest, int loop, int k,
                      A divisor) {
    const int64_t n = nest.n(loop);
    for (int64_t i = 0; i < n; ++i) {
      auto value = [&](int array) {
        return A(*reinterpret_cast<const T*>(base[array] +
                                             i * nest.step(loop, array)));
      };
      A acc = value(1);
      for (int j = 1; j < k; ++j) acc = Op::apply(acc, value(1 + j));
      finish(reinterpret_cast<T*>(base[0] + i * nest.step(loop, 0)), &acc, 1,
             divisor);
    }
  }
};

template <class T, class Op>
int64_t reduce_rows(const Nest& nest, char** base, int k, int64_t count) {
  constexpr int64_t kItem = sizeof(T);
  using A = portable::compute_t<T>;
  const A divisor = static_cast<A>(count);
  const int last = nest.loops() - 1;
  bool unit = true;
  for (int a = 0; a <= k; ++a)
    unit &= nest.step(last, a) == kItem || nest.n(last) == 1;
  int64_t read = 0, bytes = kItem;
  for (int i = 0; i <= last; ++i) bytes *= nest.n(i);
  const bool streams = unit && bytes >= kStreamedBytes &&
                       nest.n(last) * kItem >= kBlockBytes &&
                       std::count(base + 1, base + 1 + k, base[0]) == 0;
  nest.each(1, base, [&] {
    if (streams)
      Row<T, Op>::streamed(base[0], base + 1, k, nest.n(last), divisor);
    else if (unit)
      Row<T, Op>::contiguous(base[0], base + 1, k, nest.n(last), divisor);
    else
      Row<T, Op>::strided(base, nest, last, k, divisor);
    read += nest.n(last) * kItem;
  });
  return read;
}

// Sums blocks that stay in the first-level cache. A source may be the
// destination.
int64_t add_exact(const Nest& nest, char** base, int k) {
  constexpr int64_t kBlock = 256, kItem = sizeof(Exact);
  const int last = nest.loops() - 1;
  const int64_t n = nest.n(last);
  int64_t read = 0;
  nest.each(1, base, [&] {
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      Exact sums[kBlock], more[kBlock];
      for (int j = 1; j <= k; ++j) {
        const int64_t step = nest.step(last, j);
        const char* const from = base[j] + i * step;
        Exact* const to = j == 1 ? sums : more;
        if (step == kItem)
          std::memcpy(to, from, static_cast<size_t>(m * kItem));
        else
          for (int64_t q = 0; q < m; ++q)
            std::memcpy(to + q, from + q * step, sizeof(Exact));
        if (j > 1) Exact::add_each(sums, more, m);
      }
      for (int64_t q = 0; q < m; ++q)
        std::memcpy(base[0] + (i + q) * nest.step(last, 0), sums + q,
                    sizeof(Exact));
    }
    read += n * kItem;
  });
  return read;
}

}  // namespace

double identity(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return -std::numeric_limits<double>::infinity();
    case ReduceOp::kMin:
      return std::numeric_limits<double>::infinity();
    case ReduceOp::kProd:
    case ReduceOp::kAll:
      return 1;
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
    case ReduceOp::kAny:
    case ReduceOp::kMean:
    case ReduceOp::kExactSum:
      break;
  }
  return 0;
}

void check_reducible(ReduceOp op, DType dtype, std::string_view where) {
  if (dtype == DType::kI8) refuse_arithmetic(dtype);
  DT_CHECK(dtype != DType::kExact || op == ReduceOp::kSum, where,
           "exact sums have no {}; add them, then cast to f32", name(op));
  DT_CHECK(op != ReduceOp::kMean, where,
           "a mean reduces pairs of a sum and a count, which have to be added; "
           "reduce both with sum, then divide");
  if (op == ReduceOp::kAny || op == ReduceOp::kAll)
    DT_CHECK(dtype == DType::kBool, where,
             "{} reduces bool, not {}; compare with 0 first", name(op),
             name(dtype));
  else if (dtype == DType::kBool)
    DT_CHECK(op != ReduceOp::kSum && op != ReduceOp::kAvg, where,
             "the {} of bool is not a bool; write any, or cast to {} first",
             name(op), op == ReduceOp::kSum ? "i64" : "f32");
  else if (!is_float(dtype))
    DT_CHECK(op != ReduceOp::kAvg, where,
             "the avg of {} values need not be an integer; cast to f32 first",
             name(dtype));
}

int64_t reduce_strided(ReduceOp op, DType dtype, Sizes shape, void* dst,
                       Sizes dst_strides, std::span<const Operand> srcs,
                       int64_t count) {
  if (srcs.empty()) {
    fill_strided(dtype, shape, dst, dst_strides, identity(op));
    return 0;
  }
  const int k = static_cast<int>(srcs.size());
  const int64_t divisor = op == ReduceOp::kAvg ? count : 1;
  if (k == 1 && divisor == 1)
    return copy_strided(size_of(dtype), shape, dst, dst_strides, srcs[0].data,
                        srcs[0].strides);
  Nest nest(shape, k + 1);
  nest.set(0, dst_strides, size_of(dtype));
  for (int j = 0; j < k; ++j)
    nest.set(1 + j, srcs[static_cast<size_t>(j)].strides, size_of(dtype));
  if (!nest.simplify()) return 0;
  char* few[8];
  std::vector<char*> many;
  char** base = few;
  if (k + 1 > 8) {
    many.resize(static_cast<size_t>(k) + 1);
    base = many.data();
  }
  base[0] = static_cast<char*>(dst);
  for (int j = 0; j < k; ++j)  // nest moves the pointers; sources are only read
    base[1 + j] = static_cast<char*>(
        const_cast<void*>(srcs[static_cast<size_t>(j)].data));
  int64_t read = 0;
  if (dtype == DType::kExact) return add_exact(nest, base, k);
  visit(dtype, [&]<class T>() {
    reduce_op::visit(op, [&]<class Op>() {
      read = reduce_rows<T, Op>(nest, base, k, divisor);
    });
  });
  return read;
}

int64_t reduce_into_all(ReduceOp op, DType dtype, int64_t n,
                        std::span<char* const> dsts,
                        std::span<const char* const> srcs, int64_t count) {
  const int64_t item = size_of(dtype), step = kBlockBytes / item, unit[] = {1};
  // A destination that is also read is in the cache already.
  const bool in_place = std::any_of(dsts.begin(), dsts.end(), [&](char* d) {
    return std::count(srcs.begin(), srcs.end(), d) > 0;
  });
  const bool streamed =
      !in_place &&
      n * item * static_cast<int64_t>(dsts.size()) >= kStreamedBytes;
  alignas(64) char block[kBlockBytes];
  std::vector<Operand> operands(srcs.size());
  int64_t read = 0;
  for (int64_t i = 0; i < n; i += step) {
    const int64_t shape[] = {std::min(step, n - i)};
    for (size_t j = 0; j < srcs.size(); ++j)
      operands[j] = {srcs[j] + i * item, unit};
    char* first = streamed ? block : dsts[0] + i * item;
    const int64_t bytes =
        reduce_strided(op, dtype, shape, first, unit, operands, count);
    read += bytes;
    for (size_t j = streamed ? 0 : 1; j < dsts.size(); ++j) {
      if (streamed)
        stream_bytes(dsts[j] + i * item, block, bytes);
      else
        std::memcpy(dsts[j] + i * item, first, static_cast<size_t>(bytes));
    }
  }
  if (streamed) streaming_fence();
  return read;
}

void check_divisible(DType dtype) {
  DT_CHECK(is_float(dtype), "divide",
           "{} is not a float type; cast to f32 first", name(dtype));
}

void divide(DType dtype, int64_t n, void* dst, const void* a, const void* b) {
  check_divisible(dtype);
  visit(dtype, [&]<class T>() {
    using A = portable::compute_t<T>;
    if constexpr (std::is_floating_point_v<A>) {
      const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
      T* out = static_cast<T*>(dst);
      for (int64_t i = 0; i < n; ++i) out[i] = T(A(x[i]) / A(y[i]));
    }
  });
}

}  // namespace dtensor
