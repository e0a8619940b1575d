// SPDX-License-Identifier: Apache-2.0
// The calls of layers: normalizations, losses, attention.
#include "dtensor/ops/attention.h"
#include "dtensor/ops/convolution.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/losses.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/pool.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "tests/conformance/bind.h"
#include "tests/conformance/calls.h"

namespace dtensor::conformance {
namespace {

using A = const Arguments&;
using T = std::vector<DistTensor>;

template <DistTensor (*f)(const DistTensor&, int)>
T along(A a) {
  DistTensor x = a.tensor(0);
  // As in torch, the input is converted first.
  x = cast(x, a.dtype(kNamed, "dtype", x.dtype()));
  return {f(x, static_cast<int>(a.integer(1, "dim")))};
}

int dim(A a) { return static_cast<int>(a.integer(1, "dim")); }

Reduction reduction(A a) {
  return to_reduction(a.text(kNamed, "reduction", "mean"));
}

template <DistTensor (*f)(const DistTensor&, const DistTensor&, Reduction)>
T loss(A a) {
  return {f(a.tensor(0), a.tensor(1), reduction(a))};
}
template <DistTensor (*f)(const DistTensor&, const DistTensor&, Reduction,
                          double)>
T loss(A a, std::string_view parameter) {
  return {f(a.tensor(0), a.tensor(1), reduction(a),
            a.number(kNamed, parameter, 1))};
}
template <DistTensor (*f)(const DistTensor&, const DistTensor&, Reduction,
                          const DistTensor&)>
T loss(A a) {
  return {
      f(a.tensor(0), a.tensor(1), reduction(a),
        a.has(kNamed, "weight") ? a.tensor(kNamed, "weight") : DistTensor())};
}

// torch's inputs are [b, h, s, d] or [h, s, d], the library's are [b, s, h, d].
T attention_call(A a) {
  if (a.number(5, "dropout_p", 0) != 0)
    throw NotHere("dropout, whose draws are torch's own");
  a.flag(kNamed, "enable_gqa", false);  // the library always allows it
  DistTensor in[] = {a.tensor(0), a.tensor(1), a.tensor(2)};
  const bool single = in[1].ndim() == 3;
  for (DistTensor& x : in) {
    if (x.ndim() == 3) x = unsqueeze(x, 0);
    x = transpose(x, 1, 2);
  }
  // torch broadcasts the batch of q.
  const int64_t batch = in[1].size(0);
  if (in[0].size(0) != batch) in[0] = expand(in[0], {batch, -1, -1, -1});
  AttentionOptions options;
  options.causal = a.flag(5, "is_causal", false);
  const DistTensor y = transpose(attention(in[0], in[1], in[2], options), 1, 2);
  return {single ? squeeze(y, 0) : y};
}

using Convolve = DistTensor (*)(const DistTensor&, const DistTensor&,
                                const DistTensor&, const ConvOptions&);
template <Convolve f, bool transposed = false>
T convolution(A a) {
  ConvOptions o;
  o.stride = a.integers(3, "stride", o.stride);
  if (!a.has(4, "padding"))
    o.padding = 0;
  else if (!a.is_text(4, "padding"))
    o.padding = a.integers(4, "padding");
  else if (a.text(4, "padding", "") == "same")
    o.padding = "same";
  else
    o.padding = "valid";
  o.dilation = a.integers(transposed ? 7 : 5, "dilation", o.dilation);
  o.groups = a.integer(6, "groups", 1);
  if (transposed)
    o.output_padding = a.integers(5, "output_padding", o.output_padding);
  const DistTensor bias = a.has(2, "bias") ? a.tensor(2, "bias") : DistTensor();
  return {f(a.tensor(0), a.tensor(1), bias, o)};
}

using PoolFunction = DistTensor (*)(const DistTensor&, const PerDimension&,
                                    const PoolOptions&);
using PoolWithIndices = std::pair<DistTensor, DistTensor> (*)(
    const DistTensor&, const PerDimension&, const PoolOptions&);
template <PoolFunction f, PoolWithIndices with_indices = nullptr>
T pool(A a) {
  constexpr bool averages = with_indices == nullptr;
  PoolOptions o;
  o.stride = a.integers(2, "stride", o.stride);
  o.padding = a.integers(3, "padding", o.padding);
  if (!averages) o.dilation = a.integers(4, "dilation", o.dilation);
  o.ceil_mode = a.flag(averages ? 4 : 5, "ceil_mode", false);
  if constexpr (averages) {
    o.count_include_pad = a.flag(5, "count_include_pad", true);
    o.divisor_override = a.integer(6, "divisor_override", 0);
  } else if (a.flag(6, "return_indices", false)) {
    return as_list(with_indices(a.tensor(0), a.integers(1, "kernel_size"), o));
  }
  return {f(a.tensor(0), a.integers(1, "kernel_size"), o)};
}

// Normalizes over the trailing dimensions, flattened into one.
T norm_call(A a, bool centred) {
  const DistTensor x = a.tensor(0);
  const auto last = a.integers(1, "normalized_shape");
  const auto n = static_cast<int>(last.size());
  Shape trailing;
  for (int64_t size : last) trailing.push_back(size);
  auto weight = [&](size_t at, std::string_view name, double otherwise) {
    if (!a.has(at, name))
      return full({numel(trailing)}, otherwise, x.mesh(), {}, x.dtype());
    const DistTensor w = a.tensor(at, name);
    // If the sizes do not fit, the library has to refuse them.
    return w.shape() == trailing ? flatten(w) : w;
  };
  const bool fits = n <= x.ndim() && [&] {
    for (int d = 1; d <= n; ++d)
      if (x.size(-d) != trailing[n - d]) return false;
    return true;
  }();
  const DistTensor rows = fits && n > 1 ? flatten(x, -n, -1) : x;
  const DistTensor gamma = weight(2, "weight", 1);
  const DistTensor y =
      centred
          ? layer_norm(rows, gamma, weight(3, "bias", 0),
                       a.number(4, "eps", 1e-5))
          : rms_norm(rows, gamma, a.number(3, "eps", 2.220446049250313e-16));
  return {reshape(y, x.shape())};
}

}  // namespace

void add_layer_calls(CallTable& t) {
  t["nn.functional.max_pool1d"] = pool<max_pool1d, max_pool1d_with_indices>;
  t["nn.functional.max_pool2d"] = pool<max_pool2d, max_pool2d_with_indices>;
  t["nn.functional.max_pool3d"] = pool<max_pool3d, max_pool3d_with_indices>;
  t["nn.functional.avg_pool1d"] = pool<avg_pool1d>;
  t["nn.functional.avg_pool2d"] = pool<avg_pool2d>;
  t["nn.functional.avg_pool3d"] = pool<avg_pool3d>;
  t["nn.functional.conv1d"] = convolution<conv1d>;
  t["nn.functional.conv2d"] = convolution<conv2d>;
  t["nn.functional.conv3d"] = convolution<conv3d>;
  t["nn.functional.conv_transpose1d"] = convolution<conv_transpose1d, true>;
  t["nn.functional.conv_transpose2d"] = convolution<conv_transpose2d, true>;
  t["softmax"] = along<softmax>;
  t["log_softmax"] = along<log_softmax>;
  t["nn.functional.embedding"] = [](A a) -> T {
    return {embedding(a.tensor(0), a.tensor(1))};
  };
  t["index_select"] = [](A a) -> T {
    return {index_select(a.tensor(0), dim(a), a.tensor(2))};
  };
  t["index_put"] = [](A a) -> T {
    return {index_put(a.tensor(0), a.tensors(1, "indices"),
                      a.tensor(2, "values"), a.flag(3, "accumulate", false))};
  };
  t["index_add"] = [](A a) -> T {
    // In torch, the alpha of bools is a bool.
    const bool truth =
        a.has(kNamed, "alpha") && a.raw(kNamed, "alpha").is_boolean();
    const Number alpha = truth ? Number(a.flag(kNamed, "alpha", true))
                               : Number(a.number(kNamed, "alpha", 1));
    return {index_add(a.tensor(0), dim(a), a.tensor(2), a.tensor(3), alpha)};
  };
  t["gather"] = [](A a) -> T {
    return {gather(a.tensor(0), dim(a), a.tensor(2))};
  };
  t["scatter_add"] = [](A a) -> T {
    return {scatter_add(a.tensor(0), dim(a), a.tensor(2), a.tensor(3))};
  };
  t["scatter"] = [](A a) -> T {
    const DistTensor x = a.tensor(0), index = a.tensor(2);
    if (a.is_tensor(3)) return {scatter(x, dim(a), index, a.tensor(3))};
    return {scatter(x, dim(a), index, a.number(3))};
  };
  // Classes are dimension 1 in torch, and the last dimension in the library.
  t["nn.functional.cross_entropy"] = [](A a) -> T {
    const auto classes_last = [](const DistTensor& x) {
      return x.ndim() > 2 ? movedim(x, {1}, {-1}) : x;
    };
    const DistTensor targets = a.tensor(1);
    return {cross_entropy(
        classes_last(a.tensor(0)),
        is_float(targets.dtype()) ? classes_last(targets) : targets,
        reduction(a), a.integer(kNamed, "ignore_index", -100),
        a.number(kNamed, "label_smoothing", 0),
        a.has(kNamed, "weight") ? a.tensor(kNamed, "weight") : DistTensor())};
  };
  t["nn.functional.softmin"] = [](A a) -> T {
    DistTensor x = a.tensor(0);
    x = cast(x, a.dtype(kNamed, "dtype", x.dtype()));
    return {softmax(neg(x), static_cast<int>(a.integer(1, "dim")))};
  };
  t["nn.functional.layer_norm"] = [](A a) { return norm_call(a, true); };
  t["nn.functional.rms_norm"] = [](A a) { return norm_call(a, false); };
  t["nn.functional.scaled_dot_product_attention"] = attention_call;
  t["nn.functional.mse_loss"] = [](A a) { return loss<mse_loss>(a); };
  t["nn.functional.l1_loss"] = [](A a) { return loss<l1_loss>(a); };
  t["nn.functional.huber_loss"] = [](A a) {
    return loss<huber_loss>(a, "delta");
  };
  t["nn.functional.smooth_l1_loss"] = [](A a) {
    return loss<smooth_l1_loss>(a, "beta");
  };
  t["nn.functional.binary_cross_entropy"] = [](A a) {
    return loss<binary_cross_entropy>(a);
  };
  t["nn.functional.binary_cross_entropy_with_logits"] = [](A a) {
    return loss<binary_cross_entropy_with_logits>(a);
  };
  t["nn.functional.kl_div"] = [](A a) -> T {
    return {kl_div(a.tensor(0), a.tensor(1), reduction(a),
                   a.flag(kNamed, "log_target", false))};
  };
  t["nn.functional.nll_loss"] = [](A a) -> T {
    return {nll_loss(
        a.tensor(0), a.tensor(1), reduction(a),
        a.has(kNamed, "weight") ? a.tensor(kNamed, "weight") : DistTensor(),
        a.integer(kNamed, "ignore_index", -100))};
  };
  t["nn.functional.cosine_similarity"] = [](A a) -> T {
    return {cosine_similarity(a.tensor(0), a.tensor(1),
                              static_cast<int>(a.integer(2, "dim", 1)),
                              a.number(3, "eps", 1e-8))};
  };
  t["nn.functional.normalize"] = [](A a) -> T {
    return {normalize(a.tensor(0), a.number(1, "p", 2),
                      static_cast<int>(a.integer(2, "dim", 1)),
                      a.number(3, "eps", 1e-12))};
  };
}

}  // namespace dtensor::conformance
