#include "dtensor/nn/decoder.h"

#include <fmt/format.h>

#include "dtensor/nn/between_meshes.h"
#include "dtensor/ops/pointwise.h"

namespace dtensor::nn {

DecoderBlock::DecoderBlock(const Scope& at, const ModelConfig& c) : Module(at) {
  const Architecture& a = architecture(c.name);
  const auto norm = [&](const char* name) -> Child<Norm> {
    if (a.layer_norm) return add<LayerNorm>(name, c.hidden, c.eps());
    return add<RMSNorm>(name, c.hidden, c.eps());
  };
  norm_1_ = norm(a.norm_1);
  attention_ = add<Attention>(
      a.attention, AttentionConfig{.hidden = c.hidden,
                                   .heads = c.heads,
                                   .kv_heads = c.kv(),
                                   .bias = a.bias,
                                   .out_bias = a.out_bias,
                                   .rope_theta = a.rotary ? c.rope_theta : 0});
  norm_2_ = norm(a.norm_2);
  switch (a.mlp) {
    case Architecture::Mlp::kGelu:
      mlp_ = add<MLP>("mlp", c.hidden, c.ffn_size());
      break;
    case Architecture::Mlp::kSwiGLU:
      mlp_ = add<SwiGLU>("mlp", c.hidden, c.ffn_size());
      break;
    case Architecture::Mlp::kExperts:
      mlp_ = add<MixtureOfExperts>("mlp", c.hidden, c.ffn_size(),
                                   c.expert_count(), c.chosen_experts());
  }
}

// The residual stream continues with the x that the norm returns. A partial sum
// is thus reduced only once, and the norm's backward pass adds the stream's
// gradient in its own pass.
Mixed DecoderBlock::forward(const DistTensor& x) const {
  Normed at = norm_1_.call(&Norm::normed, x, DistTensor());
  at = norm_2_.call(&Norm::normed, at.x, attention_(at.y));
  Mixed mixed = mlp_.call(&FeedForward::mixed, at.y);
  mixed.y = at.x + mixed.y;
  return mixed;
}

Decoder::Decoder(const Scope& at, const ModelConfig& c)
    : LanguageModel(at, c), architecture_(architecture(c.name)) {
  const Architecture& a = architecture_;
  embedding_ = add<Embedding>(a.embedding, c.vocab, c.hidden);
  if (!a.rotary) positions_ = add<Embedding>(a.positions, c.seq, c.hidden);
  for (int64_t i = 0; i < c.layers; ++i)
    blocks_.push_back(add<DecoderBlock>(fmt::format("{}.{}", a.blocks, i), c));
  if (a.layer_norm)
    last_norm_ = add<LayerNorm>(a.last_norm, c.hidden, c.eps());
  else
    last_norm_ = add<RMSNorm>(a.last_norm, c.hidden, c.eps());
  if (a.head) head_ = add<Linear>(a.head, c.hidden, c.vocab, false);
}

DistTensor Decoder::embed(const DistTensor& tokens) const {
  const DistTensor x = embedding_(batch_onto(embedding_->mesh(), tokens));
  if (architecture_.rotary) return x;
  return x + positions_.call(&Embedding::first, tokens.size(1));
}

Mixed Decoder::run(int64_t i, const DistTensor& x) const {
  const Child<DecoderBlock>& at = blocks_[static_cast<size_t>(i)];
  const std::vector<DistTensor> out = run_recomputed(
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
  return last_norm_(onto(last_norm_->mesh(), x));
}

DistTensor Decoder::project(const DistTensor& features,
                            const DistTensor& table) const {
  if (architecture_.head) return head_(features);
  return embedding_.call(&Embedding::attend, features, table);
}

DistTensor Decoder::tied() const {
  return architecture_.head ? DistTensor() : embedding_->table();
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
