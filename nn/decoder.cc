// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/decoder.h"

#include <fmt/format.h>

#include <cmath>

#include "dtensor/autograd.h"
#include "dtensor/nn/between_meshes.h"
#include "dtensor/nn/kv_cache.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {
namespace {

AttentionConfig attention_of(const ModelConfig& c, int64_t layer) {
  const Architecture& a = architecture(c.name);
  return {.hidden = c.hidden,
          .heads = c.heads,
          .kv_heads = c.kv(),
          .head_size = c.head_dim(),
          .bias = a.bias || c.attention_bias,
          .out_bias = a.out_bias || c.attention_bias,
          .rotary = a.rotary,
          .rope = c.rope,
          .norm = a.head_norm,
          .norm_eps = c.eps(),
          .causal = a.causal,
          .scale = c.query_scalar
                       ? 1 / std::sqrt(static_cast<double>(c.query_scalar))
                       : 0,
          .soft_cap = c.attention_soft_cap,
          .window = c.window_of(layer)};
}

}  // namespace

DecoderBlock::DecoderBlock(const Scope& at, const ModelConfig& c, int64_t layer)
    : Module(at),
      architecture_(architecture(c.name)),
      parallel_(c.is_parallel()) {
  const Architecture& a = architecture_;
  const auto norm = [&](const char* name) -> Child<Norm> {
    if (!name) return {};
    if (a.layer_norm) return add<LayerNorm>(name, c.hidden, c.eps());
    return add<RMSNorm>(name, c.hidden, c.eps(), a.plus_one);
  };
  norm_1_ = norm(a.norm_1);
  attention_ = add<Attention>(a.attention, attention_of(c, layer));
  after_1_ = norm(a.after_1);
  norm_2_ = norm(a.norm_2);
  const bool bias = a.mlp_bias || c.mlp_bias;
  switch (a.mlp) {
    case Architecture::Mlp::kPlain:
      mlp_ = add<MLP>("mlp", c.hidden, c.ffn_size(), bias, a.act);
      break;
    case Architecture::Mlp::kGated:
      mlp_ = add<GatedMLP>("mlp", c.hidden, c.ffn_size(), bias, a.act);
      break;
    case Architecture::Mlp::kExperts:
      mlp_ =
          add<MixtureOfExperts>("mlp", c.hidden, c.ffn_size(), c.expert_count(),
                                c.chosen_experts(), c.norm_top_k);
  }
  after_2_ = norm(a.after_2);
}

// The residual stream continues with the x that the norm returns. So a partial
// sum is reduced only once, and the norm's backward pass also adds the gradient
// that comes back along the stream.
Mixed DecoderBlock::run(const DistTensor& x, const Attend& attention) const {
  const auto normed = [](const Child<Norm>& norm, const DistTensor& a,
                         const DistTensor& b) {
    return norm.call(&Norm::normed, a, b);
  };
  const auto mlp = [&](const DistTensor& y) {
    return mlp_.call(&FeedForward::mixed, y);
  };
  if (architecture_.norm_of_sum) {
    const DistTensor y = normed(norm_1_, x, attention(x)).y;
    Mixed mixed = mlp(y);
    mixed.y = normed(norm_2_, y, mixed.y).y;
    return mixed;
  }
  // Returns a temporary, so that attention's result is not held while the MLP
  // runs (except in a parallel block).
  const auto attended = [&](const DistTensor& y) {
    const DistTensor a = attention(y);
    return architecture_.after_1 ? after_1_(a) : a;
  };
  Normed at = architecture_.norm_1 ? normed(norm_1_, x, {}) : Normed{x, x};
  if (parallel_) {
    const DistTensor a = attended(at.y);
    Mixed mixed = mlp(norm_2_(at.x));
    mixed.y = at.x + (a + mixed.y);
    return mixed;
  }
  if (architecture_.norm_2) {
    at = normed(norm_2_, at.x, attended(at.y));
  } else {
    at.x = at.x + attended(at.y);
    at.y = at.x;
  }
  Mixed mixed = mlp(at.y);
  if (architecture_.after_2) mixed.y = after_2_(mixed.y);
  mixed.y = at.x + mixed.y;
  return mixed;
}

Mixed DecoderBlock::forward(const DistTensor& x) const {
  return run(x, [&](const DistTensor& y) { return attention_(y); });
}

DistTensor DecoderBlock::cached(const DistTensor& x, const CacheTokens& at,
                                const CacheLayer& layer) const {
  return run(x,
             [&](const DistTensor& y) {
               return attention_.call(&Attention::cached, y, at, layer);
             })
      .y;
}

MaskedHead::MaskedHead(const Scope& at, const ModelConfig& c)
    : Module(at),
      dense_(add<Linear>("transform.dense", c.hidden, c.hidden)),
      norm_(add<LayerNorm>("transform.LayerNorm", c.hidden, c.eps())),
      bias_(add_parameter("bias", {c.vocab}, Init::zeros())) {}

DistTensor MaskedHead::forward(const DistTensor& x,
                               const DistTensor& table) const {
  return linear(norm_(gelu(dense_(x))), table, bias_);
}

