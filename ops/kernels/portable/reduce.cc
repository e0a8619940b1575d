// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/reduce.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/pack.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/reduction.h"
#include "dtensor/ops/kernels/portable/walk.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::each;
using portable::Row;
using portable::rows;
using portable::Scratch;
using portable::Walk;

#ifdef __CUDACC__
// --- The loops of GPUs ------------------------------------------------------
struct Plan {
  Walk<2> kept;     // arrays: the results, and the first element of each
  Walk<1> reduced;  // the elements of one result, in memory order
};

Plan plan_of(const Shape& kept, const Shape& kept_strides, const Shape& reduced,
             const Shape& reduced_strides) {
  const Shape out_strides = contiguous_strides(kept);
  return {{kept, {out_strides, kept_strides}}, {reduced, {reduced_strides}}};
}
Plan plan_of(const Reduce& a) {
  Shape kept, kept_strides, reduced, reduced_strides;
  for (int i = 0; i < a.shape.size(); ++i) {
    const bool reduces = a.dims >> i & 1;
    (reduces ? reduced : kept).push_back(a.shape[i]);
    (reduces ? reduced_strides : kept_strides).push_back(a.strides[i]);
  }
  return plan_of(kept, kept_strides, reduced, reduced_strides);
}

// Computes each result by one thread, or by `parts` threads that take elements
// in turn. Their results go to `out` in the order [kept without its last loop,
// part, last loop]. If columns are reduced, neighbouring threads then read
// neighbouring elements.
template <class Op, class Get, class S, class Out>
void by_threads(Stream s, const Plan& plan, const S* x, int64_t parts,
                Out* out) {
  using A = acc_t<Op, S>;
  const int64_t results = plan.kept.count(), last = plan.kept.inner();
  each(
      s, results * parts, DT_BODY(int64_t i) {
        const int64_t outer = i / last, part = outer % parts,
                      r = outer / parts * last + i % last;
        int64_t start[2], at[1];
        plan.kept.at(r, start);
        const int64_t n = plan.reduced.count();
        // Four independent accumulators hide latency.
        A four[4];
        for (A& a : four) a = identity<Op, A>();
        int64_t j = part;
        for (; j + 3 * parts < n; j += 4 * parts) {
          S value[4];
          for (int k = 0; k < 4; ++k) {
            plan.reduced.at(j + k * parts, at);
            value[k] = x[start[1] + at[0]];
          }
          for (int k = 0; k < 4; ++k)
            four[k] = Op()(four[k], Get::template get<A>(value[k]));
        }
        for (; j < n; j += parts) {
          plan.reduced.at(j, at);
          four[0] = Op()(four[0], Get::template get<A>(x[start[1] + at[0]]));
        }
        out[i] =
            result<Out>(Op()(Op()(four[0], four[1]), Op()(four[2], four[3])));
      });
}

// Splits the elements of a result into runs of `run` elements, and runs into
// pieces of `piece`. A row of lanes reduces each of [results, runs, pieces].
// `contiguous` says whether each run is contiguous.
struct Pieces {
  int64_t run, piece;
  bool contiguous;
  DT_HD int64_t per_run() const { return (run + piece - 1) / piece; }
};

template <class Op, class Get, class S, class Out>
void by_rows(Stream s, const Plan& plan, const Pieces& pieces, const S* x,
             Out* out) {
  using A = acc_t<Op, S>;
  const int64_t per_run = pieces.per_run(),
                parts = plan.reduced.count() / pieces.run * per_run;
  rows(
      s, plan.kept.count() * parts, pieces.piece,
      DT_BODY(Row & row, int64_t i) {
        int64_t start[2], at[1];
        plan.kept.at(i / parts, start);
        const int64_t part = i % parts, from = part % per_run * pieces.piece,
                      first = part / per_run * pieces.run + from,
                      left = pieces.run - from,
                      n = left < pieces.piece ? left : pieces.piece;
        A all;
        if (pieces.contiguous) {
          plan.reduced.at(first, at);
          all = row.reduce(
              n, identity<Op, A>(), Op(),
              [](int64_t, S v) { return Get::template get<A>(v); },
              x + start[1] + at[0]);
        } else {
          all = row.reduce(n, identity<Op, A>(), Op(), [&](int64_t j) {
            int64_t here[1];
            plan.reduced.at(first + j, here);
            return Get::template get<A>(x[start[1] + here[0]]);
          });
        }
        row.each(1, [&](int64_t) { out[i] = result<Out>(all); });
      });
}

