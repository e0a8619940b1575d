// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/language_model.h"

#include <algorithm>
#include <utility>

#include "dtensor/nn/between_meshes.h"
#include "dtensor/ops/losses.h"
#include "dtensor/placement/choose.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/owned.h"
#include "dtensor/redistribute.h"

namespace dtensor::nn {

Recompute parse_recompute(std::string_view text) {
  for (Recompute r : {Recompute::kNone, Recompute::kBlock,
                      Recompute::kAttention, Recompute::kOffload})
    if (text == name(r)) return r;
  fail("recompute",
       "there is no recomputation \"{}\"; write none, block, attention or "
       "offload",
       text);
}

std::string_view name(Recompute what) {
  constexpr std::string_view kNames[] = {"none", "block", "attention",
                                         "offload"};
  return kNames[static_cast<size_t>(what)];
}

std::vector<Recompute> recompute_within(
    int64_t bytes, int64_t blocks,
    const std::function<int64_t(const std::vector<Recompute>&)>& peak,
    bool offload) {
  // Choice k of 2 blocks + 1, in the order of what is recomputed, or of blocks
  // + 1 if they are offloaded.
  const auto choice = [&](int64_t k) {
    std::vector<Recompute> all;
    for (int64_t i = 0; i < blocks; ++i)
      all.push_back(
          i < k - blocks ? Recompute::kBlock
          : i < k ? (offload ? Recompute::kOffload : Recompute::kAttention)
                  : Recompute::kNone);
    return all;
  };
  // Recomputing whole blocks may need more than recomputing attention, because
  // ZeRO 3 then holds more gathered parameters (Trainer::set_gather_budget()).
  const int64_t attention = peak(choice(blocks));
  DT_CHECK(!offload || attention <= bytes, "recompute",
           "a step needs {} bytes even if every block's activations are "
           "offloaded, but at most {} are allowed; allow more, make the batch "
           "smaller, or offload the optimizer's state, too",
           attention, bytes);
  const bool whole = attention > bytes;
  int64_t fits = whole ? 2 * blocks : blocks, least = whole ? blocks + 1 : 0;
  const int64_t most = whole ? peak(choice(fits)) : attention;
  DT_CHECK(most <= bytes, "recompute",
           "a step needs {} bytes even if every block is recomputed, but at "
           "most {} are allowed; allow more, or make the batch smaller",
           std::min(most, attention), bytes);
  while (least < fits) {
    const int64_t k = (least + fits) / 2;
    if (peak(choice(k)) <= bytes)
      fits = k;
    else
      least = k + 1;
  }
  return choice(fits);
}

LanguageModel::LanguageModel(const Scope& at, const ModelConfig& config)
    : Module(at),
      config_(config),
      recompute_(static_cast<size_t>(config.layers), Recompute::kNone) {
  if (!at.plan || at.plan->sequence_axis.empty()) return;
  DT_CHECK(at.mesh.has_axis(at.plan->sequence_axis), "sequence_parallel",
           "mesh {} has no axis \"{}\" to split sequences over; name an axis "
           "that splits the model, or leave sequence_parallel() out",
           at.mesh.to_string(), at.plan->sequence_axis);
  sequence_axis_ = at.plan->sequence_axis;
}

DistTensor LanguageModel::between_blocks(const DistTensor& x) const {
  if (sequence_axis_.empty()) return x;
  const int axis = x.mesh().axis(sequence_axis_);
  if (x.spec()->split_axes() >> axis & 1) return x;
  Layout layout = x.layout();
  layout.partials.clear();
  layout.dims[1] = subdivided(layout.dims[1], x.mesh(), axis);
  return relayout(x, x.spec()->with(layout));
}

DistTensor LanguageModel::text_loss(const DistTensor& tokens,
                                    const DistTensor& targets) const {
  const PathScope inside(path());
  const DistTensor x = head(features(tokens));
  return onto(mesh(), cross_entropy(x, batch_onto(x.mesh(), targets)));
}

DistTensor LanguageModel::loss(const DistTensor& tokens,
                               const DistTensor& targets) const {
  const PathScope inside(path());
  check_tokens(tokens);
  std::vector<DistTensor> x{embed(tokens)};
  for (int64_t i = 0; i < config_.layers; ++i) x = train_block(i, x);
  x[0] = last_norm(x[0]);
  x[0] = head(x[0]);
  const DistTensor of_text =
      cross_entropy(x[0], batch_onto(x[0].mesh(), targets));
  return onto(mesh(), train_loss(of_text, x));
}

std::vector<DistTensor> LanguageModel::train_block(
    int64_t i, const std::vector<DistTensor>& x) const {
  return {block(i, x[0])};
}

DistTensor LanguageModel::train_loss(const DistTensor& cross_entropy,
                                     const std::vector<DistTensor>&) const {
  return cross_entropy;
}

DistTensor LanguageModel::decode(const CacheStep&, const KvCache&) const {
  fail("model",
       "the model \"{}\" cannot be continued token by token; call features() "
       "on whole texts, or use a decoder that make_model() makes, such as a "
       "gpt",
       config_.name);
}

DistTensor LanguageModel::logits(const DistTensor& tokens) const {
  const PathScope inside(path());
  return onto(mesh(), head(features(tokens)));
}

DistTensor LanguageModel::features(const DistTensor& tokens) const {
  check_tokens(tokens);
  DistTensor x = embed(tokens);
  for (int64_t i = 0; i < config_.layers; ++i) x = block(i, x);
  return last_norm(x);
}

DistTensor LanguageModel::head(const DistTensor& features) const {
  DistTensor table = tied();
  if (table.defined()) table = onto(features.mesh(), table);
  return project(features, table);
}

void LanguageModel::set_recompute(Recompute what) {
  recompute_.assign(recompute_.size(), what);
}

void LanguageModel::set_recompute(std::vector<Recompute> blocks) {
  DT_CHECK(blocks.size() == recompute_.size(), "recompute",
           "{} choices are given for {} blocks; give one for each",
           blocks.size(), recompute_.size());
  recompute_ = std::move(blocks);
}

std::vector<DistTensor> LanguageModel::run_recomputed(
    int64_t i, const Recomputed& block,
    const std::vector<DistTensor>& given) const {
  std::vector<DistTensor> in = given;
  in[0] = between_blocks(in[0]);
  if (recompute(i) == Recompute::kNone) return block(in);
  if (recompute(i) == Recompute::kOffload) return save_on_host(block, in);
  RecomputeOptions options;
  if (recompute(i) == Recompute::kAttention)
    // Keeps the products with weights, but not `experts`, which does several
    // things at once.
    options.save = [](const CheckpointedCall& call) {
      return call.work.flops_per_point == 2 &&
             std::any_of(
                 call.inputs.begin(), call.inputs.end(),
                 [](const DistTensor& x) { return x.keep() != Keep::kMove; });
    };
  return checkpoint(block, in, options);
}

void LanguageModel::check_tokens(const DistTensor& tokens) const {
  DT_CHECK(tokens.ndim() == 2, "model",
           "tokens have the shape {}; pass [batch, sequence]",
           to_string(tokens.shape()));
  DT_CHECK(
      tokens.size(1) <= config_.seq, "model",
      "tokens {} are longer than the model's sequence of {}; shorten them, or "
      "make the model with seq {}",
      to_string(tokens.shape()), config_.seq, tokens.size(1));
}

}  // namespace dtensor::nn
