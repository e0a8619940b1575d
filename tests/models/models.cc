// SPDX-License-Identifier: Apache-2.0
#include "tests/models/models.h"

#include <cmath>

#include "dtensor/dtensor.h"

namespace dtensor::testing {
namespace {

using P = Parameters&;

DistTensor conv(P p, const std::string& name, const DistTensor& x, int64_t out,
                int64_t size = 3, bool bias = true,
                const ConvOptions& options = {}) {
  const DistTensor w = p(name + ".weight", {out, x.size(1), size, size});
  const DistTensor b = bias ? p(name + ".bias", {out}, 0.1) : DistTensor();
  return conv2d(x, w, b, options);
}

DistTensor dense(P p, const std::string& name, const DistTensor& x,
                 int64_t out) {
  const DistTensor w = p(name + ".weight", {out, x.size(-1)});
  return linear(x, w, p(name + ".bias", {out}, 0.1));
}

struct Affine {
  DistTensor weight, bias;
};
Affine affine(P p, const std::string& name, int64_t n) {
  const DistTensor weight = p(name + ".weight", {n}, 0.2, 1);
  return {weight, p(name + ".bias", {n}, 0.1)};
}

DistTensor unet_block(P p, const std::string& name, const DistTensor& x,
                      int64_t out) {
  const DistTensor y = conv(p, name, x, out, 3, true, {.padding = 1});
  const Affine a = affine(p, name + ".norm", out);
  return silu(group_norm(y, 2, a.weight, a.bias));
}

DistTensor batch_normed(P p, const std::string& name, const DistTensor& x) {
  const Affine a = affine(p, name, x.size(1));
  return batch_norm(x, {}, {}, a.weight, a.bias, true).y;
}

DistTensor bottleneck(P p, const std::string& name, DistTensor x, int64_t width,
                      int64_t stride) {
  DistTensor y =
      batch_normed(p, name + ".n1", conv(p, name + ".c1", x, width, 1, false));
  y = conv(p, name + ".c2", relu(y), width, 3, false,
           {.stride = {stride}, .padding = 1});
  y = conv(p, name + ".c3", relu(batch_normed(p, name + ".n2", y)), 4 * width,
           1, false);
  if (x.size(1) != 4 * width || stride != 1)
    x = batch_normed(
        p, name + ".nx",
        conv(p, name + ".cx", x, 4 * width, 1, false, {.stride = {stride}}));
  return relu(x + batch_normed(p, name + ".n3", y));
}

DistTensor mlp(P p, const std::string& name, DistTensor x,
               const std::vector<int64_t>& sizes) {
  for (size_t i = 0; i < sizes.size(); ++i)
    x = relu(dense(p, name + "." + std::to_string(i), x, sizes[i]));
  return x;
}

}  // namespace

DistTensor unet(P p, const Shape& images, int64_t width) {
  const int64_t inner = 2 * width;
  const DistTensor x = p.input(numbers(images, 901), 2);
  const DistTensor a = unet_block(p, "a", x, width);
  const DistTensor b = unet_block(p, "b", max_pool2d(a, {2}), inner);
  const DistTensor c = unet_block(
      p, "c", conv(p, "down", b, inner, 3, true, {.stride = {2}, .padding = 1}),
      inner);
  DistTensor up = conv_transpose2d(c, p("up.weight", {inner, inner, 2, 2}, 0.3),
                                   {}, {.stride = {2}});
  up = narrow(narrow(up, 2, 0, b.size(2)), 3, 0, b.size(3));
  const DistTensor d = unet_block(p, "d", cat({b, up}, 1), inner);
  const DistTensor e =
      interpolate(d, {.scale_factor = {2}, .mode = Interpolation::kLinear});
  const DistTensor y = conv(p, "out", unet_block(p, "e", cat({a, e}, 1), width),
                            3, 3, true, {.padding = 1});
  return mse_loss(y, p.input(numbers(y.shape(), 902), 2));
}

DistTensor resnet(P p, const Shape& images, int64_t width) {
  DistTensor x = p.input(numbers(images, 903), 2);
  const DistTensor classes = p.input(integers({images[0]}, 904, 10));
  x = conv(p, "stem", x, width, 7, false, {.stride = {2}, .padding = 3});
  x = max_pool2d(relu(batch_normed(p, "stem.norm", x)), {3},
                 {.stride = {2}, .padding = {1}});
  constexpr int kBlocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage)
    for (int i = 0; i < kBlocks[stage]; ++i)
      x = bottleneck(p, "s" + std::to_string(stage) + "." + std::to_string(i),
                     x, width << stage, stage > 0 && i == 0 ? 2 : 1);
  x = flatten(adaptive_avg_pool2d(x, {1}), 1);
  return cross_entropy(dense(p, "head", x, 10), classes);
}

