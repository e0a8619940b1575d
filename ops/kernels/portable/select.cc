// Elements of rows, selected by rank or by index.
#include "dtensor/ops/kernels/select.h"

#include <type_traits>

#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/row.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::each;
using portable::map;
using portable::rounded;
using portable::Row;
using portable::rows;
using portable::widened;

// An element of a row. -1 stands for no element, which comes last.
template <class T>
struct Candidate {
  T value{};
  int64_t id = 0, at = -1;
};

// Whether one element comes before another in the result. No two elements are
// equal in this order.
struct First {
  bool largest;
  template <class T>
  DT_HD static bool above(const T& a, const T& b) {
    return a > b || (a != a && b == b);
  }
  template <class T>
  DT_HD bool before(const Candidate<T>& a, const Candidate<T>& b) const {
    if (a.at < 0 || b.at < 0) return b.at < 0 && a.at >= 0;
    if (above(a.value, b.value)) return largest;
    if (above(b.value, a.value)) return !largest;
    return a.id < b.id;
  }
  template <class T>
  DT_HD Candidate<T> operator()(const Candidate<T>& a,
                                const Candidate<T>& b) const {
    return before(b, a) ? b : a;
  }
};

// Finds the first element of the row, then the first of the rest, and so on,
// because k is small.
template <class S>
void topk_typed(Stream s, int64_t count, int64_t n, const S* x, int64_t stride,
                const int64_t* ids, int64_t first, int64_t k, bool largest,
                S* values, int64_t* value_ids) {
  using C = Candidate<compute_t<S>>;
  rows(
      s, count, n, DT_BODY(Row & row, int64_t r) {
        const S* from = row_at(x, r, stride);
        const First order{largest};
        C last;
        for (int64_t j = 0; j < k; ++j) {
          const C best = row.reduce(
              n, C(), order,
              [&](int64_t i, S v) {
                const C c{widened(v), ids ? ids[r * n + i] : first + i, i};
                return j == 0 || order.before(last, c) ? c : C();
              },
              from);
          put(row, values + r * k + j, from[best.at]);
          put(row, value_ids + r * k + j, best.id);
          last = best;
        }
      });
}

template <class S>
void take_typed(Stream s, int64_t count, int64_t k, const S* x, int64_t stride,
                const int64_t* index, int64_t lo, int64_t hi, S* out) {
  map(
      s, count * k, out,
      DT_BODY(int64_t e, int64_t id) {
        return id >= lo && id < hi ? x[e / k * stride + id - lo] : S();
      },
      index);
}

template <class S>
void put_typed(Stream s, int64_t count, int64_t k, const S* dy, int64_t stride,
               const int64_t* index, int64_t lo, int64_t hi, S* dx) {
  const int64_t n = hi - lo;
  map(
      s, count * n, dx, DT_BODY(int64_t) { return S(); });
  // An index may occur twice, so one thread handles a whole row.
  each(
      s, count, DT_BODY(int64_t r) {
        for (int64_t j = 0; j < k; ++j) {
          const int64_t id = index[r * k + j];
          if (id < lo || id >= hi) continue;
          S& sum = dx[r * n + id - lo];
          sum = rounded<S>(widened(sum) + widened(dy[r * stride + j]));
        }
      });
}

}  // namespace

void PortableKernels::topk_rows(Stream s, DType t, int64_t count, int64_t n,
                                const void* x, int64_t x_stride,
                                const int64_t* ids, int64_t first, int64_t k,
                                bool largest, void* values,
                                int64_t* value_ids) const {
  if (t == DType::kBool) no_kernel("topk", t);
  visit(t, [&]<class S>() {
    if constexpr (!std::is_same_v<S, bool>)
      topk_typed(s, count, n, static_cast<const S*>(x), x_stride, ids, first, k,
                 largest, static_cast<S*>(values), value_ids);
  });
}

void PortableKernels::take_rows(Stream s, DType t, int64_t count, int64_t k,
                                const void* x, int64_t x_stride,
                                const int64_t* index, int64_t lo, int64_t hi,
                                void* out) const {
  visit(t, [&]<class S>() {
    take_typed(s, count, k, static_cast<const S*>(x), x_stride, index, lo, hi,
               static_cast<S*>(out));
  });
}

void PortableKernels::put_rows(Stream s, DType t, int64_t count, int64_t k,
                               const void* dy, int64_t dy_stride,
                               const int64_t* index, int64_t lo, int64_t hi,
                               void* dx) const {
  if (hi <= lo) return;
  visit_float(t, "gather backward", [&]<class S>() {
    put_typed(s, count, k, static_cast<const S*>(dy), dy_stride, index, lo, hi,
              static_cast<S*>(dx));
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
