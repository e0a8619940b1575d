// GPT-2: layer norm before, learned positions, the head tied to the embedding.
#pragma once
#include <vector>

#include "dtensor/nn/block.h"
#include "dtensor/nn/embedding.h"
#include "dtensor/nn/language_model.h"

namespace dtensor::nn {

// Parameters: transformer.wte, transformer.wpe, transformer.h.N (ln_1,
// attn.{q,k,v,o}_proj, ln_2, mlp.{c_fc,c_proj}), transformer.ln_f.
class GPT : public LanguageModel {
 public:
  GPT(const Scope& at, const ModelConfig&);
  DistTensor features(const DistTensor& tokens) const override;
  DistTensor head(const DistTensor& features) const override;

 private:
  Child<Embedding> wte_, wpe_;
  std::vector<Child<GPTBlock>> blocks_;
  Child<LayerNorm> ln_f_;
};

}  // namespace dtensor::nn
