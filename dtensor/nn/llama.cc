#include "dtensor/nn/llama.h"

#include <fmt/format.h>

namespace dtensor::nn {

Llama::Llama(const Scope& at, const ModelConfig& c)
    : LanguageModel(at, c),
      embed_tokens_(add<Embedding>("model.embed_tokens", c.vocab, c.hidden)) {
  for (int64_t i = 0; i < c.layers; ++i)
    blocks_.push_back(add<LlamaBlock>(fmt::format("model.layers.{}", i), c));
  norm_ = add<RMSNorm>("model.norm", c.hidden, c.eps());
  lm_head_ = add<Linear>("lm_head", c.hidden, c.vocab, false);
}

DistTensor Llama::features(const DistTensor& tokens) const {
  check_tokens(tokens);
  DistTensor x = embed_tokens_(tokens);
  for (const Child<LlamaBlock>& block : blocks_) x = run_block(block, x);
  return norm_(x);
}

DistTensor Llama::head(const DistTensor& features) const {
  return lm_head_(features);
}

}  // namespace dtensor::nn
