// SPDX-License-Identifier: Apache-2.0
// Windows that slide over dimensions of space, for convolutions and pools.
// Private to ops.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

// The windows of a call. In each dimension of space, position i of x meets
// position m of y through tap k if i = m * stride + k * dilation - pad.
struct WindowSizes {
  Triple stride = {}, pad = {}, dilation = {}, taps = {};
};

// Adds the windows of a call to its rule, so that halos have a price. `near`
// and `far` as in Windows.
void add_windows(BoundRule&, const WindowSizes&, bool x_is_near,
                 std::string_view near, std::string_view far);

// One call on this rank. Its rule has the windows. `near` are the positions of
// the tensor that is made; the rank has one range of them. `far` are the
// positions of the tensor that is read; the rank meets one range of them. Both
// are strings with a factor for each dimension of space, which are the last
// dimensions of the tensors.
class Windows {
 public:
  Windows(Compute& c, const WindowSizes& sizes, bool x_is_near,
          std::string_view near, std::string_view far)
      : c_(c), sizes_(sizes), x_is_near_(x_is_near), near_(near), far_(far) {}

  // The part of an input with the positions of `far` that this rank meets,
  // contiguous. If `far` is split, the rank fetches those that it lacks (the
  // halo). Collective over the ranks that split `far`.
  Tensor with_halo(size_t input) const;
  // Sets the sizes of space of a kernel's arguments.
  template <class Kernel>
  void describe(Kernel& k) const {
    const int space = sizes_.taps.size();
    for (int d = 0; d < space; ++d) {
      // The kernel takes the last dimensions.
      const auto at = static_cast<size_t>(d + 3 - space);
      const Interval near = near_at(d, c_.coord());
      const Interval far = met_at(d, c_.coord());
      k.in[at] = (x_is_near_ ? near : far).size();
      k.out[at] = (x_is_near_ ? far : near).size();
      k.kernel[at] = sizes_.taps[d];
      k.stride[at] = sizes_.stride[d];
      k.dilation[at] = sizes_.dilation[d];
      const int64_t i = (x_is_near_ ? near : far).lo;
      const int64_t m = (x_is_near_ ? far : near).lo;
      k.pad[at] = sizes_.pad[d] + i - m * sizes_.stride[d];
    }
  }

 private:
  // The range of `near` of the rank at a coordinate, and that of `far` which it
  // meets. Either may be empty.
  Interval near_at(int d, const Coord&) const;
  Interval met_at(int d, const Coord&) const;

  Compute& c_;
  const WindowSizes sizes_;
  const bool x_is_near_;
  const std::string_view near_, far_;
};

// The options of a call, as a number for each of the `space` dimensions of
// space. `list` has one for each, or one for all. Throws Error otherwise, or if
// a number is below `least` or has over 32 bits.
Triple per_dimension(const std::vector<int64_t>& list, int space,
                     std::string_view name, int64_t least, std::string_view op);

// Throws Error unless a list of `n` options has one for each dimension of
// space, or one for all.
void check_per_dimension(size_t n, int space, std::string_view name,
                         std::string_view op);

// The number of windows along dimension d of space, in which `what` (a name,
// such as "x") has `size` elements; rounded up with `ceil_mode`, if the last
// window begins in x or in the padding before it. Throws Error if none fits.
int64_t windows_along(const WindowSizes&, int d, int64_t size,
                      std::string_view what, std::string_view op,
                      bool ceil_mode = false);

// Calls fn(x) with x [b, channels, space...]. If x has no b, gives it one of 1,
// and removes that from the result. Throws Error for other numbers of
// dimensions.
DistTensor with_batch(const DistTensor& x, int space, std::string_view op,
                      const std::function<DistTensor(const DistTensor&)>& fn);

// The sum of each window of x [b, c, space...], and of the padding, which is 0,
// in a tensor [b, c, size...]. Dilations are 1. In convolution.cc.
DistTensor sums_of_windows(const DistTensor& x, const WindowSizes&,
                           const Triple& size);

}  // namespace dtensor
