// SPDX-License-Identifier: Apache-2.0
// The epilogues of matrix products, as kernels that run after the product.
#include "dtensor/ops/functions/activation.h"
#include "dtensor/ops/kernels/folded_gemm.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/walk.h"
#include "dtensor/ops/kernels/reduce.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::rounded;
using portable::Row;
using portable::rows;
using portable::Walk;
using portable::widened;

struct GeluTanh {
  template <class V>
  DT_HD V operator()(V v) const {
    return fn::GeluTanh::value<V>(v, nullptr);
  }
};

// Finishes a row of c, [n]; the bias may be null. With an aux, aux = c + bias
// and c = gelu_tanh(aux).
template <class S>
DT_HD void finish_row(Row& row, int64_t n, const S* bias, S* aux, S* c) {
  S* const sum = aux ? aux : c;
  if (bias)
    row.map(
        n, sum, [](auto v, auto b) { return v + b; }, c, bias);
  else if (aux)
    row.copy(n, aux, c);
  if (aux) row.map(n, c, GeluTanh(), aux);
}

// As finish_row(), for a row whose elements are `stride` apart.
template <class S>
DT_HD void finish_strided(Row& row, int64_t n, const S* bias, S* aux, S* c,
                          int64_t stride) {
  row.each(n, [&](int64_t j) {
    S& to = c[j * stride];
    if (bias) to = rounded<S>(widened(to) + widened(bias[j]));
    if (!aux) return;
    aux[j * stride] = to;
    to = rounded<S>(GeluTanh()(widened(to)));
  });
}

template <class S>
void finish(Stream s, const Gemm& g) {
  Shape shape = g.batch, strides = g.c_batch_strides;
  shape.push_back(g.m);
  strides.push_back(g.c_m);
  const Walk<1> walk(shape, {strides});
  const auto* bias = static_cast<const S*>(g.epilogue.bias);
  auto* c = static_cast<S*>(g.c);
  auto* aux = g.epilogue.kind == Epilogue::kGeluTanh
                  ? static_cast<S*>(g.epilogue.aux)
                  : nullptr;
  const int64_t n = g.n, stride = g.c_n;
  rows(
      s, walk.count(), n, DT_BODY(Row & row, int64_t r) {
        int64_t at[1];
        walk.at(r, at);
        S* const to_aux = aux ? aux + at[0] : nullptr;
        if (stride == 1 || n == 1)
          finish_row(row, n, bias, to_aux, c + at[0]);
        else
          finish_strided(row, n, bias, to_aux, c + at[0], stride);
      });
}

}  // namespace

DT_KERNEL(FinishGemm)
void run(Stream s, const FinishGemm& a) {
  const Gemm& g = a.of;
  if (g.epilogue.kind == Epilogue::kSumB)
    return defined_kernels().run(s, sum_of_b(g));
  visit_float(g.type, "gemm", [&]<class S>() { finish<S>(s, g); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
