#include <algorithm>
#include <cstring>

#include "ops/kernels/cpu/loops.h"
#include "ops/kernels/kernels.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

struct Item16 {
  uint64_t x[2];
};

// The transposition of an m x n tile at a time, so that both sides' cache
// lines are used whole.
template <class T>
void transpose(int64_t m, int64_t n, T* dst, int64_t dm, int64_t dn,
               const T* src, int64_t sm, int64_t sn) {
  constexpr int64_t kTile = 16;
  for (int64_t i0 = 0; i0 < m; i0 += kTile) {
    const int64_t i1 = std::min(m, i0 + kTile);
    for (int64_t j0 = 0; j0 < n; j0 += kTile) {
      const int64_t j1 = std::min(n, j0 + kTile);
      for (int64_t i = i0; i < i1; ++i)
        for (int64_t j = j0; j < j1; ++j)
          dst[i * dm + j * dn] = src[i * sm + j * sn];
    }
  }
}

template <class T>
void copy_items(const Walk<2>& w, T* dst, const T* src) {
  const int64_t n = w.inner(), d = w.inner_stride(0), s = w.inner_stride(1);
  if (w.nd >= 2 && s != 1 && n > 1) {
    const int64_t m = w.shape[w.nd - 2];
    const int64_t dm = w.strides[0][w.nd - 2], sm = w.strides[1][w.nd - 2];
    w.rows(
        [&](const int64_t(&o)[2]) {
          transpose(m, n, dst + o[0], dm, d, src + o[1], sm, s);
        },
        2);
    return;
  }
  w.rows([&](const int64_t(&o)[2]) {
    T* to = dst + o[0];
    const T* from = src + o[1];
    if (d == 1 && s == 1) {
      // The call costs more than a short run.
      if (n * static_cast<int64_t>(sizeof(T)) >= 64)
        std::memcpy(static_cast<void*>(to), from,
                    static_cast<size_t>(n) * sizeof(T));
      else
        for (int64_t i = 0; i < n; ++i) to[i] = from[i];
    } else if (s == 0) {
      const T x = *from;
      for (int64_t i = 0; i < n; ++i) to[i * d] = x;
    } else {
      for (int64_t i = 0; i < n; ++i) to[i * d] = from[i * s];
    }
  });
}

void copy_any(const Walk<2>& w, int64_t item, char* dst, const char* src) {
  const int64_t n = w.inner(), d = w.inner_stride(0), s = w.inner_stride(1);
  w.rows([&](const int64_t(&o)[2]) {
    char* to = dst + o[0] * item;
    const char* from = src + o[1] * item;
    if (d == 1 && s == 1) {
      std::memcpy(to, from, static_cast<size_t>(n * item));
    } else {
      for (int64_t i = 0; i < n; ++i)
        std::memcpy(to + i * d * item, from + i * s * item,
                    static_cast<size_t>(item));
    }
  });
}

int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

}  // namespace

void copy_strided(Stream, int64_t item_size, const Shape& shape, void* dst,
                  const Shape& dst_strides, const void* src,
                  const Shape& src_strides) {
  // In the order of the destination's memory, so that permuted shapes collapse
  // too; then, if the source's unit stride is elsewhere, that dimension next to
  // it, for the tiles.
  int order[kMaxDims];
  int nd = 0;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return;
    if (shape[i] == 1) continue;
    int at = nd++;
    while (at > 0 &&
           magnitude(dst_strides[order[at - 1]]) < magnitude(dst_strides[i])) {
      order[at] = order[at - 1];
      --at;
    }
    order[at] = i;
  }
  if (nd > 2 && src_strides[order[nd - 1]] != 1) {
    for (int i = 0; i < nd - 2; ++i)
      if (src_strides[order[i]] == 1) {
        std::rotate(order + i, order + i + 1, order + nd - 1);
        break;
      }
  }
  Shape sizes, ds, ss;
  for (int i = 0; i < nd; ++i) {
    sizes.push_back(shape[order[i]]);
    ds.push_back(dst_strides[order[i]]);
    ss.push_back(src_strides[order[i]]);
  }
  const Walk<2> w(sizes, {&ds, &ss});
  switch (item_size) {
    case 1:
      return copy_items(w, static_cast<uint8_t*>(dst),
                        static_cast<const uint8_t*>(src));
    case 2:
      return copy_items(w, static_cast<uint16_t*>(dst),
                        static_cast<const uint16_t*>(src));
    case 4:
      return copy_items(w, static_cast<uint32_t*>(dst),
                        static_cast<const uint32_t*>(src));
    case 8:
      return copy_items(w, static_cast<uint64_t*>(dst),
                        static_cast<const uint64_t*>(src));
    case 16:
      return copy_items(w, static_cast<Item16*>(dst),
                        static_cast<const Item16*>(src));
    default:
      return copy_any(w, item_size, static_cast<char*>(dst),
                      static_cast<const char*>(src));
  }
}

}  // namespace dtensor::kernels
