// SPDX-License-Identifier: Apache-2.0
// Reinforcement learning in one program: an engine writes texts on one mesh, a
// trainer rewards them on another (REINFORCE: Williams, 1992), and the engine
// takes the new parameters while it writes. The two meshes share ranks here;
// they may also have ranks of their own.
//
//   bazel run //examples:15_reinforce -- --mesh dp=2,tp=2
#include <cstring>
#include <optional>

#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

constexpr int64_t kTexts = 24, kTokens = 8, kVocab = 12, kRounds = 30;

// A text is better the more often it has the token after the one before it.
double reward(const std::vector<int64_t>& text) {
  double good = 0;
  for (size_t i = 1; i < text.size(); ++i)
    good += text[i] == (text[i - 1] + 1) % kVocab;
  return good / kTokens;
}

struct Texts {
  std::vector<int64_t> tokens;  // texts x (1 + kTokens), prompts included
  std::vector<double> rewards;
};

// The trainer's step: makes texts with a reward above the mean likelier.
void learn(nn::LanguageModel& model, nn::AdamW& optimizer, const Texts& texts) {
  const Mesh mesh = model.mesh();
  double mean_reward = 0;
  for (double r : texts.rewards) mean_reward += r / kTexts;
  std::vector<int64_t> in, next;
  std::vector<float> weights;
  for (int64_t t = 0; t < kTexts; ++t)
    for (int64_t i = 0; i < kTokens; ++i) {
      const auto at = static_cast<size_t>(t * (kTokens + 1) + i);
      in.push_back(texts.tokens[at]);
      next.push_back(texts.tokens[at + 1]);
      weights.push_back(static_cast<float>(
          texts.rewards[static_cast<size_t>(t)] - mean_reward));
    }
  const auto whole = [&](const auto& values) {
    return DistTensor::from_global(
        Tensor::from({kTexts, kTokens}, values.data()), mesh,
        nn::batch_placements(mesh));
  };
  const DistTensor losses =
      cross_entropy(model.logits(whole(in)), whole(next), Reduction::kNone);
  const DistTensor loss = mean(losses * whole(weights));
  optimizer.step(grad(loss, model.parameters()), {.lr = 2e-2});
}

void example(Runtime& rt) {
  const Mesh training = rt.mesh();
  // The engine's ranks: at most three, along one axis.
  const Mesh answering({{"tp", std::min<int64_t>(3, rt.world_size())}});
  const nn::ModelConfig config{.name = "llama",
                               .layers = 1,
                               .hidden = 24,
                               .heads = 6,
                               .seq = kTokens + 1,
                               .vocab = kVocab};
  const auto trained = nn::make_model(config, training);
  const auto model = nn::make_model(config, answering);
  nn::AdamW optimizer(trained->named_parameters());
  std::optional<nn::Engine> engine;
  if (answering.contains(rt.rank()))
    engine.emplace(*model, nn::EngineOptions{.texts = kTexts});

  double first = 0, last = 0;
  Texts texts;
  for (int64_t round = 0; round < kRounds; ++round) {
    Texts now;
    now.tokens.assign(kTexts * (kTokens + 1), 0);
    for (int64_t t = 0; engine && t < kTexts; ++t) {
      int64_t* to = &now.tokens[static_cast<size_t>(t * (kTokens + 1))];
      *to = t % kVocab;
      engine->add(
          {.prompt = {*to},
           .tokens = kTokens,
           .sampling = {.temperature = 1, .seed = uint64_t(round * kTexts + t)},
           .on_token = [to](const nn::DrawnToken& token) mutable {
             *++to = token.id;
             return true;
           }});
    }
    for (int64_t step = 0; engine && step < kTokens / 2; ++step) engine->step();
    // In the middle of its texts, the engine takes the parameters that came of
    // the last ones.
    if (!texts.tokens.empty()) {
      learn(*trained, optimizer, texts);
      if (engine)
        engine->update(trained->named_parameters());
      else
        nn::assign(model->named_parameters(), trained->named_parameters());
    }
    while (engine && engine->step()) {
    }
    // The trainer's other ranks get the tokens from rank 0.
    const std::string bytes =
        all_gather_bytes("texts", 0,
                         {reinterpret_cast<const char*>(now.tokens.data()),
                          now.tokens.size() * sizeof(int64_t)})[0];
    std::memcpy(now.tokens.data(), bytes.data(), bytes.size());
    double sum = 0;
    for (int64_t t = 0; t < kTexts; ++t) {
      const auto at = now.tokens.begin() + t * (kTokens + 1);
      now.rewards.push_back(reward({at, at + kTokens + 1}));
      sum += now.rewards.back() / kTexts;
    }
    if (round == 0) first = sum;
    last = sum;
    if (rt.rank() == 0 && (round % 5 == 0 || round == kRounds - 1))
      fmt::print("round {:>2}  reward {:.3f}\n", round, sum);
    texts = now;
  }
  DT_CHECK(rt.dry_run() || last > 2 * first, "15_reinforce",
           "the reward was {} and is {}; it should have doubled", first, last);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "A trainer and an engine on two meshes of one program.",
              .mesh = "dp=2,tp=2"});
}