// The numbers of threads, and of rows, that keep a large GPU busy.
constexpr int64_t kThreads = 1 << 18, kRows = 1 << 10;

template <class Op, class Get = Itself, class S, class Out>
void reduce_all(Stream s, const Plan& plan, const S* x, Out* out) {
  using A = acc_t<Op, S>;
  const int64_t results = plan.kept.count(), n = plan.reduced.count();
  if (results == 0) return;
  const auto bytes_of = [&](int64_t parts) {
    return results * parts * static_cast<int64_t>(sizeof(A));
  };
  const int64_t result_step = std::abs(plan.kept.inner_step(1)),
                step = std::abs(plan.reduced.inner_step(0));
  // If neighbours in memory belong to different results, reduce columns.
  const bool columns = result_step != 0 && result_step < step;
  if (columns || n <= 16) {
    const int64_t parts =
        n < 128 ? 1 : std::clamp<int64_t>(kThreads / results, 1, n / 32);
    if (parts == 1) return by_threads<Op, Get>(s, plan, x, 1, out);
    Scratch of_parts(s, bytes_of(parts));
    by_threads<Op, Get>(s, plan, x, parts, of_parts.as<A>());
    const int64_t last = plan.kept.inner();
    return reduce_all<Op>(
        s, plan_of({results / last, last}, {parts * last, 1}, {parts}, {last}),
        of_parts.as<A>(), out);
  }
  const int64_t inner = plan.reduced.inner();
  const bool runs =
      plan.reduced.inner_step(0) == 1 && (inner == n || inner >= 128);
  Pieces p = {runs ? inner : n, 0, runs};
  const int64_t count = results * (n / p.run),
                per_run = std::clamp<int64_t>(
                    kRows / count, 1, std::max<int64_t>(p.run / 4096, 1));
  // A multiple of the elements that are loaded at once.
  p.piece = ((p.run + per_run - 1) / per_run + 63) / 64 * 64;
  const int64_t parts = n / p.run * p.per_run();
  if (parts == 1) return by_rows<Op, Get>(s, plan, p, x, out);
  Scratch of_parts(s, bytes_of(parts));
  by_rows<Op, Get>(s, plan, p, x, of_parts.as<A>());
  reduce_all<Op>(s, plan_of({results}, {parts}, {parts}, {1}), of_parts.as<A>(),
                 out);
}

template <class S>
void sum_of_squares(Stream s, int64_t n, const S* x, double* sum) {
  Scratch total(s, sizeof(double));
  double* const more = total.as<double>();
  reduce_all<Sum, Square>(s, plan_of({}, {}, {n}, {1}), x, more);
  each(
      s, 1, DT_BODY(int64_t) { *sum += *more; });
}
#else
// --- The loops of one thread ------------------------------------------------
using portable::Piece;
using simd::Vec;

template <class Op, class T>
Vec<T> combined(Vec<T> a, Vec<T> b) {
  if constexpr (std::is_same_v<Op, Max>)
    return simd::max(a, b);
  else if constexpr (std::is_same_v<Op, Min>)
    return simd::min(a, b);
  else if constexpr (std::is_same_v<Op, Prod>)
    return a * b;
  else
    return a + b;
}

// The type in which short pieces are reduced. Their results are combined in
// acc_t.
template <class Op, class S>
using part_t = std::conditional_t<portable::is_floating<S>,
                                  portable::compute_t<S>, acc_t<Op, S>>;

