// SPDX-License-Identifier: Apache-2.0
// Layer norm (Ba et al., arXiv 1607.06450) and RMS norm (Zhang and Sennrich,
// arXiv 1910.07467) over the last dimension, and the norms of channels. If a
// dimension over which a norm is taken is split, ranks exchange one or two sums
// per row, never the rows. Every rank of the mesh calls these functions. They
// throw Error if shapes or types do not fit.
#pragma once

#include "dtensor/dist_tensor.h"

namespace dtensor {

// (x - mean) / sqrt(variance + eps) * gamma + beta, with gamma and beta [n]. If
// undefined, gamma is 1 and beta is 0.
DistTensor layer_norm(const DistTensor& x, const DistTensor& gamma = {},
                      const DistTensor& beta = {}, double eps = 1e-5);
// torch's form, over the last dimensions, which have these sizes; so have gamma
// and beta. Moves x if several dimensions are merged and any of them is split.
DistTensor layer_norm(const DistTensor& x, const Shape& normalized,
                      const DistTensor& gamma = {}, const DistTensor& beta = {},
                      double eps = 1e-5);
// x / sqrt(mean of squares + eps) * gamma.
DistTensor rms_norm(const DistTensor& x, const DistTensor& gamma = {},
                    double eps = 1e-6);

// y = norm(x), and the x that it was computed from.
struct Normed {
  DistTensor x, y;
};
// x = a + b, as in a residual stream, and y = norm(x). a and b have equal
// shapes. The forward pass computes x and y in one pass over the data, unless
// the last dimension is split, or a and b are both partial. The backward pass
// computes one cotangent for both a and b, and adds the cotangent of the
// returned x to it. If a and b are partial sums, they are added first and
// reduced once.
Normed add_layer_norm(const DistTensor& a, const DistTensor& b,
                      const DistTensor& gamma, const DistTensor& beta,
                      double eps = 1e-5);
Normed add_rms_norm(const DistTensor& a, const DistTensor& b,
                    const DistTensor& gamma, double eps = 1e-6);
// Return y = norm(x), and x in the layout that the norm used, with partial sums
// reduced, so that later operators need not reduce them again. The backward
// pass of the norm adds the cotangent of the returned x in the same pass over
// the data. The returned x may share memory with the given one.
Normed layer_norm_through(const DistTensor& x, const DistTensor& gamma,
                          const DistTensor& beta, double eps = 1e-5);
Normed rms_norm_through(const DistTensor& x, const DistTensor& gamma,
                        double eps = 1e-6);

// ---- Channels ----
//
// x is [b, channels, space...]. gamma and beta are [channels]; if undefined,
// they are 1 and 0. y has x's type; statistics of halves are f32.

// Normalizes x over the channels of each of `groups` groups, and over space.
DistTensor group_norm(const DistTensor& x, int64_t groups,
                      const DistTensor& gamma = {}, const DistTensor& beta = {},
                      double eps = 1e-5);

// y, and the running statistics after the call, without gradient. torch
// overwrites its arguments instead; here, keep the results for the next call.
// They are undefined if no running statistics were given.
struct RunningNorm {
  DistTensor y, running_mean, running_var;
};
// Normalizes each channel over b and space. The mean and the variance are those
// of x if `training`, else the running ones [channels], without which it throws
// Error. (torch's BatchNorm without track_running_stats has `training` set.)
// Since b is global, its split does not affect the result: this is a
// synchronized batch norm. In training, a running value r becomes
// (1 - momentum) * r + momentum * (that of x), with the unbiased variance.
// Throws Error in training if a channel has only one element.
RunningNorm batch_norm(const DistTensor& x, const DistTensor& running_mean = {},
                       const DistTensor& running_var = {},
                       const DistTensor& gamma = {},
                       const DistTensor& beta = {}, bool training = false,
                       double momentum = 0.1, double eps = 1e-5);
// Normalizes each channel over space, or by the running statistics unless
// use_input_stats. The running values are updated by means over b.
RunningNorm instance_norm(const DistTensor& x,
                          const DistTensor& running_mean = {},
                          const DistTensor& running_var = {},
                          const DistTensor& gamma = {},
                          const DistTensor& beta = {},
                          bool use_input_stats = true, double momentum = 0.1,
                          double eps = 1e-5);

// x / (k + alpha * mean)^beta, where the mean is that of the squares in a
// window of `size` channels around x's, with zeros beyond the ends. Integers
// give f32, and their means are rounded towards 0, as in torch.
DistTensor local_response_norm(const DistTensor& x, int64_t size,
                               double alpha = 1e-4, double beta = 0.75,
                               double k = 1);

// y = (x - mean) * rstd, times gamma, plus beta, where rstd is
// 1 / sqrt(variance + eps). All three results have gradients.
struct NormWithStats {
  DistTensor y, mean, rstd;
};
// Normalizes over the last dimensions, whose sizes are `sizes`. gamma and beta
// have these sizes. mean and rstd keep the dimensions, with size 1.
NormWithStats native_layer_norm(const DistTensor& x, const Shape& sizes,
                                const DistTensor& gamma = {},
                                const DistTensor& beta = {}, double eps = 1e-5);
// group_norm(), with mean and rstd [b, groups].
NormWithStats native_group_norm(const DistTensor& x, int64_t groups,
                                const DistTensor& gamma = {},
                                const DistTensor& beta = {}, double eps = 1e-5);

}  // namespace dtensor
