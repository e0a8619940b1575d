// SPDX-License-Identifier: Apache-2.0
// The language model of any architecture (architecture.h): embeddings,
// transformer blocks, and a head if there is one.
#pragma once
#include <functional>
#include <vector>

#include "dtensor/nn/architecture.h"
#include "dtensor/nn/language_model.h"
#include "dtensor/nn/layers.h"

namespace dtensor::nn {

// A transformer block. With norms before attention and the MLP, as in GPT-2 and
// Llama, it computes y = x + attention(norm(x)) and returns y + mlp(norm(y)).
// For other places of the norms, and for parallel blocks, see Architecture.
// Submodules: attention, mlp, and the norms.
class DecoderBlock : public Module {
 public:
  // Block `layer` of the model.
  DecoderBlock(const Scope& at, const ModelConfig&, int64_t layer);
  // [b, s, hidden] -> [b, s, hidden], with the RouterLoad if the mlp has
  // experts.
  virtual Mixed forward(const DistTensor& x) const;
  // The same for the tokens that a step adds to a cache; see
  // Attention::cached().
  virtual DistTensor cached(const DistTensor& x, const CacheTokens&,
                            const CacheLayer&) const;
  const Attention& attention() const { return *attention_; }

 private:
  using Attend = std::function<DistTensor(const DistTensor&)>;
  Mixed run(const DistTensor& x, const Attend& attention) const;

  const Architecture& architecture_;
  bool parallel_;
  // A norm whose name in Architecture is null is empty.
  Child<Norm> norm_1_, after_1_;
  Child<Attention> attention_;
  Child<Norm> norm_2_, after_2_;
  Child<FeedForward> mlp_;
};

// BERT's head for masked language models: norm(gelu(dense(x))) times the
// transpose of the embedding table, plus a bias [vocab].
class MaskedHead : public Module {
 public:
  MaskedHead(const Scope& at, const ModelConfig&);
  // x [b, s, hidden], table [vocab, hidden] -> [b, s, vocab].
  virtual DistTensor forward(const DistTensor& x,
                             const DistTensor& table) const;

 private:
  Child<Linear> dense_;
  Child<Norm> norm_;
  DistTensor bias_;
};

// With experts, loss() includes config.router_loss times load_balancing_loss().
class Decoder : public LanguageModel {
 public:
  Decoder(const Scope& at, const ModelConfig&);
  DistTensor embed(const DistTensor& tokens) const override;
  DistTensor block(int64_t i, const DistTensor& x) const override;
  DistTensor last_norm(const DistTensor& x) const override;
  // Throws Error if the architecture has no head.
  DistTensor project(const DistTensor& features,
                     const DistTensor& table) const override;
  DistTensor tied() const override;
  // BERT's result for a whole text, [b, hidden], from features() [b, s,
  // hidden]: tanh(dense(first token)). Throws Error if the architecture has no
  // pooler.
  DistTensor pooled(const DistTensor& features) const;
  std::vector<const Attention*> attention_layers() const override;
  DistTensor decode(const CacheStep&, const KvCache&) const override;
  // If config.router_loss is not 0, x[1] and x[2] are RouterLoad::chosen and
  // probability, summed over the blocks before block i. (For block 0, x has
  // only x[0].)
  std::vector<DistTensor> train_block(
      int64_t i, const std::vector<DistTensor>& x) const override;
  DistTensor train_loss(const DistTensor& cross_entropy,
                        const std::vector<DistTensor>& x) const override;

 private:
  Mixed run(int64_t i, const DistTensor& x) const;
  // The input of block 0, [b, s, hidden]: token embeddings plus `positions`,
  // the embeddings of positions (not used if the architecture has none); scaled
  // and normed if the architecture says so.
  DistTensor embedded(const DistTensor& tokens,
                      const DistTensor& positions) const;

  const Architecture& architecture_;
  // A submodule that the architecture does not have is empty.
  Child<Embedding> embedding_, positions_, types_;
  Child<Norm> first_norm_;
  std::vector<Child<DecoderBlock>> blocks_;
  Child<Norm> last_norm_;
  Child<Linear> head_;  // empty if tied
  Child<MaskedHead> masked_head_;
  Child<Linear> pooler_;
};

}  // namespace dtensor::nn