// Reduces n elements, which are contiguous, or `step` apart.
template <class Op, class S>
acc_t<Op, S> of_run(int64_t n, const S* x) {
  using A = acc_t<Op, S>;
  A all = identity<Op, A>();
  if constexpr (portable::is_floating<S>) {
    using T = part_t<Op, S>;
    constexpr T none = identity<Op, T>();
    const auto op = [](Vec<T> a, Vec<T> b) { return combined<Op>(a, b); };
    const auto get = [&](auto at) { return at(x, none); };
    for (int64_t i = 0; i < n; i += simd::kPiece)
      all = Op()(all, static_cast<A>(simd::fold(
                          simd::combine<T>(i, std::min(n, i + simd::kPiece),
                                           Vec<T>(none), get, op),
                          op)));
  } else {
    for (int64_t i = 0; i < n; ++i) all = Op()(all, static_cast<A>(x[i]));
  }
  return all;
}
template <class Op, class S>
acc_t<Op, S> of_run(int64_t n, const S* x, int64_t step) {
  if (step == 1 || n == 1) return of_run<Op>(n, x);
  using A = acc_t<Op, S>;
  A all = identity<Op, A>();
  Piece<portable::compute_t<S>> piece;
  for (int64_t i = 0; i < n; i += piece.kMost) {
    const int64_t m = std::min(piece.kMost, n - i);
    all = Op()(all, of_run<Op>(m, piece.of(x + i * step, step, m)));
  }
  return all;
}

// Combines all[j] with the reduction over r < rows of x[r * row + j * step],
// for each j < n. REQUIRES: n <= Piece::kMost.
template <class Op, class S>
void of_columns(int64_t rows, int64_t n, const S* x, int64_t row, int64_t step,
                acc_t<Op, S>* all) {
  using T = part_t<Op, S>;
  // Integers are read in the type in which they are reduced (acc_t).
  using E = std::conditional_t<portable::is_floating<S>, S, T>;
  // Several short rows, one behind the other, are one row of more columns.
  constexpr int64_t kWide = 128;
  const int64_t many = std::min(rows, kWide / n);
  if (many > 1 && row == n * step) {
    acc_t<Op, S> wide[kWide];
    std::fill_n(wide, many * n, identity<Op, acc_t<Op, S>>());
    of_columns<Op>(rows / many, many * n, x, many * row, step, wide);
    for (int64_t i = 0; i < many * n; i += n)
      for (int64_t j = 0; j < n; ++j) all[j] = Op()(all[j], wide[i + j]);
    x += rows / many * many * row;
    rows %= many;
  }
  const auto* from = reinterpret_cast<const E*>(x);
  alignas(64) T part[Piece<T>::kMost];
  Piece<T> piece;
  constexpr int64_t kBlock = 32;
  for (int64_t b = 0; b < rows; b += kBlock) {
    std::fill_n(part, n, identity<Op, T>());
    const int64_t end = std::min(rows, b + kBlock);
    for (int64_t r = b; r < end;) {
      const E* p = from + r * row;
      // Four rows at a time, to load and store the parts once for all four.
      const int64_t few =
          portable::is_floating<S> && step == 1 && end - r >= 4 ? 4 : 1;
      if (portable::is_floating<S> && step == 1) {
        if constexpr (portable::is_floating<S>)
          simd::each(n, part, [&](auto at) {
            auto v = combined<Op>(at(part), at(p));
            if (few == 1) return v;
            for (int k = 1; k < 4; ++k) v = combined<Op>(v, at(p + k * row));
            return v;
          });
      } else {
        const T* q = piece.of(p, step, n);
        for (int64_t j = 0; j < n; ++j) part[j] = Op()(part[j], q[j]);
      }
      r += few;
    }
    for (int64_t j = 0; j < n; ++j)
      all[j] = Op()(all[j], static_cast<acc_t<Op, S>>(part[j]));
  }
}

struct Dim {
  int64_t n, in, out;  // size and strides; out is 0 for a reduced dimension
  bool reduced;
};

