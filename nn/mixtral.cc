#include "dtensor/nn/mixtral.h"

#include <fmt/format.h>

#include "dtensor/nn/between_meshes.h"
#include "dtensor/ops/pointwise.h"

namespace dtensor::nn {

MixtralBlock::MixtralBlock(const Scope& at, const ModelConfig& c)
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
      mlp_(add<MixtureOfExperts>("mlp", c.hidden, c.ffn_size(),
                                 c.expert_count(), c.chosen_experts())) {}

// Like run() in block.cc, but the MLP also returns its load.
Mixed MixtralBlock::forward(const DistTensor& x) const {
  Normed at = input_layernorm_.call(&RMSNorm::normed, x, DistTensor());
  at = post_attention_layernorm_.call(&RMSNorm::normed, at.x, self_attn_(at.y));
  Mixed mixed = mlp_(at.y);
  mixed.y = at.x + mixed.y;
  return mixed;
}

Mixtral::Mixtral(const Scope& at, const ModelConfig& c)
    : LanguageModel(at, c),
      embed_tokens_(add<Embedding>("model.embed_tokens", c.vocab, c.hidden)) {
  for (int64_t i = 0; i < c.layers; ++i)
    blocks_.push_back(add<MixtralBlock>(fmt::format("model.layers.{}", i), c));
  norm_ = add<RMSNorm>("model.norm", c.hidden, c.eps());
  lm_head_ = add<Linear>("lm_head", c.hidden, c.vocab, false);
}

Mixed Mixtral::run(int64_t i, const DistTensor& x) const {
  const Child<MixtralBlock>& at = blocks_[static_cast<size_t>(i)];
  const std::vector<DistTensor> out = run_recomputed(
      [&block = at](const std::vector<DistTensor>& in) {
        const Mixed mixed = block(in[0]);
        return std::vector{mixed.y, mixed.load.chosen, mixed.load.probability};
      },
      {onto(at->mesh(), x)});
  return {out[0], {out[1], out[2]}};
}

DistTensor Mixtral::embed(const DistTensor& tokens) const {
  return embed_tokens_(batch_onto(embed_tokens_->mesh(), tokens));
}

DistTensor Mixtral::block(int64_t i, const DistTensor& x) const {
  return run(i, x).y;
}

DistTensor Mixtral::last_norm(const DistTensor& x) const {
  return norm_(onto(norm_->mesh(), x));
}

DistTensor Mixtral::project(const DistTensor& features,
                            const DistTensor&) const {
  return lm_head_(features);
}

std::vector<DistTensor> Mixtral::train_block(
    int64_t i, const std::vector<DistTensor>& x) const {
  const Mixed mixed = run(i, x[0]);
  if (config().router_loss == 0) return {mixed.y};
  RouterLoad sum = mixed.load;
  if (i > 0) {
    const Mesh& mesh = mixed.y.mesh();
    sum = RouterLoad{onto(mesh, x[1]), onto(mesh, x[2])} + sum;
  }
  return {mixed.y, sum.chosen, sum.probability};
}

DistTensor Mixtral::train_loss(const DistTensor& cross_entropy,
                               const std::vector<DistTensor>& x) const {
  if (config().router_loss == 0) return cross_entropy;
  return cross_entropy + load_balancing_loss({x[1], x[2]}, config().layers) *
                             config().router_loss;
}

}  // namespace dtensor::nn
