// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cuda/gemm_calls.h"

#include <algorithm>
#include <limits>

namespace dtensor::kernels::cuda {
namespace {

// A [rows, cols] matrix with the strides `row` and `col` in column-major form,
// or its transpose; nullopt if neither has that form.
std::optional<ColumnMajor> column_major(int64_t rows, int64_t cols, int64_t row,
                                        int64_t col) {
  const auto as_it_lies = [](int64_t rows, int64_t cols, int64_t row,
                             int64_t col) -> std::optional<ColumnMajor> {
    // A stride along a single element has no meaning.
    const int64_t ld = cols == 1 ? rows : col;
    if ((row != 1 && rows != 1) || ld < rows) return {};
    return ColumnMajor{rows, cols, ld};
  };
  std::optional<ColumnMajor> plain = as_it_lies(rows, cols, row, col),
                             turned = as_it_lies(cols, rows, col, row);
  if (turned) turned->transposed = true;
  // If both are possible, the longer dimension becomes contiguous.
  if (plain && turned) return rows >= cols ? plain : turned;
  return plain ? plain : turned;
}

// Whether the products of this batch dimension can be in a single call.
bool strided(const GemmBatch& d) {
  return d.a >= 0 && d.b >= 0 && d.c > 0 &&
         d.n <= std::numeric_limits<int32_t>::max();
}

}  // namespace

std::optional<GemmCalls> gemm_calls(const FoldedGemm& f) {
  const Gemm& g = f.g;
  if (f.empty || g.k == 0) return {};
  std::optional<ColumnMajor> a = column_major(g.m, g.k, g.a_m, g.a_k),
                             b = column_major(g.k, g.n, g.b_k, g.b_n),
                             c = column_major(g.m, g.n, g.c_m, g.c_n);
  if (!a || !b || !c) return {};
  GemmCalls calls;
  // The largest strided() dimension is part of the call; the others repeat it.
  const GemmBatch* at_once = nullptr;
  for (const GemmBatch& d : std::span(f.batch, static_cast<size_t>(f.nb)))
    if (strided(d) && (!at_once || d.n > at_once->n)) at_once = &d;
  for (const GemmBatch& d : std::span(f.batch, static_cast<size_t>(f.nb))) {
    if (&d == at_once) continue;
    calls.repeated[calls.num_repeated++] = d;
    calls.sums |= d.c == 0;
  }
  if (at_once) {
    calls.call.count = at_once->n;
    a->next = at_once->a;
    b->next = at_once->b;
    c->next = at_once->c;
  }
  calls.swapped = c->transposed;
  if (calls.swapped) {
    // The transpose of c is the transpose of b times that of a.
    std::swap(a, b);
    for (ColumnMajor* x : {&*a, &*b, &*c}) x->transposed = !x->transposed;
  }
  calls.call.left = *a;
  calls.call.right = *b;
  calls.call.c = *c;
  return calls;
}

bool takes_epilogue(const GemmCalls& calls, const FoldedGemm& f,
                    const Gemm& g) {
  constexpr uintptr_t kAlign = 16;
  const auto aligned = [](uintptr_t bytes) { return bytes % kAlign == 0; };
  const auto at = [&](const void* p) {
    return aligned(reinterpret_cast<uintptr_t>(p));
  };
  const Epilogue& e = g.epilogue;
  // n must be unchanged by folding, and nothing may be accumulated.
  if (f.g.n != g.n || f.g.b_n != g.b_n || g.accumulate || calls.sums)
    return false;
  switch (e.kind) {
    case Epilogue::kNone:
      return true;
    case Epilogue::kSumB:
      return f.nb == 0 && at(e.b_sum);
    case Epilogue::kBias:
      return calls.swapped && at(e.bias);
    case Epilogue::kGeluTanh:
      break;
  }
  const GemmCall& call = calls.call;
  const int64_t item = size_of(g.c_type);
  bool lies = at(e.aux) && aligned(static_cast<uintptr_t>(call.c.ld * item)) &&
              aligned(static_cast<uintptr_t>(call.c.next * item));
  for (const GemmBatch& d : calls.repeats())
    lies = lies && aligned(static_cast<uintptr_t>(d.c * item));
  return calls.swapped && lies && at(e.bias);
}

}  // namespace dtensor::kernels::cuda
