// SPDX-License-Identifier: Apache-2.0

#include <fmt/ranges.h>

#include <cmath>
#include <utility>

#include "dtensor/nn/more_layers.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {

Conv2d::Conv2d(const Scope& at, int64_t in, int64_t out,
               const PerDimension& kernel, ConvOptions options, bool bias)
    : Module(at), options_(std::move(options)) {
  const int64_t groups = options_.groups;
  const bool known = kernel.size() == 1 || kernel.size() == 2;
  const int64_t rows = known ? kernel.front() : 0,
                columns = known ? kernel.back() : 0;
  DT_CHECK(in > 0 && out > 0 && groups > 0 && in % groups == 0 &&
               out % groups == 0 && rows > 0 && columns > 0,
           "conv2d",
           "{} has {} channels in, {} out, {} groups and a kernel of {}; write "
           "numbers above 0, groups that divide the channels, and one or two "
           "numbers for the kernel",
           path().empty() ? "the module" : path(), in, out, groups,
           fmt::format("[{}]", fmt::join(kernel, ", ")));
  const Init init = Init::uniform(
      1 / std::sqrt(static_cast<double>(in / groups * rows * columns)));
  weight_ = add_parameter("weight", {out, in / groups, rows, columns}, init);
  if (bias) bias_ = add_parameter("bias", {out}, init);
}

}  // namespace dtensor::nn
