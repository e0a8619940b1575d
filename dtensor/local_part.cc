// SPDX-License-Identifier: Apache-2.0
#include "dtensor/local_part.h"

#include "dtensor/comm/pieces.h"
#include "dtensor/placement/region.h"

namespace dtensor {
namespace {

bool one_box(const Region& r) {
  for (const IntervalList& l : r)
    if (l.size() > 1) return false;
  return true;
}

}  // namespace

void copy_indices(const Region& which, const Tensor& dst,
                  const Region& dst_region, const Tensor& src,
                  const Region& src_region) {
  if (dst.numel() == 0 || src.numel() == 0) return;
  const HeldRegion wanted(which), to(dst_region), from(src_region);
  if (volume(wanted.ascending()) == 0) return;
  const HeldArray arrays[] = {{dst.mutable_data(), &to, dst.strides()},
                              {src.data(), &from, src.strides()}};
  const int64_t item = size_of(dst.dtype());
  Boxes boxes(wanted.ascending(), arrays);
  boxes.each([&](Sizes shape) {
    dst.device().copy(dst.stream(), item, shape, boxes.address(0, item),
                      boxes.strides(0), boxes.address(1, item),
                      boxes.strides(1));
  });
}

void fill_indices(const Region& which, const Tensor& dst, const Region& region,
                  double value) {
  const HeldRegion wanted(which), held(region);
  if (volume(wanted.ascending()) == 0) return;
  const HeldArray array{dst.mutable_data(), &held, dst.strides()};
  Boxes boxes(wanted.ascending(), {&array, 1});
  boxes.each([&](Sizes shape) {
    dst.device().fill(dst.stream(), dst.dtype(), shape,
                      boxes.address(0, size_of(dst.dtype())), boxes.strides(0),
                      value);
  });
}

Tensor window(const Tensor& local, const Region& has, const Region& wants) {
  // An empty region has no box to take a view of.
  const bool some = volume(wants) > 0;
  if (some && one_box(has) && one_box(wants)) {
    Tensor view = local;
    for (size_t d = 0; d < has.size(); ++d) {
      const int64_t base = has[d][0].lo;
      const Interval w = wants[d][0];
      if (w.size() != local.shape()[static_cast<int>(d)])
        view = view.slice(static_cast<int>(d), w.lo - base, w.hi - base);
    }
    return view;
  }
  Tensor out = Tensor::empty(local_shape(wants), local.dtype());
  copy_indices(wants, out, wants, local, has);
  return out;
}

}  // namespace dtensor
