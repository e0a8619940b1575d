#include "dtensor/ops/attention.h"

#include "dtensor/nn/layers.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {

Attention::Attention(const Scope& at, const AttentionConfig& c)
    : Module(at),
      config_(c),
      context_(at.plan ? at.plan->context : ContextParallel::kAuto),
      context_bytes_(at.plan ? at.plan->context_bytes : 0),
      q_proj_(add<Linear>("q_proj", c.hidden, c.hidden, c.bias)),
      k_proj_(add<Linear>("k_proj", c.hidden, c.hidden / c.heads * c.kv_heads,
                          c.bias)),
      v_proj_(add<Linear>("v_proj", c.hidden, c.hidden / c.heads * c.kv_heads,
                          c.bias)),
      o_proj_(add<Linear>("o_proj", c.hidden, c.hidden, c.out_bias)) {}

DistTensor Attention::forward(const DistTensor& x) const {
  const int64_t b = x.size(0), s = x.size(1),
                d = config_.hidden / config_.heads;
  DistTensor q = view(q_proj_(x), {b, s, config_.heads, d});
  DistTensor k = view(k_proj_(x), {b, s, config_.kv_heads, d});
  const DistTensor v = view(v_proj_(x), {b, s, config_.kv_heads, d});
  if (config_.rope_theta > 0) {
    q = rotary(q, config_.rope_theta);
    k = rotary(k, config_.rope_theta);
  }
  const DistTensor a = dtensor::attention(
      q, k, v,
      {.causal = true, .context = context_, .memory_bytes = context_bytes_});
  return o_proj_(view(a, {b, s, config_.hidden}));
}

}  // namespace dtensor::nn
