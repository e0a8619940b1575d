#include <algorithm>
#include <limits>
#include <type_traits>

#include "dtensor/ops/kernels/cpu/cpu_kernels.h"
#include "dtensor/ops/kernels/cpu/loops.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

// --- where ------------------------------------------------------------------
template <class T>
void where_items(const Pointwise& p) {
  const Walk<3> w(p.shape, {&p.strides[0], &p.strides[1], &p.strides[2]});
  if (w.empty) return;
  const auto* c = static_cast<const uint8_t*>(p.in[0]);
  const auto* a = static_cast<const T*>(p.in[1]);
  const auto* b = static_cast<const T*>(p.in[2]);
  auto* out = static_cast<T*>(p.out);
  const int64_t n = w.inner();
  const int64_t sc = w.inner_stride(0), sa = w.inner_stride(1),
                sb = w.inner_stride(2);
  uint8_t bc[kChunk];
  T ba[kChunk], bb[kChunk];
  w.rows([&](const int64_t(&o)[3]) {
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t m = std::min(kChunk, n - i);
      const uint8_t* pc = fetch(c + o[0] + i * sc, sc, m, bc);
      const T* pa = fetch(a + o[1] + i * sa, sa, m, ba);
      const T* pb = fetch(b + o[2] + i * sb, sb, m, bb);
#pragma GCC ivdep
      for (int64_t j = 0; j < m; ++j) out[j] = pc[j] ? pa[j] : pb[j];
      out += m;
    }
  });
}

// --- cast -------------------------------------------------------------------
template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, uint8_t>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<From> &&
                       std::is_integral_v<To>) {
    // The first value too large: a power of two, exact in every float.
    constexpr From end =
        sizeof(To) == 4 ? From(2147483648.0) : From(9223372036854775808.0);
    if (x >= end) return std::numeric_limits<To>::max();
    if (x < -end) return std::numeric_limits<To>::min();
    return x != x ? To(0) : static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <class From, class To>
void cast_items(const Pointwise& p) {
  using C = compute_t<From>;
  const Walk<1> w(p.shape, {&p.strides[0]});
  if (w.empty) return;
  const auto* x = static_cast<const From*>(p.in[0]);
  auto* out = static_cast<To*>(p.out);
  const int64_t n = w.inner(), s = w.inner_stride(0);
  C buf[kChunk];
  w.rows([&](const int64_t(&o)[1]) {
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t m = std::min(kChunk, n - i);
      const C* px = fetch(x + o[0] + i * s, s, m, buf);
      if constexpr (std::is_same_v<To, bf16>) {
        if constexpr (std::is_same_v<C, float>) {
          narrow(px, m, out);
        } else {
          for (int64_t j = 0; j < m; ++j)
            out[j] = bf16(static_cast<float>(px[j]));
        }
      } else {
#pragma GCC ivdep
        for (int64_t j = 0; j < m; ++j) out[j] = convert<To>(px[j]);
      }
      out += m;
    }
  });
}

// f.template operator()<T>() with bool as uint8_t.
template <class F>
void visit_stored(DType t, F&& f) {
  visit(t, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>)
      f.template operator()<uint8_t>();
    else
      f.template operator()<T>();
  });
}

}  // namespace

void CpuKernels::where(Stream, DType t, const Pointwise& p) const {
  switch (size_of(t)) {
    case 1:
      return where_items<uint8_t>(p);
    case 2:
      return where_items<uint16_t>(p);
    case 4:
      return where_items<uint32_t>(p);
    default:
      return where_items<uint64_t>(p);
  }
}

void CpuKernels::cast(Stream, DType from, DType to, const Pointwise& p) const {
  visit_stored(from, [&]<class From>() {
    visit_stored(to, [&]<class To>() { cast_items<From, To>(p); });
  });
}

}  // namespace dtensor::kernels