DistTensor dlrm(P p) {
  constexpr int64_t n = 12, dim = 8, rows[] = {50, 7, 120};
  const DistTensor x = p.input(numbers({n, 13}, 905));
  Array clicked = numbers({n}, 906);
  for (double& v : clicked.v) v = v > 0;
  std::vector<DistTensor> features{mlp(p, "bottom", x, {16, dim})};
  for (int64_t t = 0; t < 3; ++t) {
    const DistTensor ids =
        p.input(integers({n, 3}, 910 + static_cast<uint64_t>(t), rows[t]));
    const DistTensor table =
        p("table." + std::to_string(t), {rows[t], dim}, 0.5);
    features.push_back(embedding_bag(table, ids, {.mode = BagMode::kSum}));
  }
  const DistTensor f = stack(features, 1);
  std::vector<int64_t> pairs;
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < i; ++j) pairs.push_back(4 * i + j);
  const DistTensor at =
      DistTensor::from_global(Tensor::from({6}, pairs.data()), p.mesh(), {});
  const DistTensor products =
      index_select(flatten(bmm(f, transpose(f, 1, 2)), 1), 1, at);
  const DistTensor top = mlp(p, "top", cat({features[0], products}, 1), {16});
  return binary_cross_entropy_with_logits(squeeze(dense(p, "score", top, 1), 1),
                                          p.input(clicked));
}

DistTensor ctc(P p) {
  DistTensor x = p.input(numbers({4, 6, 30}, 920), 2);
  DistTensor w = p("c1.weight", {16, 6, 5});
  x = gelu(
      conv1d(x, w, p("c1.bias", {16}, 0.1), {.stride = {2}, .padding = 2}));
  w = p("c2.weight", {16, 1, 3});
  x = gelu(conv1d(x, w, p("c2.bias", {16}, 0.1), {.padding = 1, .groups = 16}));
  const Affine a = affine(p, "norm", 16);
  x = layer_norm(permute(x, {2, 0, 1}), a.weight, a.bias);
  const DistTensor scores = log_softmax(dense(p, "head", x, 11), 2);
  const auto ids = [&](const Shape& shape, std::vector<double> v) {
    return p.input({shape, std::move(v), DType::kI64});
  };
  Array targets = integers({4, 5}, 921, 10);
  for (double& v : targets.v) v += 1;
  return ctc_loss(scores, p.input(targets), ids({4}, {15, 12, 15, 9}),
                  ids({4}, {5, 3, 0, 4}));
}

DistTensor dit(P p) {
  constexpr int64_t dim = 16, heads = 2;
  const DistTensor x = p.input(numbers({2, 4, 8, 8}, 930), 2),
                   noise = p.input(numbers({2, 4, 8, 8}, 931), 2),
                   time = p.input({{2, 1}, {0.1, 0.7}});
  const DistTensor w = p("patch.weight", {dim, 4, 2, 2});
  DistTensor h = conv2d(x + noise * reshape(time, {2, 1, 1, 1}), w,
                        p("patch.bias", {dim}, 0.1), {.stride = {2}});
  h = transpose(flatten(h, 2), 1, 2) + p("position", {16, dim}, 0.1);
  const DistTensor frequency = exp(neg(arange(8, p.mesh(), {}, DType::kF64)));
  const DistTensor angle = time * 1000 * frequency;
  const DistTensor c =
      silu(dense(p, "time", cat({cos(angle), sin(angle)}, 1), dim));
  const auto norm = [&](const DistTensor& x) { return layer_norm(x); };
  for (int i = 0; i < 2; ++i) {
    const std::string at = std::to_string(i) + ".";
    const auto m =
        chunk(unsqueeze(dense(p, at + "modulation", c, 6 * dim), 1), 6, 2);
    DistTensor y = norm(h) * (1 + m[0]) + m[1];
    const auto qkv = chunk(dense(p, at + "qkv", y, 3 * dim), 3, 2);
    const auto split_heads = [&](const DistTensor& x) {
      return unflatten(x, 2, {heads, -1});
    };
    y = flatten(attention(split_heads(qkv[0]), split_heads(qkv[1]),
                          split_heads(qkv[2])),
                2);
    h = h + m[2] * dense(p, at + "proj", y, dim);
    y = norm(h) * (1 + m[3]) + m[4];
    y = gelu_tanh(dense(p, at + "up", y, 4 * dim));
    h = h + m[5] * dense(p, at + "down", y, dim);
  }
  const DistTensor y = dense(p, "out", norm(h), 16);
  return mse_loss(pixel_shuffle(unflatten(transpose(y, 1, 2), 2, {4, 4}), 2),
                  noise);
}

DistTensor gaussian_process(P p) {
  const DistTensor x = p.input(numbers({24, 3}, 940)),
                   y = p.input(numbers({24}, 941));
  const DistTensor length = p("length", {3}, 0.2, 1),
                   noise = p("noise", {}, 0.1, 0.5);
  const DistTensor z = x / length;
  const DistTensor distance =
      sum(square(unsqueeze(z, 1) - unsqueeze(z, 0)), {2});
  const DistTensor k = p("variance", {}, 0.1, 1) * exp(distance / -2.0);
  const DistTensor l =
      cholesky(k + square(noise) * eye(24, 24, p.mesh(), DType::kF64));
  const DistTensor a = solve_triangular(l, unsqueeze(y, 1), false);
  return sum(square(a)) / 2.0 + sum(log(diagonal(l)));
}

}  // namespace dtensor::testing