Decoder::Decoder(const Scope& at, const ModelConfig& c)
    : LanguageModel(at, c), architecture_(architecture(c.name)) {
  const Architecture& a = architecture_;
  embedding_ = add<Embedding>(a.embedding, c.vocab, c.hidden);
  if (a.positions) positions_ = add<Embedding>(a.positions, c.seq, c.hidden);
  if (a.token_types) types_ = add<Embedding>(a.token_types, 2, c.hidden);
  if (a.first_norm)
    first_norm_ = add<LayerNorm>(a.first_norm, c.hidden, c.eps());
  for (int64_t i = 0; i < c.layers; ++i)
    blocks_.push_back(
        add<DecoderBlock>(fmt::format("{}.{}", a.blocks, i), c, i));
  if (a.last_norm && a.layer_norm)
    last_norm_ = add<LayerNorm>(a.last_norm, c.hidden, c.eps());
  else if (a.last_norm)
    last_norm_ = add<RMSNorm>(a.last_norm, c.hidden, c.eps(), a.plus_one);
  if (a.pooler) pooler_ = add<Linear>(a.pooler, c.hidden, c.hidden);
  if (a.head_kind == Architecture::Head::kMasked)
    masked_head_ = add<MaskedHead>(a.head, c);
  else if (a.head_kind == Architecture::Head::kPlain && !c.is_tied())
    head_ = add<Linear>(a.head, c.hidden, c.vocab, false);
}

DistTensor Decoder::embedded(const DistTensor& tokens,
                             const DistTensor& positions) const {
  DistTensor x = embedding_(tokens);
  const Architecture& a = architecture_;
  if (a.scaled_embedding)
    x = x * std::sqrt(static_cast<double>(config().hidden));
  if (a.positions) x = x + positions;
  if (a.token_types) x = x + types_.call(&Embedding::first, 1);
  return a.first_norm ? first_norm_(x) : x;
}

DistTensor Decoder::embed(const DistTensor& tokens) const {
  DistTensor positions;
  if (architecture_.positions)
    positions = positions_.call(&Embedding::first, tokens.size(1));
  return embedded(batch_onto(embedding_->mesh(), tokens), positions);
}

std::vector<const Attention*> Decoder::attention_layers() const {
  if (!architecture_.causal) return {};
  std::vector<const Attention*> layers;
  for (const auto& block : blocks_) layers.push_back(&block->attention());
  return layers;
}

DistTensor Decoder::decode(const CacheStep& step, const KvCache& cache) const {
  if (!architecture_.causal) return LanguageModel::decode(step, cache);
  const PathScope inside(path());
  const NoGrad no_grad;
  const CacheTokens& first = step.on(embedding_->mesh());
  DistTensor positions;
  if (architecture_.positions) positions = positions_(first.positions);
  DistTensor x = embedded(first.ids, positions);
  for (int64_t i = 0; i < config().layers; ++i) {
    const Child<DecoderBlock>& block = blocks_[static_cast<size_t>(i)];
    x = block.call(&DecoderBlock::cached, onto(block->mesh(), x),
                   step.on(block->mesh()), cache.layer(i));
  }
  x = index_select(x, 1, step.on(x.mesh()).wanted);
  const DistTensor logits = project(last_norm(x), cache.table());
  return reshape(logits, {logits.size(1), logits.size(2)});
}

Mixed Decoder::run(int64_t i, const DistTensor& x) const {
  const Child<DecoderBlock>& at = blocks_[static_cast<size_t>(i)];
  const std::vector<DistTensor> out = run_recomputed(
      i,
      [&block = at](const std::vector<DistTensor>& in) {
        const Mixed mixed = block(in[0]);
        if (!mixed.load.chosen.defined()) return std::vector{mixed.y};
        return std::vector{mixed.y, mixed.load.chosen, mixed.load.probability};
      },
      {onto(at->mesh(), x)});
  if (out.size() == 1) return {out[0], {}};
  return {out[0], {out[1], out[2]}};
}

DistTensor Decoder::block(int64_t i, const DistTensor& x) const {
  return run(i, x).y;
}

DistTensor Decoder::last_norm(const DistTensor& x) const {
  if (!architecture_.last_norm) return x;
  return last_norm_(onto(last_norm_->mesh(), x));
}

DistTensor Decoder::pooled(const DistTensor& features) const {
  DT_CHECK(architecture_.pooler, "model",
           "a {} has no pooler; use the features of a token", config().name);
  const DistTensor first = select(onto(pooler_->mesh(), features), 1, 0);
  return tanh(pooler_(first));
}

DistTensor Decoder::project(const DistTensor& features,
                            const DistTensor& table) const {
  using enum Architecture::Head;
  DT_CHECK(architecture_.head_kind != kNone, "model",
           "a {} has no head, so that it gives no logits and no loss; call "
           "features()",
           architecture_.name);
  DistTensor logits;
  if (architecture_.head_kind == kMasked)
    logits = masked_head_(features, table);
  else if (config().is_tied())
    logits = embedding_.call(&Embedding::attend, features, table);
  else
    logits = head_(features);
  const double cap = config().logit_soft_cap;
  return cap ? tanh(logits / cap) * cap : logits;
}

DistTensor Decoder::tied() const {
  const bool shares = config().is_tied() &&
                      architecture_.head_kind != Architecture::Head::kNone;
  return shares ? embedding_->table() : DistTensor();
}

std::vector<DistTensor> Decoder::train_block(
    int64_t i, const std::vector<DistTensor>& x) const {
  const Mixed mixed = run(i, x[0]);
  if (config().router_loss == 0) return {mixed.y};
  RouterLoad sum = mixed.load;
  if (i > 0) {
    const Mesh& mesh = mixed.y.mesh();
    sum = RouterLoad{onto(mesh, x[1]), onto(mesh, x[2])} + sum;
  }
  return {mixed.y, sum.chosen, sum.probability};
}

DistTensor Decoder::train_loss(const DistTensor& cross_entropy,
                               const std::vector<DistTensor>& x) const {
  if (config().router_loss == 0) return cross_entropy;
  return cross_entropy + load_balancing_loss({x[1], x[2]}, config().layers) *
                             config().router_loss;
}

}  // namespace dtensor::nn
