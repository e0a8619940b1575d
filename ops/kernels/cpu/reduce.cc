#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "dtensor/device/portable/rows.h"
#include "dtensor/ops/kernels/cpu/cpu_kernels.h"
#include "dtensor/ops/kernels/cpu/loops.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

// --- The operations ---------------------------------------------------------
template <class T>
using unsigned_t =
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                std::type_identity<T>>::type;

struct Sum {
  template <class T>
  static constexpr T identity = 0;
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(unsigned_t<T>(a) + unsigned_t<T>(b));
  }
  template <class T>
  static Vec<T> apply(Vec<T> a, Vec<T> b) {
    return a + b;
  }
};
struct Prod {
  template <class T>
  static constexpr T identity = 1;
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(unsigned_t<T>(a) * unsigned_t<T>(b));
  }
  template <class T>
  static Vec<T> apply(Vec<T> a, Vec<T> b) {
    return a * b;
  }
};
struct Max {
  template <class T>
  static constexpr T identity = std::numeric_limits<T>::has_infinity
                                    ? -std::numeric_limits<T>::infinity()
                                    : std::numeric_limits<T>::lowest();
  template <class T>
  static T apply(T a, T b) {
    return max_of(a, b);
  }
  template <class T>
  static Vec<T> apply(Vec<T> a, Vec<T> b) {
    return max(a, b);
  }
};
struct Min {
  template <class T>
  static constexpr T identity = std::numeric_limits<T>::has_infinity
                                    ? std::numeric_limits<T>::infinity()
                                    : std::numeric_limits<T>::max();
  template <class T>
  static T apply(T a, T b) {
    return min_of(a, b);
  }
  template <class T>
  static Vec<T> apply(Vec<T> a, Vec<T> b) {
    return min(a, b);
  }
};

// Sums and products of floats are accumulated in f64.
template <class Op, class T>
using acc_t = std::conditional_t<std::is_floating_point_v<T> &&
                                     (std::is_same_v<Op, Sum> ||
                                      std::is_same_v<Op, Prod>),
                                 double, T>;

template <class S, class A>
S rounded(A a) {
  if constexpr (is_half<S>)
    return S(static_cast<float>(a));
  else
    return static_cast<S>(a);
}

// --- A contiguous run -------------------------------------------------------
template <class Op, class S>
acc_t<Op, compute_t<S>> reduce_run(int64_t n, const S* x) {
  using T = compute_t<S>;
  using A = acc_t<Op, T>;
  constexpr T identity = Op::template identity<T>;
  if constexpr (std::is_floating_point_v<T>) {
    auto op = [](Vec<T> a, Vec<T> b) { return Op::apply(a, b); };
    auto get = [&](auto at) { return at(x, identity); };
    A r = Op::template identity<A>;
    for (int64_t i = 0; i < n; i += kPiece)
      r = Op::apply(r,
                    static_cast<A>(fold(combine<T>(i, std::min(n, i + kPiece),
                                                   Vec<T>(identity), get, op),
                                        op)));
    return r;
  } else {
    T r = identity;
    for (int64_t i = 0; i < n; ++i) r = Op::apply(r, x[i]);
    return r;
  }
}

template <class Op, class S>
acc_t<Op, compute_t<S>> reduce_run(int64_t n, const S* x, int64_t stride) {
  if (stride == 1 || n == 1) return reduce_run<Op>(n, x);
  using T = compute_t<S>;
  using A = acc_t<Op, T>;
  A r = Op::template identity<A>;
  T buf[kChunk];
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t m = std::min(kChunk, n - i);
    r = Op::apply(r,
                  reduce_run<Op, T>(m, fetch(x + i * stride, stride, m, buf)));
  }
  return r;
}

