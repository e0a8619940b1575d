// The epilogues of matrix products, each in one pass over the product.
#include "dtensor/device/portable/walk.h"
#include "dtensor/ops/functions/activation.h"
#include "dtensor/ops/kernels/folded_gemm.h"
#include "dtensor/ops/kernels/portable/column_sums.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::each;
using portable::rounded;
using portable::Scratch;
using portable::Walk;
using portable::widened;

template <class S>
void finish(Stream s, const Gemm& g) {
  using C = compute_t<S>;
  Shape shape = g.batch, c_strides = g.c_batch_strides,
        bias_strides = Shape::filled(shape.size(), 0);
  shape.push_back(g.m);
  c_strides.push_back(g.c_m);
  bias_strides.push_back(0);
  shape.push_back(g.n);
  c_strides.push_back(g.c_n);
  bias_strides.push_back(1);
  const Walk<2> walk(shape, {c_strides, bias_strides});
  const bool gelu = g.epilogue.kind == Epilogue::kGeluTanh;
  const auto* bias = static_cast<const S*>(g.epilogue.bias);
  auto *c = static_cast<S*>(g.c), *aux = static_cast<S*>(g.epilogue.aux);
  each(
      s, walk.count(), DT_BODY(int64_t i) {
        int64_t at[2];
        walk.at(i, at);
        C x = widened(c[at[0]]);
        if (bias) x += widened(bias[at[1]]);
        const S y = rounded<S>(x);
        if (gelu) {
          aux[at[0]] = y;
          c[at[0]] = rounded<S>(fn::GeluTanh::value<C>(widened(y), nullptr));
        } else {
          c[at[0]] = y;
        }
      });
}

// For a c that is not contiguous, without its sum.
template <class S>
void finish_back(Stream s, const Reduce& c, const Gemm& g) {
  const Walk<1> walk(c.shape, {c.strides});
  const auto* aux = static_cast<const S*>(g.epilogue.aux);
  auto* to = static_cast<S*>(g.c);
  each(
      s, walk.count(), DT_BODY(int64_t i) {
        int64_t at[1];
        walk.at(i, at);
        to[at[0]] = rounded<S>(
            fn::derivative<fn::GeluTanh, 1>(widened(aux[at[0]]), nullptr) *
            widened(to[at[0]]));
      });
}

// Each thread takes `height` rows of a column. sums [parts, n] may be null.
template <class S, class C = compute_t<S>>
void back(Stream s, const GeluTanhBackward& a, const ColumnParts& columns,
          C* sums) {
  const int64_t rows = a.x.rows, n = a.x.n, height = columns.height;
  auto* dx = static_cast<S*>(a.dx);
  each(
      s, columns.parts * n, DT_BODY(int64_t i) {
        const int64_t j = i % n, begin = i / n * height,
                      end = begin + height < rows ? begin + height : rows;
        C sum = 0;
        // Loads a few rows before the first of them is stored: the compiler
        // cannot move a load past a store that may be to the same address.
        constexpr int kRows = 4;
        for (int64_t first = begin; first < end; first += kRows) {
          S v[kRows], d[kRows];
          DT_UNROLL(kRows)
          for (int k = 0; k < kRows; ++k) {
            const int64_t r = first + k < end ? first + k : first;
            v[k] = row_at<S>(a.x, r)[j];
            d[k] = row_at<S>(a.dy, r)[j];
          }
          DT_UNROLL(kRows)
          for (int k = 0; k < kRows; ++k) {
            if (first + k >= end) break;
            const S to = rounded<S>(
                fn::derivative<fn::GeluTanh, 1>(widened(v[k]), nullptr) *
                widened(d[k]));
            dx[(first + k) * n + j] = to;
            sum += widened(to);
          }
        }
        if (sums) sums[i] = sum;
      });
}

}  // namespace

void PortableKernels::run(Stream s, const FinishGemm& a) const {
  const Gemm& g = a.of;
  if (g.epilogue.kind == Epilogue::kSumB) return run(s, sum_of_b(g));
  if (g.epilogue.kind != Epilogue::kGeluTanhBackward)
    return visit_float(g.type, "gemm", [&]<class S>() { finish<S>(s, g); });
  if (is_contiguous(g)) return run(s, gelu_tanh_backward_of(g));
  const Reduce c = sum_of_c(g);
  visit_float(g.type, "gemm", [&]<class S>() { finish_back<S>(s, c, g); });
  if (c.out) run(s, c);
}

void PortableKernels::run(Stream s, const GeluTanhBackward& a) const {
  const int64_t n = a.x.n;
  if (n == 0) return;
  visit_float(a.x.type, "gelu_tanh backward", [&]<class S>() {
    using C = compute_t<S>;
    const ColumnParts columns(a.x.rows, n);
    if (!a.sum) return back<S, C>(s, a, columns, nullptr);
    Scratch scratch(s, columns.parts * n * static_cast<int64_t>(sizeof(C)));
    C* const sums = scratch.template as<C>();
    back<S>(s, a, columns, sums);
    add_parts(s, columns.parts, n, sums, static_cast<S*>(a.sum));
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
