// GPT-2: pre-layer-norm blocks, learned positions, a head tied to the
// embedding.
#pragma once
#include <vector>

#include "dtensor/nn/block.h"
#include "dtensor/nn/language_model.h"
#include "dtensor/nn/layers.h"

namespace dtensor::nn {

// Parameters: transformer.wte, transformer.wpe, transformer.h.N (ln_1,
// attn.{q,k,v,o}_proj, ln_2, mlp.{c_fc,c_proj}), transformer.ln_f.
class GPT : public LanguageModel {
 public:
  GPT(const Scope& at, const ModelConfig&);
  DistTensor embed(const DistTensor& tokens) const override;
  DistTensor block(int64_t i, const DistTensor& x) const override;
  DistTensor last_norm(const DistTensor& x) const override;
  DistTensor project(const DistTensor& features,
                     const DistTensor& table) const override;
  DistTensor tied() const override;

 private:
  Child<Embedding> wte_, wpe_;
  std::vector<Child<GPTBlock>> blocks_;
  Child<LayerNorm> ln_f_;
};

}  // namespace dtensor::nn