// --- Columns ----------------------------------------------------------------
// acc[j] (+)= the reduction over `rows` of x[r * row + j * col]; n <= kChunk.
template <class Op, class S>
void reduce_columns(int64_t rows, int64_t n, const S* x, int64_t row,
                    int64_t col, acc_t<Op, compute_t<S>>* acc) {
  using T = compute_t<S>;
  using A = acc_t<Op, T>;
  constexpr T identity = Op::template identity<T>;
  T part[kChunk], buf[kChunk];
  // Short sums in T, which are accumulated in A.
  constexpr int64_t kBlock = 32;
  for (int64_t b = 0; b < rows; b += kBlock) {
    const int64_t end = std::min(rows, b + kBlock);
    std::fill_n(part, n, identity);
    for (int64_t r = b; r < end; ++r) {
      const S* xr = x + r * row;
      if (std::is_floating_point_v<T> && col == 1) {
        if constexpr (std::is_floating_point_v<T>)
          each(n, part, [&](auto at) { return Op::apply(at(part), at(xr)); });
      } else {
        const T* p = fetch(xr, col, n, buf);
        for (int64_t j = 0; j < n; ++j) part[j] = Op::apply(part[j], p[j]);
      }
    }
    for (int64_t j = 0; j < n; ++j)
      acc[j] = Op::apply(acc[j], static_cast<A>(part[j]));
  }
}

// --- The walk ---------------------------------------------------------------
struct Dim {
  int64_t n, in, out;  // size and strides; out is 0 for a reduced dimension
  bool reduced;
};

int64_t rank_of(int64_t stride) {
  // Broadcast dimensions go to the outside.
  if (stride == 0) return std::numeric_limits<int64_t>::max();
  return stride < 0 ? -stride : stride;
}

// How to walk over the input, in the order of its memory: d[0] is innermost.
struct Reduction {
  Dim d[kMaxDims];
  int nd = 0;
  int64_t count = 1;      // the number of outputs
  bool empty = false;     // a reduced dimension has no elements
  bool columns = false;   // the innermost dimension is kept
  bool has_rows = false;  // and d[1] is reduced
  bool once = true;       // every output is visited once
  int inner() const { return columns && has_rows ? 2 : 1; }

  Reduction(const Shape& shape, const Shape& strides, uint32_t dims) {
    for (int i = shape.size() - 1; i >= 0; --i) {
      const bool reduced = dims >> i & 1;
      if (shape[i] == 0 && reduced) empty = true;
      if (shape[i] != 1)
        d[nd++] = {shape[i], strides[i], reduced ? 0 : count, reduced};
      if (!reduced) count *= shape[i];
    }
    std::stable_sort(d, d + nd, [](const Dim& a, const Dim& b) {
      return rank_of(a.in) < rank_of(b.in);
    });
    int m = 0;
    for (int i = 0; i < nd; ++i) {
      if (m > 0 && d[m - 1].reduced == d[i].reduced &&
          d[i].in == d[m - 1].in * d[m - 1].n &&
          d[i].out == d[m - 1].out * d[m - 1].n)
        d[m - 1].n *= d[i].n;
      else
        d[m++] = d[i];
    }
    nd = m;
    if (nd == 0) d[nd++] = {1, 1, 1, false};
    // If the innermost dimension is kept, reduce columns over a reduced
    // dimension next to it.
    columns = !d[0].reduced;
    for (int i = 1; columns && i < nd && !has_rows; ++i) {
      if (d[i].reduced) {
        std::rotate(d + 1, d + i, d + i + 1);
        has_rows = true;
      }
    }
    // If no outer dimension is reduced, every output is visited once.
    for (int i = inner(); i < nd; ++i) once = once && !d[i].reduced;
  }
};

