// SPDX-License-Identifier: Apache-2.0
// Continues several texts at once, each as if it were alone.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "dtensor/nn/kv_cache.h"
#include "dtensor/nn/language_model.h"
#include "dtensor/nn/sampling.h"

namespace dtensor::nn {

struct EngineOptions {
  // The largest `texts`, and the most tokens of a cache. Beyond them, sizes in
  // bytes could overflow.
  static constexpr int64_t kMostTexts = int64_t{1} << 20,
                           kMostTokens = int64_t{1} << 40;

  int64_t texts = 8;  // the most that are continued at once
  // The most tokens of a text, prompt included; 0: config().seq.
  int64_t length = 0;
  int64_t cache_tokens = 0;  // the cache's capacity; 0: texts x length
  int64_t page = 32;         // tokens in a page of the cache
  // The most tokens of prompts in one step, not counting prompts that lack only
  // one token. A longer prompt takes several steps. Each of these also draws a
  // token for every text that has been read.
  int64_t chunk = 256;
  // Whether texts with the same beginning share its pages (kv_cache.h). If so,
  // a request also waits while a running text is reading a beginning that both
  // prompts have, so that this beginning is computed only once.
  bool share = true;
};

// One text to continue.
struct TextRequest {
  std::vector<int64_t> prompt = {};
  int64_t tokens = 16;  // the most to generate; 0: the prompt is only read
  Sampling sampling = {};
  std::vector<int64_t> stop = {};  // tokens that end the text, and belong to it
  int64_t likeliest = 0;           // the size of DrawnToken::likeliest
  // Whether on_token() gets logprobs; otherwise they may be 0. The logits are
  // gathered to all ranks if this is true, if `likeliest` is above 0, or if
  // takes_likeliest(sampling) is false.
  bool logprobs = false;
  // Called with each generated token; returns whether the text continues. Every
  // rank calls it with the same tokens, and it has to return the same on each.
  // It must not call the engine.
  std::function<bool(const DrawnToken&)> on_token = {};
  // Whether on_prompt() is called with each token of the prompt, before
  // on_token() (but not in a dry run). It gets the token's logprob given the
  // tokens before it, and the `likeliest` tokens at that position; for the
  // first token, NaN and none. The whole prompt is then computed, even if its
  // beginning is in the cache. The logits of the prompt need not be gathered.
  bool scores_prompt = false;
  std::function<void(const DrawnToken&)> on_prompt = {};
};

enum class Finish : uint8_t { kRunning, kLength, kStopToken, kCallback };

// Every rank of the model makes the same calls in the same order. A request
// waits until the cache has room for its prompt and all its tokens. From then
// on it keeps that room until it ends. In a dry run all tokens are 0.
class Engine {
 public:
  // Throws Error if the model cannot be continued (kv_cache.h), or for options
  // out of range, such as a length above config().seq.
  Engine(const LanguageModel&, const EngineOptions&);

  // Throws Error if the prompt is empty or has a token outside the vocabulary;
  // if `tokens` is negative, or longer than longest() together with the prompt;
  // or if check_sampling() does. Any thread may call it, and not all ranks have
  // to.
  void check(const TextRequest&) const;
  // The most tokens of a text: the options' length, or fewer if the cache is
  // smaller.
  int64_t longest() const;
  // Adds a request, and returns its number. Throws Error if check() does.
  int64_t add(TextRequest);
  // Ends a request that waits or runs, with Finish::kCallback; its callbacks
  // are not called again. Does nothing for a request that has ended.
  void cancel(int64_t request);
  // Sets the model's parameters to the values of the same names, which may be
  // on another mesh, between two steps (assign() in parameter.h). Texts go on:
  // those that run keep the keys and values that they have. Collective over
  // both meshes; on ranks outside the model's, call assign().
  void update(const std::vector<NamedTensor>& parameters);
  // Runs the model once: reads a part of the prompts that are not yet in the
  // cache, and draws a token for each running text whose prompt is then there.
  // Returns false if there is nothing to do.
  bool step();

  // Why a request ended; kRunning if it waits or runs. Throws Error for a
  // number that add() did not return or that was forgotten.
  Finish finish(int64_t request) const;
  // Forgets a request that has ended, so that an engine can run for ever
  // without filling memory. Throws Error if it has not ended.
  void forget(int64_t request);
  // The numbers of requests that wait and that run.
  int64_t waiting() const { return std::ssize(waiting_); }
  int64_t running() const { return std::ssize(running_); }
  // The number of tokens of a request's prompt that were in the cache when the
  // request began to run, so that they were not computed again. Throws Error as
  // finish() does.
  int64_t cached_tokens(int64_t request) const;
  // The sum of these numbers over all requests so far.
  int64_t cached_tokens() const { return cached_tokens_; }
  const KvCache& cache() const { return cache_; }

 private:
  struct Text {
    int64_t number = 0, in_cache = -1;
    TextRequest request;
    std::vector<int64_t> tokens;  // prompt and generated
    int64_t drawn() const {
      return std::ssize(tokens) - std::ssize(request.prompt);
    }
  };
  struct State {
    Finish finish = Finish::kRunning;
    int64_t cached = 0;
  };
  const State& state(int64_t request) const;
  void admit();
  // Whether a running text is reading a prompt with the same beginning, and
  // will put more pages of that beginning into the cache than are there now.
  bool shares_soon(const TextRequest&) const;
  // Draws the next token of each request from its row of the logits. The first
  // `gathered` of these rows are gathered; requests with later rows take the
  // likeliest token.
  void draw_all(std::span<const int64_t> requests, int64_t gathered,
                const DistTensor& logits);
  // A text whose prompt a step scores. The step reads the text's tokens `first`
  // to first + rows - 1, and computes a row of logits after each of them.
  struct Scored {
    int64_t text, first, rows;
  };
  // Calls on_prompt() of these texts. Their rows of the logits begin at `row`
  // and follow each other.
  void score(std::span<const Scored>, int64_t row, const DistTensor& logits);
  Text& running_text(int64_t request);
  void append(Text&, DrawnToken);
  void end(int64_t number, Finish);

  const LanguageModel& model_;
  EngineOptions options_;
  KvCache cache_;
  std::deque<Text> waiting_, running_;
  std::map<int64_t, State> states_;
  int64_t next_ = 0, cached_tokens_ = 0;
};

}  // namespace dtensor::nn
