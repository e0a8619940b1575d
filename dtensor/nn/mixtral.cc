#include "dtensor/nn/mixtral.h"

#include <fmt/format.h>

#include "dtensor/ops/cross_entropy.h"
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

// As block.cc's run(), of a layer that tells its load.
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
  const std::vector<DistTensor> out = run_recomputed(
      [&block =
           blocks_[static_cast<size_t>(i)]](const std::vector<DistTensor>& in) {
        const Mixed mixed = block(in[0]);
        return std::vector{mixed.y, mixed.load.chosen, mixed.load.probability};
      },
      {x});
  return {out[0], {out[1], out[2]}};
}

DistTensor Mixtral::embed(const DistTensor& tokens) const {
  return embed_tokens_(tokens);
}

DistTensor Mixtral::block(int64_t i, const DistTensor& x) const {
  return run(i, x).y;
}

DistTensor Mixtral::last_norm(const DistTensor& x) const { return norm_(x); }

DistTensor Mixtral::project(const DistTensor& features,
                            const DistTensor&) const {
  return lm_head_(features);
}

DistTensor Mixtral::loss(const DistTensor& tokens,
                         const DistTensor& targets) const {
  if (config().router_loss == 0) return text_loss(tokens, targets);
  const PathScope inside(path());
  check_tokens(tokens);
  DistTensor x = embed(tokens);
  std::vector<RouterLoad> loads;
  for (int64_t i = 0; i < config().layers; ++i) {
    const Mixed mixed = run(i, x);
    x = mixed.y;
    loads.push_back(mixed.load);
  }
  return cross_entropy(head(last_norm(x)), targets) +
         load_balancing_loss(loads) * config().router_loss;
}

}  // namespace dtensor::nn