template <class Op, class S>
void reduce_typed(const Reduction& walk, const S* in, S* out) {
  using T = compute_t<S>;
  using A = acc_t<Op, T>;
  const auto& [d, nd, count, empty, columns, has_rows, once] = walk;
  if (count == 0) return;
  if (empty) {
    std::fill_n(out, count, rounded<S>(Op::template identity<T>));
    return;
  }
  const int inner = walk.inner();
  std::vector<A> sums;
  if (!once) sums.assign(static_cast<size_t>(count), Op::template identity<A>);

  int64_t index[kMaxDims] = {};
  const S* x = in;
  int64_t o = 0;
  for (;;) {
    if (!columns) {
      const A r = reduce_run<Op>(d[0].n, x, d[0].in);
      if (once)
        out[o] = rounded<S>(r);
      else
        sums[static_cast<size_t>(o)] =
            Op::apply(sums[static_cast<size_t>(o)], r);
    } else {
      A acc[kChunk];
      for (int64_t j = 0; j < d[0].n; j += kChunk) {
        const int64_t n = std::min(kChunk, d[0].n - j);
        std::fill_n(acc, n, Op::template identity<A>);
        reduce_columns<Op>(has_rows ? d[1].n : 1, n, x + j * d[0].in,
                           has_rows ? d[1].in : 0, d[0].in, acc);
        const int64_t s = d[0].out, at = o + j * s;
        if (once) {
          for (int64_t i = 0; i < n; ++i) out[at + i * s] = rounded<S>(acc[i]);
        } else {
          for (int64_t i = 0; i < n; ++i) {
            A& sum = sums[static_cast<size_t>(at + i * s)];
            sum = Op::apply(sum, acc[i]);
          }
        }
      }
    }
    int i = inner;
    for (; i < nd; ++i) {
      x += d[i].in;
      o += d[i].out;
      if (++index[i] < d[i].n) break;
      x -= d[i].in * d[i].n;
      o -= d[i].out * d[i].n;
      index[i] = 0;
    }
    if (i >= nd) break;
  }
  for (size_t i = 0; i < sums.size(); ++i) out[i] = rounded<S>(sums[i]);
}

template <class S>
void reduce_kind(ReduceKind kind, const Reduction& walk, const void* in,
                 void* out) {
  const S* x = static_cast<const S*>(in);
  S* y = static_cast<S*>(out);
  switch (kind) {
    case ReduceKind::kSum:
      return reduce_typed<Sum>(walk, x, y);
    case ReduceKind::kMax:
      return reduce_typed<Max>(walk, x, y);
    case ReduceKind::kMin:
      return reduce_typed<Min>(walk, x, y);
    case ReduceKind::kProd:
      return reduce_typed<Prod>(walk, x, y);
  }
}

template <class Op, class S>
void scan_typed(const ScanRows& a) {
  using A = std::conditional_t<std::is_integral_v<S>, int64_t, double>;
  const int64_t n = a.x.n;
  auto* out = static_cast<S*>(a.out);
  for (int64_t r = 0; r < a.x.rows; ++r) {
    const S* x = row_at<S>(a.x, r);
    A sum =
        a.carry ? static_cast<const A*>(a.carry)[r] : Op::template identity<A>;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = a.reverse ? n - 1 - i : i;
      sum = Op::apply(sum, static_cast<A>(compute_t<S>(x[at])));
      if (out) out[r * n + at] = rounded<S>(sum);
    }
    if (a.total) static_cast<A*>(a.total)[r] = sum;
  }
}

}  // namespace

void CpuKernels::run(Stream, const Reduce& a) const {
  const Reduction walk(a.shape, a.strides, a.dims);
  visit(a.type, [&]<class S>() {
    if constexpr (std::is_same_v<S, bool>) {
      DT_CHECK(a.kind != ReduceKind::kSum, "reduce", "does not sum bools");
      // As bytes of 0 and 1. "All" is a product, and 1 if empty.
      using B = uint8_t;
      const auto* x = static_cast<const B*>(a.in);
      auto* y = static_cast<B*>(a.out);
      if (a.kind == ReduceKind::kMax) return reduce_typed<Max>(walk, x, y);
      return reduce_typed<Prod>(walk, x, y);
    } else {
      reduce_kind<S>(a.kind, walk, a.in, a.out);
    }
  });
}

void CpuKernels::run(Stream, const ScanRows& a) const {
  visit_numbers(a.x.type, "scan_rows", [&]<class S>() {
    switch (a.kind) {
      case ReduceKind::kSum:
        return scan_typed<Sum, S>(a);
      case ReduceKind::kMax:
        return scan_typed<Max, S>(a);
      case ReduceKind::kMin:
        return scan_typed<Min, S>(a);
      case ReduceKind::kProd:
        return scan_typed<Prod, S>(a);
    }
  });
}

void CpuKernels::run(Stream, const SumSquares& a) const {
  double r = 0;
  visit_float(a.type, "sum_squares", [&]<class S>() {
    const S* p = static_cast<const S*>(a.x);
    r = total<compute_t<S>>(a.n, [&](auto at) {
      const auto v = at(p);
      return v * v;
    });
  });
  *static_cast<double*>(a.sum) += r;
}

}  // namespace dtensor::kernels
