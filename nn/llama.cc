#include "dtensor/nn/llama.h"

#include <fmt/format.h>

#include "dtensor/nn/between_meshes.h"

namespace dtensor::nn {

Llama::Llama(const Scope& at, const ModelConfig& c)
    : LanguageModel(at, c),
      embed_tokens_(add<Embedding>("model.embed_tokens", c.vocab, c.hidden)) {
  for (int64_t i = 0; i < c.layers; ++i)
    blocks_.push_back(add<LlamaBlock>(fmt::format("model.layers.{}", i), c));
  norm_ = add<RMSNorm>("model.norm", c.hidden, c.eps());
  lm_head_ = add<Linear>("lm_head", c.hidden, c.vocab, false);
}

DistTensor Llama::embed(const DistTensor& tokens) const {
  return embed_tokens_(batch_onto(embed_tokens_->mesh(), tokens));
}

DistTensor Llama::block(int64_t i, const DistTensor& x) const {
  const Child<LlamaBlock>& block = blocks_[static_cast<size_t>(i)];
  return run_block(block, onto(block->mesh(), x));
}

DistTensor Llama::last_norm(const DistTensor& x) const {
  return norm_(onto(norm_->mesh(), x));
}

DistTensor Llama::project(const DistTensor& features, const DistTensor&) const {
  return lm_head_(features);
}

}  // namespace dtensor::nn
