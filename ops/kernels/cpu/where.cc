#include <algorithm>

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

}  // namespace

void CpuKernels::run(Stream, const Where& a) const {
  switch (size_of(a.of.type)) {
    case 1:
      return where_items<uint8_t>(a.of);
    case 2:
      return where_items<uint16_t>(a.of);
    case 4:
      return where_items<uint32_t>(a.of);
    default:
      return where_items<uint64_t>(a.of);
  }
}

}  // namespace dtensor::kernels