int64_t rank_of(int64_t stride) {
  // Broadcast dimensions go to the outside.
  return stride == 0 ? std::numeric_limits<int64_t>::max() : std::abs(stride);
}

// How to walk over the input, mostly in the order of its memory: d[0] is
// innermost.
struct Plan {
  Dim d[kMaxDims];
  int nd = 0;
  int64_t count = 1;      // the number of results
  bool empty = false;     // a reduced dimension has no elements
  bool columns = false;   // the innermost dimension is kept
  bool has_rows = false;  // the same, and d[1] is reduced
  bool once = true;       // every result is visited once
  int inner() const { return columns && has_rows ? 2 : 1; }
};

Plan plan_of(const Reduce& a) {
  Plan plan;
  auto& [d, nd, count, empty, columns, has_rows, once] = plan;
  const auto before = [](const Dim& x, const Dim& y) {
    return rank_of(x.in) < rank_of(y.in);
  };
  for (int i = a.shape.size() - 1; i >= 0; --i) {
    const bool reduced = a.dims >> i & 1;
    if (a.shape[i] == 0 && reduced) empty = true;
    if (a.shape[i] != 1) {  // std::stable_sort() would allocate memory
      d[nd] = {a.shape[i], a.strides[i], reduced ? 0 : count, reduced};
      std::rotate(std::upper_bound(d, d + nd, d[nd], before), d + nd,
                  d + nd + 1);
      ++nd;
    }
    if (!reduced) count *= a.shape[i];
  }
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
  // If the innermost runs are short, several of them are reduced side by side.
  constexpr int64_t kShort = 16;
  if (nd > 1 && d[0].reduced && d[0].n <= kShort && !d[1].reduced)
    std::swap(d[0], d[1]);
  if (nd == 0) d[nd++] = {1, 1, 1, false};
  // If the innermost dimension is kept, reduce columns over the first dimension
  // that is reduced, which becomes d[1].
  columns = !d[0].reduced;
  for (int i = 1; columns && i < nd && !has_rows; ++i) {
    if (d[i].reduced) {
      std::rotate(d + 1, d + i, d + i + 1);
      has_rows = true;
    }
  }
  // If no outer dimension is reduced, every result is visited once.
  for (int i = plan.inner(); i < nd; ++i) once = once && !d[i].reduced;
  return plan;
}

// Returns the innermost dimension in memory if it is reduced and short, the one
// next to it is kept, and other dimensions with many elements are reduced. The
// caller then reduces those others first, as columns of whole cache lines.
// Otherwise returns -1.
int short_run(const Reduce& a) {
  constexpr int64_t kShort = 32, kLong = 64;
  int inner = -1, next = -1;
  int64_t others = 1;
  for (int i = 0; i < a.shape.size(); ++i) {
    if (a.shape[i] == 0) return -1;
    if (a.shape[i] == 1) continue;
    if (inner < 0 || rank_of(a.strides[i]) <= rank_of(a.strides[inner]))
      next = std::exchange(inner, i);
    else if (next < 0 || rank_of(a.strides[i]) < rank_of(a.strides[next]))
      next = i;
  }
  const auto reduced = [&](int i) { return (a.dims >> i & 1) != 0; };
  if (next < 0 || !reduced(inner) || reduced(next) || a.shape[inner] > kShort)
    return -1;
  for (int i = 0; i < a.shape.size(); ++i)
    if (reduced(i) && i != inner) others *= a.shape[i];
  return others >= kLong ? inner : -1;
}

