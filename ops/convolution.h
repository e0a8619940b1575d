// SPDX-License-Identifier: Apache-2.0
// Convolutions, as torch.nn.functional has them. Every rank of the mesh calls
// these functions.
//
// The batch, the channels of x and of the result, the groups, and the positions
// of space may be split. If positions are split, ranks exchange only the
// elements of x that a neighbour's windows reach, and the gradients exchange
// those of the cotangent.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/per_dimension.h"

namespace dtensor {

// The zeros on each side of x: a number, a list with one number for each
// dimension of space, "valid" (none), or "same". "same" pads so that the result
// has the size of x, with one more at the end if their number is odd; the
// stride has to be 1.
class Padding {
 public:
  Padding(int64_t n) : sizes_{n} {}
  Padding(std::initializer_list<int64_t> n) : sizes_(n) {}
  Padding(std::vector<int64_t> n) : sizes_(std::move(n)) {}
  template <size_t N>
  Padding(const char (&text)[N]) : Padding(Text(), text) {}
  const std::vector<int64_t>& sizes() const { return sizes_; }
  bool same() const { return same_; }

 private:
  struct Text {};
  Padding(Text, std::string_view);  // throws Error for any other text
  std::vector<int64_t> sizes_;
  bool same_ = false;
};

struct ConvOptions {
  // For each dimension of space, or one number for all of them.
  PerDimension stride = 1;
  Padding padding = 0;
  PerDimension dilation = 1;
  int64_t groups = 1;
  // For transposed convolutions: how many elements the result is longer at the
  // end of each dimension. Must be less than the stride or the dilation.
  PerDimension output_padding = 0;
};

// x [b, c, space...] or [c, space...], weight [o, c / groups, kernel...], bias
// [o] -> [b, o, out...], where out = floor((space + 2 * padding - dilation *
// (kernel - 1) - 1) / stride) + 1 in each dimension. The number in the name is
// that of the dimensions of space. All are floats of one type, i32 or i64.
// Throws Error if shapes or types do not fit.
DistTensor conv1d(const DistTensor& x, const DistTensor& weight,
                  const DistTensor& bias = {}, const ConvOptions& = {});
DistTensor conv2d(const DistTensor& x, const DistTensor& weight,
                  const DistTensor& bias = {}, const ConvOptions& = {});
DistTensor conv3d(const DistTensor& x, const DistTensor& weight,
                  const DistTensor& bias = {}, const ConvOptions& = {});

// The gradient of a convolution with respect to its input, as an operator: x
// [b, c, space...], weight [c, o / groups, kernel...], bias [o] -> [b, o,
// out...], where out = (space - 1) * stride - 2 * padding + dilation * (kernel
// - 1) + output_padding + 1. `padding` must not be "same".
DistTensor conv_transpose1d(const DistTensor& x, const DistTensor& weight,
                            const DistTensor& bias = {},
                            const ConvOptions& = {});
DistTensor conv_transpose2d(const DistTensor& x, const DistTensor& weight,
                            const DistTensor& bias = {},
                            const ConvOptions& = {});
DistTensor conv_transpose3d(const DistTensor& x, const DistTensor& weight,
                            const DistTensor& bias = {},
                            const ConvOptions& = {});

}  // namespace dtensor
