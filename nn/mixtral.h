// Mixtral: a Llama with mixtures of experts as feed-forward layers.
#pragma once
#include <vector>

#include "dtensor/nn/language_model.h"
#include "dtensor/nn/layers.h"

namespace dtensor::nn {

// Submodules: input_layernorm, self_attn, post_attention_layernorm, mlp.
// forward: x [b, s, hidden]; returns the activations and the router's load.
class MixtralBlock : public Module {
 public:
  MixtralBlock(const Scope& at, const ModelConfig&);
  virtual Mixed forward(const DistTensor& x) const;

 private:
  Child<RMSNorm> input_layernorm_;
  Child<Attention> self_attn_;
  Child<RMSNorm> post_attention_layernorm_;
  Child<MixtureOfExperts> mlp_;
};

// Parameters: as in Llama, but the MLP has mlp.gate.weight and
// mlp.experts.{gate,up,down}_proj. loss() includes config.router_loss times
// load_balancing_loss().
class Mixtral : public LanguageModel {
 public:
  Mixtral(const Scope& at, const ModelConfig&);
  DistTensor embed(const DistTensor& tokens) const override;
  DistTensor block(int64_t i, const DistTensor& x) const override;
  DistTensor last_norm(const DistTensor& x) const override;
  DistTensor project(const DistTensor& features,
                     const DistTensor& table) const override;
  // If config.router_loss is not 0, the results after the activations are the
  // summed loads of the blocks so far (chosen, probability).
  std::vector<DistTensor> train_block(
      int64_t i, const std::vector<DistTensor>& x) const override;
  DistTensor train_loss(const DistTensor& cross_entropy,
                        const std::vector<DistTensor>& x) const override;

 private:
  Mixed run(int64_t i, const DistTensor& x) const;
  Child<Embedding> embed_tokens_;
  std::vector<Child<MixtralBlock>> blocks_;
  Child<RMSNorm> norm_;
  Child<Linear> lm_head_;
};

}  // namespace dtensor::nn
