#include "dtensor/nn/gpt.h"

#include <fmt/format.h>

#include "dtensor/ops/pointwise.h"

namespace dtensor::nn {

GPT::GPT(const Scope& at, const ModelConfig& c)
    : LanguageModel(at, c),
      wte_(add<Embedding>("transformer.wte", c.vocab, c.hidden)),
      wpe_(add<Embedding>("transformer.wpe", c.seq, c.hidden)) {
  for (int64_t i = 0; i < c.layers; ++i)
    blocks_.push_back(add<GPTBlock>(fmt::format("transformer.h.{}", i), c));
  ln_f_ = add<LayerNorm>("transformer.ln_f", c.hidden, c.eps());
}

DistTensor GPT::features(const DistTensor& tokens) const {
  check_tokens(tokens);
  DistTensor x = wte_(tokens) + wpe_.call(&Embedding::first, tokens.size(1));
  for (const Child<GPTBlock>& block : blocks_) x = run_block(block, x);
  return ln_f_(x);
}

DistTensor GPT::head(const DistTensor& features) const {
  return wte_.call(&Embedding::attend, features);
}

}  // namespace dtensor::nn
