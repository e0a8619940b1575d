// What the models have in common.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/nn/config.h"
#include "dtensor/nn/module.h"
#include "dtensor/ops/recompute.h"

namespace dtensor::nn {

// What the backward pass computes again instead of finding it saved
// (ops/recompute.h).
enum class Recompute {
  kNone,
  // Every transformer block: what is saved of it is its input.
  kBlock,
  // What lies between the products of a block, as in Megatron-LM's selective
  // recomputation (Korthikanti et al., arXiv 2205.05198): attention with its
  // rotary embedding, norms, activation functions and sums. Saved are the
  // block's input and the products with its weights: q, k, v, the outputs of
  // attention's and the MLP's projections. No product with a weight is computed
  // again. (Recomputing attention alone would save next to nothing: it never
  // holds its scores, and its output is o_proj's input.)
  kAttention,
};
// "none", "block" or "attention"; throws Error for another text.
Recompute parse_recompute(std::string_view);
std::string_view name(Recompute);

class LanguageModel : public Module {
 public:
  // Throws Error when the mesh lacks the axis that the plan splits sequences
  // over.
  LanguageModel(const Scope& at, const ModelConfig& config);
  const ModelConfig& config() const { return config_; }

  // tokens [b, s], i32 or i64, s <= config().seq -> after the last norm,
  // [b, s, hidden].
  DistTensor features(const DistTensor& tokens) const;
  // [b, s, hidden] -> [b, s, vocab].
  DistTensor head(const DistTensor& features) const;

  DistTensor logits(const DistTensor& tokens) const;
  // The mean cross-entropy of targets [b, s], a scalar in f32 (f64 for f64).
  // Targets of -100 count for nothing. In a pipeline (pipeline_model.h), where
  // each module lies on a part of mesh(), what one makes is redistributed to
  // the next one's, and all arguments and results are on mesh().
  DistTensor text_loss(const DistTensor& tokens,
                       const DistTensor& targets) const;
  // What is trained: that, and what a model adds to it. Made of embed(),
  // train_block(), last_norm(), project() and train_loss().
  DistTensor loss(const DistTensor& tokens, const DistTensor& targets) const;

  // What features() and head() are made of. tokens -> [b, s, hidden]; block i,
  // from [b, s, hidden] to the same; the last norm.
  virtual DistTensor embed(const DistTensor& tokens) const = 0;
  virtual DistTensor block(int64_t i, const DistTensor& x) const = 0;
  virtual DistTensor last_norm(const DistTensor& x) const = 0;
  // The head, with that table [vocab, hidden] where it is tied().
  virtual DistTensor project(const DistTensor& features,
                             const DistTensor& table) const = 0;
  // Block i where a loss is wanted: of x[0], the activations, and of what the
  // model sums up on the way for its loss (there is none of it ahead of block
  // 0), both as the next block wants them. In a pipeline all of it goes from
  // stage to stage.
  virtual std::vector<DistTensor> train_block(
      int64_t i, const std::vector<DistTensor>& x) const;
  // What is trained, of the cross-entropy and of what the last block gave (of
  // which x[0] counts for nothing any more).
  virtual DistTensor train_loss(const DistTensor& cross_entropy,
                                const std::vector<DistTensor>& x) const;
  // The embedding that is the head too; undefined when that has one of its own.
  virtual DistTensor tied() const { return {}; }

  // From the next features() on; kNone at first. Losses and gradients are the
  // same bit for bit. The second run sends what the first sent inside of the
  // blocks (an all-reduce behind o_proj and one behind the MLP, where those are
  // split), as events of the phase "recompute". The model has to be there, with
  // the modules that it had, until the gradient is taken.
  void set_recompute(Recompute what) { recompute_ = what; }
  Recompute recompute() const { return recompute_; }

 protected:
  // block(x), as set_recompute() says, with x where sequence_parallel() wants
  // it.
  DistTensor run_block(
      const std::function<DistTensor(const DistTensor&)>& block,
      const DistTensor& x) const;
  // The same of a block with more arguments, of which the first is x, and
  // results.
  std::vector<DistTensor> run_recomputed(
      const Recomputed& block, const std::vector<DistTensor>& given) const;
  // Throws Error unless tokens is [b, s] with s <= seq.
  void check_tokens(const DistTensor& tokens) const;

 private:
  // Activations between blocks, where the plan wants them.
  DistTensor between_blocks(const DistTensor& x) const;

  ModelConfig config_;
  Recompute recompute_ = Recompute::kNone;
  std::string sequence_axis_;  // of sequence_parallel(), on any stage's mesh
};

}  // namespace dtensor::nn
