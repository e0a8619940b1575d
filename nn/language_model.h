// SPDX-License-Identifier: Apache-2.0
// The base class of the language models.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/nn/config.h"
#include "dtensor/nn/module.h"
#include "dtensor/ops/grad.h"

namespace dtensor::nn {

class Attention;
class CacheStep;
class KvCache;

// Which activations a rank does not hold until the backward pass: it recomputes
// them, or they go to the host's memory (ops/grad.h).
enum class Recompute {
  kNone,
  // Every transformer block: only its input is saved.
  kBlock,
  // Everything between the products of a block, as in Megatron-LM's selective
  // recomputation (Korthikanti et al., arXiv 2205.05198): attention with its
  // rotary embedding, norms, activation functions and sums. The block's input
  // and the outputs of its linear layers are saved (q, k, v, and the
  // projections of attention and the MLP), so no product with a weight is
  // recomputed, except those of Experts. (Recomputing attention alone would
  // save almost nothing: it never stores its scores, and its output is o_proj's
  // input.)
  kAttention,
  // Nothing is recomputed: what a block saves goes to the host's memory after
  // the block, and comes back for its gradient (save_on_host()).
  kOffload,
};
// "none", "block", "attention" or "offload"; throws Error for another text.
Recompute parse_recompute(std::string_view);
std::string_view name(Recompute);
// Recomputes as little as possible so that a step needs at most `bytes` of
// memory. Returns the choice for each block. First attention, then whole blocks
// are recomputed, block after block from the first one: the activations of the
// first blocks are held the longest. With `offload`, blocks are offloaded
// instead. `peak` returns the bytes that a step needs with the choices that it
// gets; it is called for about log2(2 blocks) of them. Pass a prediction
// (trainer.h). Throws Error if doing so with every block needs more than
// `bytes`, and says how many.
std::vector<Recompute> recompute_within(
    int64_t bytes, int64_t blocks,
    const std::function<int64_t(const std::vector<Recompute>&)>& peak,
    bool offload = false);

class LanguageModel : public Module {
 public:
  // Throws Error if the mesh lacks the axis of the plan's sequence_parallel().
  LanguageModel(const Scope& at, const ModelConfig& config);
  const ModelConfig& config() const { return config_; }

  // Returns the features [b, s, hidden] that last_norm() gives for tokens [b,
  // s] in i32 or i64, with s <= config().seq. This function and those below
  // that compute tensors are collective over mesh().
  DistTensor features(const DistTensor& tokens) const;
  // [b, s, hidden] -> [b, s, vocab].
  DistTensor head(const DistTensor& features) const;

  // head(features(tokens)).
  DistTensor logits(const DistTensor& tokens) const;
  // The mean cross-entropy of targets [b, s], a scalar in f32 (f64 for f64).
  // Targets of -100 are ignored. In a pipeline (pipeline_model.h), each module
  // lies on a part of mesh(), and activations are redistributed from one part
  // to the next; the arguments and results of logits(), text_loss() and loss()
  // are on mesh().
  DistTensor text_loss(const DistTensor& tokens,
                       const DistTensor& targets) const;
  // The training loss: text_loss() plus the terms that a model adds. It calls
  // embed(), train_block(), last_norm(), project() and train_loss().
  DistTensor loss(const DistTensor& tokens, const DistTensor& targets) const;

  // The parts of features(). The embedding: tokens [b, s] -> [b, s, hidden].
  virtual DistTensor embed(const DistTensor& tokens) const = 0;
  // Block i, and the norm after the last block. x, result: [b, s, hidden].
  virtual DistTensor block(int64_t i, const DistTensor& x) const = 0;
  virtual DistTensor last_norm(const DistTensor& x) const = 0;
  // The head: features [b, s, hidden] -> [b, s, vocab]. `table` is tied()
  // [vocab, hidden] on the mesh of the features, or undefined.
  virtual DistTensor project(const DistTensor& features,
                             const DistTensor& table) const = 0;
  // Computes block i for loss(). x[0] are the activations; the other tensors
  // are what earlier blocks have summed up for the loss (none before block 0).
  // Returns the same for the next block. In a pipeline, all of these tensors go
  // from stage to stage.
  virtual std::vector<DistTensor> train_block(
      int64_t i, const std::vector<DistTensor>& x) const;
  // The training loss, from the cross-entropy and from the tensors x of the
  // last train_block(). x[0] has been used by then and is ignored.
  virtual DistTensor train_loss(const DistTensor& cross_entropy,
                                const std::vector<DistTensor>& x) const;
  // The embedding table that the head shares; undefined if the head has a
  // table of its own, or if there is no head.
  virtual DistTensor tied() const { return {}; }

  // The attention of each layer, for continuing texts token by token
  // (kv_cache.h). Empty if the model cannot do that, because its attention is
  // not causal, or because its class overrides neither this function nor
  // decode().
  virtual std::vector<const Attention*> attention_layers() const { return {}; }
  // Appends the tokens of a step to their texts in the cache. Returns logits
  // [n, vocab]. The first step.wanted() rows are those that the step wants
  // (CacheStep::Part); the others are padding. Not recorded by autograd. Throws
  // Error if attention_layers() is empty.
  virtual DistTensor decode(const CacheStep& step, const KvCache&) const;

  // For all blocks, or for each one. Takes effect from the next run of a block;
  // the default is kNone. Throws Error unless there is one choice per block.
  // Losses and gradients are the same for each choice, bit for bit.
  // Recomputation repeats the communication inside the blocks (an all-reduce
  // after o_proj and one after the MLP, if those are split), as events of the
  // phase "recompute". The model and its modules must exist until the gradient
  // has been taken.
  void set_recompute(Recompute what);
  void set_recompute(std::vector<Recompute> blocks);
  Recompute recompute(int64_t block) const {
    return recompute_[static_cast<size_t>(block)];
  }

 protected:
  // Brings given[0], the activations, to the layout of sequence_parallel(), and
  // returns what `block` makes of these tensors. The backward pass recomputes
  // those parts of block i that set_recompute() selected.
  std::vector<DistTensor> run_recomputed(
      int64_t i, const Recomputed& block,
      const std::vector<DistTensor>& given) const;
  // Throws Error unless tokens is [b, s] with s <= seq.
  void check_tokens(const DistTensor& tokens) const;

 private:
  // Redistributes activations as the plan's sequence_parallel() says.
  DistTensor between_blocks(const DistTensor& x) const;

  ModelConfig config_;
  std::vector<Recompute> recompute_;  // by block
  // The axis of sequence_parallel(), or "". Every stage's mesh has it.
  std::string sequence_axis_;
};

}  // namespace dtensor::nn
