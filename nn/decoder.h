// The language model of any architecture (architecture.h): an embedding,
// pre-norm transformer blocks, a last norm and a head.
#pragma once
#include <vector>

#include "dtensor/nn/architecture.h"
#include "dtensor/nn/language_model.h"
#include "dtensor/nn/layers.h"

namespace dtensor::nn {

// x + attention(norm(x)), then x + mlp(norm(x)). Submodules: two norms,
// attention, and mlp.
class DecoderBlock : public Module {
 public:
  DecoderBlock(const Scope& at, const ModelConfig&);
  // [b, s, hidden] -> [b, s, hidden], with the load if the mlp has experts.
  virtual Mixed forward(const DistTensor& x) const;

 private:
  Child<Norm> norm_1_;
  Child<Attention> attention_;
  Child<Norm> norm_2_;
  Child<FeedForward> mlp_;
};

// With experts, loss() includes config.router_loss times load_balancing_loss().
class Decoder : public LanguageModel {
 public:
  Decoder(const Scope& at, const ModelConfig&);
  DistTensor embed(const DistTensor& tokens) const override;
  DistTensor block(int64_t i, const DistTensor& x) const override;
  DistTensor last_norm(const DistTensor& x) const override;
  DistTensor project(const DistTensor& features,
                     const DistTensor& table) const override;
  DistTensor tied() const override;
  // If config.router_loss is not 0, the results after the activations are the
  // summed loads of the blocks so far (chosen, probability).
  std::vector<DistTensor> train_block(
      int64_t i, const std::vector<DistTensor>& x) const override;
  DistTensor train_loss(const DistTensor& cross_entropy,
                        const std::vector<DistTensor>& x) const override;

 private:
  Mixed run(int64_t i, const DistTensor& x) const;

  const Architecture& architecture_;
  Child<Embedding> embedding_, positions_;  // positions_ may be empty
  std::vector<Child<DecoderBlock>> blocks_;
  Child<Norm> last_norm_;
  Child<Linear> head_;  // empty if tied
};

}  // namespace dtensor::nn
