#include "dtensor/nn/block.h"

#include "dtensor/ops/pointwise.h"

namespace dtensor::nn {
namespace {

// The residual stream continues with the x that the norm returns. A partial sum
// is thus reduced only once, and the norm's backward pass adds the stream's
// gradient in its own pass.
template <class Norm, class Mlp>
DistTensor run(const DistTensor& x, const Child<Norm>& norm_1,
               const Child<Attention>& attention, const Child<Norm>& norm_2,
               const Child<Mlp>& mlp) {
  Normed at = norm_1.call(&Norm::normed, x, DistTensor());
  at = norm_2.call(&Norm::normed, at.x, attention(at.y));
  return at.x + mlp(at.y);
}

}  // namespace

GPTBlock::GPTBlock(const Scope& at, const ModelConfig& c)
    : Module(at),
      ln_1_(add<LayerNorm>("ln_1", c.hidden, c.eps())),
      attn_(add<Attention>("attn", AttentionConfig{.hidden = c.hidden,
                                                   .heads = c.heads,
                                                   .kv_heads = c.kv()})),
      ln_2_(add<LayerNorm>("ln_2", c.hidden, c.eps())),
      mlp_(add<MLP>("mlp", c.hidden, c.ffn_size())) {}

DistTensor GPTBlock::forward(const DistTensor& x) const {
  return run(x, ln_1_, attn_, ln_2_, mlp_);
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
  return run(x, input_layernorm_, self_attn_, post_attention_layernorm_, mlp_);
}

}  // namespace dtensor::nn
