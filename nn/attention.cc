// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/attention.h"

#include "dtensor/nn/cache_layer.h"
#include "dtensor/nn/layers.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/paged_attention.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {
namespace {

int64_t head_size(const AttentionConfig& c) {
  return c.head_size ? c.head_size : c.hidden / c.heads;
}

}  // namespace

Attention::Attention(const Scope& at, const AttentionConfig& c)
    : Module(at),
      config_(c),
      context_(at.plan ? at.plan->context : ContextParallel::kAuto),
      context_bytes_(at.plan ? at.plan->context_bytes : 0) {
  const int64_t d = config_.head_size = head_size(c);
  q_proj_ = add<Linear>("q_proj", c.hidden, c.heads * d, c.bias);
  k_proj_ = add<Linear>("k_proj", c.hidden, c.kv_heads * d, c.bias);
  v_proj_ = add<Linear>("v_proj", c.hidden, c.kv_heads * d, c.bias);
  o_proj_ = add<Linear>("o_proj", c.heads * d, c.hidden, c.out_bias);
  using enum HeadNorm;
  if (c.norm == kNone) return;
  const bool all = c.norm == kAllHeads;
  q_norm_ = add<RMSNorm>("q_norm", all ? c.heads * d : d, c.norm_eps);
  k_norm_ = add<RMSNorm>("k_norm", all ? c.kv_heads * d : d, c.norm_eps);
}

Split Attention::head_split() const {
  // A plan such as tensor_parallel() splits the weight's rows in granules of
  // one head, so the same axes split the heads in granules of 1.
  const std::vector<int> axes =
      q_proj_->weight().layout().dims[0].split().axes();
  return axes.empty() ? Split() : Split::over(axes);
}

Attention::Projected Attention::project(const DistTensor& x) const {
  const AttentionConfig& c = config_;
  const auto heads = [&](DistTensor y, int64_t n, const Child<RMSNorm>& norm) {
    if (c.norm == HeadNorm::kAllHeads) y = norm(y);
    y = view(y, {x.size(0), x.size(1), n, c.head_size});
    return c.norm == HeadNorm::kEachHead ? norm(y) : y;
  };
  return {heads(q_proj_(x), c.heads, q_norm_),
          heads(k_proj_(x), c.kv_heads, k_norm_),
          view(v_proj_(x), {x.size(0), x.size(1), c.kv_heads, c.head_size})};
}

DistTensor Attention::forward(const DistTensor& x) const {
  const AttentionConfig& c = config_;
  auto [q, k, v] = project(x);
  if (c.rotary) {
    q = rotary(q, c.rope);
    k = rotary(k, c.rope);
  }
  const DistTensor a = dtensor::attention(q, k, v,
                                          {.causal = c.causal,
                                           .scale = c.scale,
                                           .context = context_,
                                           .memory_bytes = context_bytes_,
                                           .window = c.window,
                                           .soft_cap = c.soft_cap});
  return o_proj_(view(a, {x.size(0), x.size(1), c.heads * c.head_size}));
}

DistTensor Attention::cached(const DistTensor& x, const CacheTokens& at,
                             const CacheLayer& layer) const {
  const AttentionConfig& c = config_;
  const int64_t t = x.size(1), d = c.head_size;
  auto [q, k, v] = project(x);
  if (c.rotary) {
    q = rotary(q, c.rope, at.positions);
    k = rotary(k, c.rope, at.positions);
  }
  const CacheTokens::Places& places = at.places.at(layer.kind);
  for (const auto& [cache, fresh] : {std::pair(&layer.k, &k), {&layer.v, &v}}) {
    DistTensor rows = view(*fresh, {t, c.kv_heads, d});
    if (layer.heads.defined()) rows = index_select(rows, 1, layer.heads);
    copy_into(*cache, rows, 0, places.slot);
  }
  const DistTensor a =
      paged_attention(view(q, {t, c.heads, d}), layer.k, layer.v, places.pages,
                      at.row, at.position,
                      {.kv_heads = c.kv_heads,
                       .page = layer.page,
                       .scale = c.scale,
                       .window = c.window,
                       .soft_cap = c.soft_cap});
  return o_proj_(view(a, {1, t, c.heads * d}));
}

}  // namespace dtensor::nn
