// SPDX-License-Identifier: Apache-2.0
// Iteration over strided arrays: collapsing dimensions, and presenting elements
// in contiguous pieces to loops without strides. Private to ops/kernels.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "dtensor/ops/kernels/portable/vec_math.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/shape.h"

namespace dtensor::kernels::cpu {
using namespace simd;

// The number of elements in a chunk buffer on the stack.
inline constexpr int64_t kChunk = 512;

// K arrays of one shape, with as few dimensions as possible: those of size 1
// are dropped, and neighbours are merged if every array allows it.
template <int K>
struct Walk {
  int nd = 0;
  bool empty = false;
  int64_t shape[kMaxDims] = {};
  int64_t strides[K][kMaxDims];

  Walk(const Shape& s, const Shape* const (&in)[K]) {
    for (int i = 0; i < s.size(); ++i) {
      if (s[i] == 0) empty = true;
      if (s[i] == 1) continue;
      int64_t st[K];
      for (int a = 0; a < K; ++a) st[a] = (*in[a])[i];
      push(s[i], st);
    }
  }
  void push(int64_t n, const int64_t (&st)[K]) {
    bool merge = nd > 0;
    for (int a = 0; merge && a < K; ++a)
      merge = strides[a][nd - 1] == st[a] * n;
    if (merge) {
      shape[nd - 1] *= n;
    } else {
      shape[nd++] = n;
    }
    for (int a = 0; a < K; ++a) strides[a][nd - 1] = st[a];
  }
  int64_t inner() const { return nd ? shape[nd - 1] : 1; }
  int64_t inner_stride(int a) const { return nd ? strides[a][nd - 1] : 1; }

  // Calls f(offsets) for the start of each run along the innermost `skip`
  // dimensions, in row-major order.
  template <class F>
  void rows(F&& f, int skip = 1) const {
    if (empty) return;
    int64_t offset[K] = {};
    const int outer = nd - skip;
    if (outer <= 0) {
      f(offset);
      return;
    }
    int64_t index[kMaxDims] = {};
    for (;;) {
      f(offset);
      int d = outer - 1;
      for (; d >= 0; --d) {
        for (int a = 0; a < K; ++a) offset[a] += strides[a][d];
        if (++index[d] < shape[d]) break;
        for (int a = 0; a < K; ++a) offset[a] -= strides[a][d] * shape[d];
        index[d] = 0;
      }
      if (d < 0) return;
    }
  }
};

// Returns n <= kChunk elements that are `stride` apart from p on, as contiguous
// T, which is compute_t<S> or double: p itself, or a copy in buf.
template <class S, class T>
inline const T* fetch(const S* p, int64_t stride, int64_t n, T* buf) {
  constexpr bool kUsual = std::is_same_v<T, compute_t<S>>;
  const auto widen = [](S x) { return static_cast<T>(compute_t<S>(x)); };
  if constexpr (is_half<S> && kUsual) {
    if (stride == 1) {
      using V = Vec<float>;
      int64_t i = 0;
      for (; i + V::n <= n; i += V::n) store(buf + i, load(p + i));
      for (; i < n; ++i) buf[i] = widen(p[i]);
      return buf;
    }
  } else if constexpr (kUsual) {
    if (stride == 1) return p;
  }
  if (stride == 0) {
    const T x = widen(*p);
    for (int64_t i = 0; i < n; ++i) buf[i] = x;
  } else {
    for (int64_t i = 0; i < n; ++i) buf[i] = widen(p[i * stride]);
  }
  return buf;
}

template <class S>
inline void narrow(const float* from, int64_t n, S* to) {
  using V = Vec<float>;
  int64_t i = 0;
  for (; i + V::n <= n; i += V::n) store(to + i, load(from + i));
  for (; i < n; ++i) to[i] = S(from[i]);
}
template <class S>
inline void narrow(const double* from, int64_t n, S* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = S(static_cast<float>(from[i]));
}

// Calls f.template operator()<S>() for a float type; throws Error for others.
template <class F>
inline void visit_float(DType t, const char* where, F&& f) {
  switch (t) {
    case DType::kF32:
      return f.template operator()<float>();
    case DType::kF64:
      return f.template operator()<double>();
    case DType::kBF16:
      return f.template operator()<bf16>();
    case DType::kF16:
      return f.template operator()<f16>();
    default:
      fail(where, "does not take {}; cast to f32, f64, bf16 or f16", name(t));
  }
}

// Scratch memory of this thread, aligned to 64 bytes. A slot keeps its memory
// between calls. Its contents are lost when it grows.
enum ScratchSlot {
  kScratchPackA,
  kScratchPackB,
  kScratchPackC,
  kScratchProduct,
  kScratchRows,
  kScratchAttention,
  kScratchTable,
  kNumScratchSlots
};
void* scratch_bytes(ScratchSlot, int64_t bytes);
template <class T>
inline T* scratch(ScratchSlot slot, int64_t n) {
  return static_cast<T*>(
      scratch_bytes(slot, n * static_cast<int64_t>(sizeof(T))));
}

}  // namespace dtensor::kernels::cpu
