#include "dtensor/nn/block.h"

#include "dtensor/ops/pointwise.h"

namespace dtensor::nn {

GPTBlock::GPTBlock(const Scope& at, const ModelConfig& c)
    : Module(at),
      ln_1_(add<LayerNorm>("ln_1", c.hidden, c.eps())),
      attn_(add<Attention>("attn", AttentionConfig{.hidden = c.hidden,
                                                   .heads = c.heads,
                                                   .kv_heads = c.kv()})),
      ln_2_(add<LayerNorm>("ln_2", c.hidden, c.eps())),
      mlp_(add<MLP>("mlp", c.hidden, c.ffn_size())) {}

DistTensor GPTBlock::forward(const DistTensor& x) const {
  const DistTensor y = x + attn_(ln_1_(x));
  return y + mlp_(ln_2_(y));
}

LlamaBlock::LlamaBlock(const Scope& at, const ModelConfig& c)
    : Module(at),
      input_layernorm_(add<RMSNorm>("input_layernorm", c.hidden, c.eps())),
      self_attn_(add<Attention>("self_attn",
                                AttentionConfig{.hidden = c.hidden,
                                                .heads = c.heads,
                                                .kv_heads = c.kv(),
                                                .bias = false,
                                                .rope_theta = c.rope_theta})),
      post_attention_layernorm_(
          add<RMSNorm>("post_attention_layernorm", c.hidden, c.eps())),
      mlp_(add<SwiGLU>("mlp", c.hidden, c.ffn_size())) {}

DistTensor LlamaBlock::forward(const DistTensor& x) const {
  const DistTensor y = x + self_attn_(input_layernorm_(x));
  return y + mlp_(post_attention_layernorm_(y));
}

}  // namespace dtensor::nn
