// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "dtensor/autograd.h"
#include "dtensor/nn/architecture.h"
#include "dtensor/nn/between_meshes.h"
#include "dtensor/nn/engine.h"
#include "dtensor/nn/models.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {
namespace {

// The logits of the token after the text, computed without a cache from the
// text's last config().seq tokens; empty in a dry run.
std::vector<double> logits_after(const LanguageModel& model,
                                 const std::vector<int64_t>& text) {
  const NoGrad no_grad;
  const int64_t seq = model.config().seq;
  const int64_t n = std::min<int64_t>(std::ssize(text), seq);
  // Rounding up to a power of two leaves few shapes, so that layouts are
  // decided only for those. Attention is causal: no token of the text sees the
  // padding behind it.
  const int64_t padded =
      std::min(seq, static_cast<int64_t>(std::bit_ceil(uint64_t(n))));
  std::vector<int64_t> window(static_cast<size_t>(padded), 0);
  std::copy(text.end() - n, text.end(), window.begin());
  const Mesh& mesh = model.mesh();
  const DistTensor tokens =
      DistTensor::from_global(Tensor::from<int64_t>({1, padded}, window.data()),
                              mesh, batch_placements(mesh));
  const DistTensor logits =
      model.head(slice(model.features(tokens), 1, n - 1, n));
  const Tensor row = onto(mesh, logits).full();
  const bool values = row.device().kind() != Device::Kind::kNone;
  return values ? row.to_doubles() : std::vector<double>();
}

}  // namespace

std::vector<int64_t> generate(const LanguageModel& model,
                              const GenerateOptions& options) {
  const ModelConfig& config = model.config();
  const auto prompt = std::ssize(options.prompt);
  DT_CHECK(prompt > 0, "generate",
           "the prompt is empty; pass at least one token");
  for (const int64_t t : options.prompt)
    DT_CHECK(t >= 0 && t < config.vocab, "generate",
             "the prompt has the token {}, which is not in the vocabulary of "
             "{}; write tokens from 0 to {}",
             t, config.vocab, config.vocab - 1);
  check_sampling(options.sampling, config.vocab);
  DT_CHECK(architecture(config.name).causal, "generate",
           "a {} is an encoder, which cannot continue a text; use a decoder, "
           "such as a gpt",
           config.name);
  if (options.tokens <= 0) return {};
  std::vector<int64_t> text = options.prompt;
  const bool fits = options.tokens <= config.seq - prompt;
  if (options.cache && fits && !model.attention_layers().empty()) {
    Engine engine(model, {.texts = 1, .cache_tokens = prompt + options.tokens});
    engine.add({.prompt = options.prompt,
                .tokens = options.tokens,
                .sampling = options.sampling,
                .stop = options.stop,
                .on_token = [&](const DrawnToken& t) {
                  text.push_back(t.id);
                  return !options.on_token || options.on_token(t);
                }});
    while (engine.step()) {
    }
  } else {
    for (int64_t i = 0; i < options.tokens; ++i) {
      const std::vector<double> logits = logits_after(model, text);
      const DrawnToken token =
          logits.empty() ? DrawnToken()
                         : draw(logits, options.sampling, text, prompt, i);
      text.push_back(token.id);
      const bool goes_on = !options.on_token || options.on_token(token);
      if (!goes_on || std::find(options.stop.begin(), options.stop.end(),
                                token.id) != options.stop.end())
        break;
    }
  }
  text.erase(text.begin(), text.begin() + prompt);
  return text;
}

}  // namespace dtensor::nn
