// The transformer block: x + attention(norm(x)), then x + mlp(norm(x)).
#pragma once
#include "dtensor/nn/config.h"
#include "dtensor/nn/layers.h"

namespace dtensor::nn {

// Submodules: ln_1, attn, ln_2, mlp. forward: [b, s, hidden] -> [b, s, hidden].
class GPTBlock : public Module {
 public:
  GPTBlock(const Scope& at, const ModelConfig&);
  virtual DistTensor forward(const DistTensor& x) const;

 private:
  Child<LayerNorm> ln_1_;
  Child<Attention> attn_;
  Child<LayerNorm> ln_2_;
  Child<MLP> mlp_;
};

// Submodules: input_layernorm, self_attn, post_attention_layernorm, mlp.
// forward: [b, s, hidden] -> [b, s, hidden].
class LlamaBlock : public Module {
 public:
  LlamaBlock(const Scope& at, const ModelConfig&);
  virtual DistTensor forward(const DistTensor& x) const;

 private:
  Child<RMSNorm> input_layernorm_;
  Child<Attention> self_attn_;
  Child<RMSNorm> post_attention_layernorm_;
  Child<SwiGLU> mlp_;
};

}  // namespace dtensor::nn
