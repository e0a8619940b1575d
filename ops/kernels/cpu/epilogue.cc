// The epilogues of matrix products, each in one pass over the product.
#include <algorithm>

#include "dtensor/device/portable/rows.h"
#include "dtensor/ops/functions/activation.h"
#include "dtensor/ops/kernels/cpu/cpu_kernels.h"
#include "dtensor/ops/kernels/cpu/loops.h"
#include "dtensor/ops/kernels/folded_gemm.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

// This many rows are summed in one buffer before it is added to the total,
// because two short sums round less than one long one.
constexpr int64_t kRowBlock = 64;

// Finishes a contiguous row of n elements.
template <class S>
void finish_row(Epilogue::Kind kind, int64_t n, const S* bias, S* aux, S* c) {
  using V = Vec<compute_t<S>>;
  if (kind == Epilogue::kBias)
    return each(n, c, [&](auto at) { return at(c) + at(bias); });
  if (kind == Epilogue::kGeluTanhBackward)
    return each(n, c, [&](auto at) {
      return fn::derivative<fn::GeluTanh, 1>(V(at(aux)), nullptr) * at(c);
    });
  if (bias)
    each(n, aux, [&](auto at) { return at(c) + at(bias); });
  else
    std::copy_n(c, n, aux);
  each(n, c, [&](auto at) { return fn::GeluTanh::value<V>(at(aux), nullptr); });
}

// Finishes a row of n elements with a stride.
template <class S>
void finish_strided(Epilogue::Kind kind, int64_t n, const S* bias, S* aux, S* c,
                    int64_t stride) {
  S c_row[kChunk], aux_row[kChunk];
  for (int64_t j = 0; j < n; j += kChunk) {
    const int64_t m = std::min(kChunk, n - j);
    S* const at = c + j * stride;
    for (int64_t i = 0; i < m; ++i) c_row[i] = at[i * stride];
    if (kind == Epilogue::kGeluTanhBackward)
      for (int64_t i = 0; i < m; ++i) aux_row[i] = aux[(j + i) * stride];
    finish_row(kind, m, bias ? bias + j : nullptr, aux_row, c_row);
    for (int64_t i = 0; i < m; ++i) at[i * stride] = c_row[i];
    if (kind != Epilogue::kGeluTanh) continue;
    for (int64_t i = 0; i < m; ++i) aux[(j + i) * stride] = aux_row[i];
  }
}

template <class S>
void finish(const Gemm& g) {
  const Epilogue& e = g.epilogue;
  const auto* bias = static_cast<const S*>(e.bias);
  auto *c = static_cast<S*>(g.c), *aux = static_cast<S*>(e.aux);
  Shape rows = g.batch, strides = g.c_batch_strides;
  rows.push_back(g.m);
  strides.push_back(g.c_m);
  if (g.n == 0) return;
  Walk<1>(rows, {&strides})
      .rows(
          [&](const int64_t(&at)[1]) {
            S* const to = c + at[0];
            S* const to_aux = aux ? aux + at[0] : nullptr;
            if (g.c_n == 1 || g.n == 1)
              finish_row(e.kind, g.n, bias, to_aux, to);
            else
              finish_strided(e.kind, g.n, bias, to_aux, to, g.c_n);
          },
          0);
}

template <class S>
void back(const GeluTanhBackward& a) {
  using T = compute_t<S>;
  using V = Vec<T>;
  auto *dx = static_cast<S*>(a.dx), *sum = static_cast<S*>(a.sum);
  const int64_t rows = a.x.rows, n = a.x.n;
  T* const block = sum ? scratch<T>(kScratchRows, n) : nullptr;
  double* const total = sum ? scratch<double>(kScratchTable, n) : nullptr;
  if (sum) std::fill_n(total, n, 0.0);
  for (int64_t b = 0; b < rows; b += kRowBlock) {
    if (sum) std::fill_n(block, n, T(0));
    for (int64_t r = b; r < std::min(rows, b + kRowBlock); ++r) {
      const S *x = row_at<S>(a.x, r), *dy = row_at<S>(a.dy, r);
      S* const to = dx + r * n;
      each(n, to, [&](auto at) {
        return fn::derivative<fn::GeluTanh, 1>(V(at(x)), nullptr) * at(dy);
      });
      if (sum) each(n, block, [&](auto at) { return at(block) + at(to); });
    }
    if (sum)
      for (int64_t j = 0; j < n; ++j) total[j] += static_cast<double>(block[j]);
  }
  for (int64_t j = 0; sum && j < n; ++j) sum[j] = S(static_cast<T>(total[j]));
}

}  // namespace

void CpuKernels::run(Stream s, const FinishGemm& a) const {
  const Gemm& g = a.of;
  if (g.epilogue.kind == Epilogue::kSumB) return run(s, sum_of_b(g));
  const bool back = g.epilogue.kind == Epilogue::kGeluTanhBackward;
  if (back && is_contiguous(g)) return run(s, gelu_tanh_backward_of(g));
  visit_float(g.type, "gemm", [&]<class S>() { finish<S>(g); });
  if (back && g.epilogue.c_sum) run(s, sum_of_c(g));
}

void CpuKernels::run(Stream, const GeluTanhBackward& a) const {
  visit_float(a.x.type, "gelu_tanh backward", [&]<class S>() { back<S>(a); });
}

}  // namespace dtensor::kernels
