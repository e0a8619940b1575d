// Llama: pre-RMS-norm blocks, rotary positions, SwiGLU, grouped-query
// attention, a separate head.
#pragma once
#include <vector>

#include "dtensor/nn/block.h"
#include "dtensor/nn/language_model.h"
#include "dtensor/nn/layers.h"

namespace dtensor::nn {

// Parameters: model.embed_tokens, model.layers.N (input_layernorm,
// self_attn.{q,k,v,o}_proj, post_attention_layernorm, mlp.{gate,up,down}_proj),
// model.norm, lm_head.
class Llama : public LanguageModel {
 public:
  Llama(const Scope& at, const ModelConfig&);
  DistTensor embed(const DistTensor& tokens) const override;
  DistTensor block(int64_t i, const DistTensor& x) const override;
  DistTensor last_norm(const DistTensor& x) const override;
  DistTensor project(const DistTensor& features,
                     const DistTensor& table) const override;

 private:
  Child<Embedding> embed_tokens_;
  std::vector<Child<LlamaBlock>> blocks_;
  Child<RMSNorm> norm_;
  Child<Linear> lm_head_;
};

}  // namespace dtensor::nn
