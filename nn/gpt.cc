#include "dtensor/nn/gpt.h"

#include <fmt/format.h>

#include "dtensor/nn/between_meshes.h"
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

DistTensor GPT::embed(const DistTensor& tokens) const {
  return wte_(batch_onto(wte_->mesh(), tokens)) +
         wpe_.call(&Embedding::first, tokens.size(1));
}

DistTensor GPT::block(int64_t i, const DistTensor& x) const {
  const Child<GPTBlock>& block = blocks_[static_cast<size_t>(i)];
  return run_block(block, onto(block->mesh(), x));
}

DistTensor GPT::last_norm(const DistTensor& x) const {
  return ln_f_(onto(ln_f_->mesh(), x));
}

DistTensor GPT::project(const DistTensor& features,
                        const DistTensor& table) const {
  return wte_.call(&Embedding::attend, features, table);
}

DistTensor GPT::tied() const { return wte_->table(); }

}  // namespace dtensor::nn
