// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/pointwise.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/walk.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

template <class T>
void where(Stream s, const portable::Walk<4>& walk, const Pointwise& a) {
  portable::map(
      s, walk, static_cast<T*>(a.out),
      DT_BODY(uint8_t c, T x, T y) { return c ? x : y; },
      static_cast<const uint8_t*>(a.in[0]), static_cast<const T*>(a.in[1]),
      static_cast<const T*>(a.in[2]));
}

}  // namespace

DT_KERNEL(Where)
void run(Stream s, const Where& where_of) {
  const Pointwise& a = where_of.of;
  const portable::Walk<4> walk(
      a.shape,
      {contiguous_strides(a.shape), a.strides[0], a.strides[1], a.strides[2]});
  switch (size_of(a.type)) {
    case 1:
      return where<uint8_t>(s, walk, a);
    case 2:
      return where<uint16_t>(s, walk, a);
    case 4:
      return where<uint32_t>(s, walk, a);
    default:
      return where<uint64_t>(s, walk, a);
  }
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