template <class Op, class S, class Out>
void reduce_all(Stream, const Plan& plan, const S* x, Out* out) {
  using A = acc_t<Op, S>;
  const auto& [d, nd, count, empty, columns, has_rows, once] = plan;
  if (count == 0) return;
  if (empty) {
    std::fill_n(out, count, result<Out>(identity<Op, A>()));
    return;
  }
  const int inner = plan.inner();
  std::vector<A> sums;
  if (!once) sums.assign(static_cast<size_t>(count), identity<Op, A>());

  int64_t index[kMaxDims] = {};
  int64_t o = 0;
  for (;;) {
    if (!columns) {
      const A all = of_run<Op>(d[0].n, x, d[0].in);
      if (once)
        out[o] = result<Out>(all);
      else
        sums[static_cast<size_t>(o)] = Op()(sums[static_cast<size_t>(o)], all);
    } else {
      constexpr int64_t kMost = Piece<S>::kMost;
      A all[kMost];
      for (int64_t j = 0; j < d[0].n; j += kMost) {
        const int64_t n = std::min(kMost, d[0].n - j);
        std::fill_n(all, n, identity<Op, A>());
        of_columns<Op>(has_rows ? d[1].n : 1, n, x + j * d[0].in,
                       has_rows ? d[1].in : 0, d[0].in, all);
        const int64_t s = d[0].out, at = o + j * s;
        if (once) {
          for (int64_t i = 0; i < n; ++i) out[at + i * s] = result<Out>(all[i]);
        } else {
          for (int64_t i = 0; i < n; ++i) {
            A& sum = sums[static_cast<size_t>(at + i * s)];
            sum = Op()(sum, all[i]);
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
  for (size_t i = 0; i < sums.size(); ++i) out[i] = result<Out>(sums[i]);
}

// Reduces the dimensions of a.dims, `last` after all others.
template <class Op, class S>
void reduce_in_two(Stream s, const Reduce& a, int last, const S* x, S* out) {
  using A = acc_t<Op, S>;
  Reduce first = a, second;
  first.dims &= ~(1u << last);
  int64_t count = 1;
  for (int i = 0; i < a.shape.size(); ++i) {
    if (first.dims >> i & 1) continue;
    if (i == last) second.dims = 1u << second.shape.size();
    second.shape.push_back(a.shape[i]);
    count *= a.shape[i];
  }
  second.strides = contiguous_strides(second.shape);
  Scratch parts(s, count * static_cast<int64_t>(sizeof(A)));
  reduce_all<Op>(s, plan_of(first), x, parts.as<A>());
  reduce_all<Op>(s, plan_of(second), parts.as<const A>(), out);
}

template <class S>
void sum_of_squares(Stream s, int64_t n, const S* x, double* sum) {
  rows(s, 1, n, [=](Row& row, int64_t) {
    *sum += row.sum(
        n, [](auto v) { return v * v; }, x);
  });
}
#endif

// --- All kinds --------------------------------------------------------------
template <class S>
void reduce_kind(Stream s, ReduceKind kind, const Reduce& a) {
  const S* x = static_cast<const S*>(a.in);
  S* y = static_cast<S*>(a.out);
  const auto reduce = [&]<class Op>(Op) {
#ifndef __CUDACC__
    if (const int last = short_run(a); last >= 0)
      return reduce_in_two<Op>(s, a, last, x, y);
#endif
    reduce_all<Op>(s, plan_of(a), x, y);
  };
  switch (kind) {
    case ReduceKind::kSum:
      return reduce(Sum());
    case ReduceKind::kMax:
      return reduce(Max());
    case ReduceKind::kMin:
      return reduce(Min());
    case ReduceKind::kProd:
      return reduce(Prod());
  }
}

}  // namespace

DT_KERNEL(Reduce)
void run(Stream s, const Reduce& a) {
  if (a.type == DType::kBool && a.kind == ReduceKind::kSum)
    no_kernel("reduce", a.type);
  visit(a.type, [&]<class S>() {
    // For bools, "all" (kMin) is computed as a product: 1 if empty.
    if constexpr (std::is_same_v<S, bool>)
      reduce_kind<uint8_t>(
          s, a.kind == ReduceKind::kMax ? a.kind : ReduceKind::kProd, a);
    else
      reduce_kind<S>(s, a.kind, a);
  });
}

DT_KERNEL(SumSquares)
void run(Stream s, const SumSquares& a) {
  visit_float(a.type, "sum_squares", [&]<class S>() {
    sum_of_squares(s, a.n, static_cast<const S*>(a.x),
                   static_cast<double*>(a.sum));
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
