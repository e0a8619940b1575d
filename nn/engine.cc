// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/engine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "dtensor/autograd.h"
#include "dtensor/nn/between_meshes.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/losses.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {
namespace {

CacheOptions cache_of(const LanguageModel& model, const EngineOptions& o) {
  const int64_t seq = model.config().seq;
  DT_CHECK(o.length <= seq, "generate",
           "texts of {} tokens are asked for, but the model's longest sequence "
           "is {}; write at most that",
           o.length, seq);
  const int64_t length = o.length ? o.length : seq;
  DT_CHECK(o.length >= 0 && o.texts >= 1 && o.chunk >= 1, "generate",
           "texts is {}, length {} and chunk {}; write 1 or more for each, or "
           "length 0 for the model's longest sequence",
           o.texts, o.length, o.chunk);
  constexpr int64_t kMost = EngineOptions::kMostTokens;
  DT_CHECK(o.texts <= EngineOptions::kMostTexts &&
               (o.cache_tokens || o.texts <= kMost / length),
           "generate",
           "{} texts of {} tokens are more than a cache can have; write at "
           "most {} texts, and at most {} tokens in all",
           o.texts, length, EngineOptions::kMostTexts, kMost);
  DT_CHECK(o.cache_tokens >= 0 && o.cache_tokens <= kMost, "generate",
           "a cache of {} tokens is asked for; write 0 to {}", o.cache_tokens,
           kMost);
  return {.tokens = o.cache_tokens ? o.cache_tokens : o.texts * length,
          .page = o.page,
          .texts = o.texts,
          .length = length,
          .step = std::min(o.chunk, length),
          .share = o.share};
}

// Whether the request's rows of logits must be gathered. If it only takes the
// likeliest token, all ranks find that token without gathering the logits.
bool needs_logits(const TextRequest& r) {
  return r.logprobs || r.likeliest > 0 || !takes_likeliest(r.sampling);
}

// The values of x, on every rank; empty in a dry run.
std::vector<double> values_of(const LanguageModel& model, const DistTensor& x) {
  const Tensor all = onto(model.mesh(), x).full();
  if (all.device().kind() == Device::Kind::kNone) return {};
  return all.to_doubles();
}

}  // namespace

Engine::Engine(const LanguageModel& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      cache_(model, cache_of(model, options)) {}

int64_t Engine::longest() const {
  const CacheOptions cache = cache_of(model_, options_);
  return std::min(cache.length, cache.tokens);
}

void Engine::check(const TextRequest& request) const {
  const ModelConfig& config = model_.config();
  const auto prompt = std::ssize(request.prompt);
  DT_CHECK(prompt > 0, "generate",
           "the prompt is empty; pass at least one token");
  DT_CHECK(request.tokens >= 0, "generate",
           "{} tokens are to be generated; write at least 0", request.tokens);
  for (const int64_t t : request.prompt)
    DT_CHECK(t >= 0 && t < config.vocab, "generate",
             "the prompt has the token {}, which is not in the vocabulary of "
             "{}; write tokens from 0 to {}",
             t, config.vocab, config.vocab - 1);
  // Subtractions, because sums could overflow.
  const CacheOptions cache = cache_of(model_, options_);
  const int64_t length = cache.length, capacity = cache.tokens;
  DT_CHECK(
      request.tokens <= length - prompt, "generate",
      "the prompt's length is {} and the number of new tokens {}, but the "
      "{} is {}; make their sum at most {}{}",
      prompt, request.tokens,
      length == config.seq ? "model's longest sequence" : "longest text",
      length, length,
      prompt < length ? fmt::format(" (at most {} new)", length - prompt) : "");
  DT_CHECK(request.tokens <= capacity - prompt, "generate",
           "the prompt's length is {} and the number of new tokens {}, but the "
           "cache is for {}; make their sum at most {}, or make a cache for {}",
           prompt, request.tokens, capacity, capacity, prompt + request.tokens);
  check_sampling(request.sampling, config.vocab);
}

int64_t Engine::add(TextRequest request) {
  check(request);
  Text text;
  text.number = next_++;
  text.tokens = request.prompt;
  text.request = std::move(request);
  states_[text.number] = {};
  waiting_.push_back(std::move(text));
  return next_ - 1;
}

void Engine::cancel(int64_t request) {
  std::erase_if(waiting_, [&](const Text& t) { return t.number == request; });
  end(request, Finish::kCallback);
}

const Engine::State& Engine::state(int64_t request) const {
  const auto found = states_.find(request);
  DT_CHECK(found != states_.end(), "generate",
           "there is no request {}; pass a number that add() returned and that "
           "was not forgotten",
           request);
  return found->second;
}

Finish Engine::finish(int64_t request) const { return state(request).finish; }

int64_t Engine::cached_tokens(int64_t request) const {
  return state(request).cached;
}

void Engine::forget(int64_t request) {
  DT_CHECK(finish(request) != Finish::kRunning, "generate",
           "request {} has not ended; cancel it first", request);
  states_.erase(request);
}

void Engine::end(int64_t number, Finish why) {
  for (auto t = running_.begin(); t != running_.end(); ++t)
    if (t->number == number) {
      cache_.remove(t->in_cache);
      running_.erase(t);
      break;
    }
  const auto s = states_.find(number);
  if (s != states_.end() && s->second.finish == Finish::kRunning)
    s->second.finish = why;
}

// If a prompt waits until the cache has a beginning that a running text is
// still reading, the beginning is computed only once.
bool Engine::shares_soon(const TextRequest& r) const {
  // The last token of a prompt is never shared.
  const auto end = r.prompt.end() - 1;
  for (const Text& t : running_) {
    const auto& other = t.request.prompt;
    const auto same =
        std::mismatch(r.prompt.begin(), end, other.begin(), other.end()).first -
        r.prompt.begin();
    const int64_t pages = same / options_.page * options_.page;
    if (pages > cache_.length(t.in_cache) && pages > cache_.shared(r.prompt))
      return true;
  }
  return false;
}

// Starts requests in their order, so that a long one is not overtaken for ever.
void Engine::admit() {
  while (!waiting_.empty() && std::ssize(running_) < options_.texts) {
    Text& first = waiting_.front();
    const TextRequest& r = first.request;
    const bool shares = options_.share && !r.scores_prompt;
    if (shares && shares_soon(r)) return;
    // The last token that is generated is not put into the cache.
    first.in_cache =
        cache_.add(std::ssize(r.prompt) + std::max<int64_t>(r.tokens, 1) - 1,
                   shares ? std::span<const int64_t>(r.prompt)
                          : std::span<const int64_t>());
    if (first.in_cache < 0) return;
    const int64_t cached = cache_.length(first.in_cache);
    states_[first.number].cached = cached;
    cached_tokens_ += cached;
    running_.push_back(std::move(first));
    waiting_.pop_front();
  }
}

void Engine::update(const std::vector<NamedTensor>& parameters) {
  assign(model_.named_parameters(), parameters);
  cache_.parameters_changed(model_);
}

bool Engine::step() {
  admit();
  if (running_.empty()) return false;
  // A step mixes texts that read their prompts with texts that draw a token.
  // The chunk limits only the tokens of prompts: these make a step long, and
  // every text that draws waits for the step's end.
  std::vector<std::pair<const Text*, CacheStep::Part>> chosen;
  int64_t room = options_.chunk;
  for (const Text& t : running_) {
    const int64_t cached = cache_.length(t.in_cache),
                  missing = std::ssize(t.tokens) - cached;
    // A text that lacks a single token never waits for prompts of others.
    const int64_t n = missing == 1 ? 1 : std::min(missing, room);
    if (n == 0) continue;
    if (missing > 1) room -= n;
    const auto from = t.tokens.begin() + cached;
    chosen.emplace_back(
        &t,
        CacheStep::Part{.text = t.in_cache,
                        .tokens = {from, from + n},
                        .wanted = n == missing && t.request.tokens > 0,
                        .scored = t.request.scores_prompt && t.drawn() == 0});
  }
  // The rows of logits that are to be gathered come first.
  std::stable_partition(chosen.begin(), chosen.end(), [](const auto& c) {
    return needs_logits(c.first->request);
  });
  std::vector<CacheStep::Part> parts;
  std::vector<int64_t> drawing, read;
  std::vector<Scored> scored;
  int64_t gathered = 0;
  for (auto& [text, part] : chosen) {
    const int64_t first = cache_.length(part.text), n = std::ssize(part.tokens);
    if (part.scored) scored.push_back({text->number, first, n});
    if (text->request.tokens == 0 && first + n == std::ssize(text->tokens))
      read.push_back(text->number);
    if (part.wanted) {
      drawing.push_back(text->number);
      gathered += needs_logits(text->request);
    }
    parts.push_back(std::move(part));
  }
  const CacheStep step = cache_.step(parts);
  const DistTensor logits = model_.decode(step, cache_);
  // score() comes first, because it needs its texts in running_, from which
  // draw_all() removes the texts that end.
  if (!scored.empty()) score(scored, std::ssize(drawing), logits);
  if (!drawing.empty()) draw_all(drawing, gathered, logits);
  for (const int64_t number : read) end(number, Finish::kLength);
  return true;
}

Engine::Text& Engine::running_text(int64_t request) {
  return *std::find_if(running_.begin(), running_.end(),
                       [&](const Text& t) { return t.number == request; });
}

void Engine::score(std::span<const Scored> texts, int64_t row,
                   const DistTensor& logits) {
  const NoGrad no_grad;
  // Every row of the step gets a target (0 if it needs none), so that few
  // shapes occur.
  const int64_t rows = logits.size(0);
  std::vector<int64_t> next(static_cast<size_t>(rows), 0);
  int64_t likeliest = 0, at = row;
  for (const auto& [number, first, n] : texts) {
    const TextRequest& r = running_text(number).request;
    likeliest = std::max(likeliest, r.likeliest);
    for (int64_t i = first + 1; i <= first + n; ++i, ++at)
      if (i < std::ssize(r.prompt))
        next[static_cast<size_t>(at)] = r.prompt[static_cast<size_t>(i)];
  }
  likeliest = std::min(likeliest, model_.config().vocab);
  const DistTensor targets =
      DistTensor::from_global(Tensor::from<int64_t>({rows}, next.data()),
                              logits.mesh(), Layout::replicated({rows}));
  const std::vector<double> losses =
      values_of(model_, cross_entropy(logits, targets, Reduction::kNone));
  std::vector<double> chosen, values, ids;
  if (likeliest > 0) {
    chosen = values_of(model_, gather(logits, 1, reshape(targets, {rows, 1})));
    const TopK best = topk(logits, likeliest);
    values = values_of(model_, best.values);
    ids = values_of(model_, best.indices);
  }
  if (losses.empty()) return;  // a dry run
  auto i = static_cast<size_t>(row);
  for (const auto& [number, first, n] : texts) {
    const TextRequest& r = running_text(number).request;
    if (!r.on_prompt) {
      i += static_cast<size_t>(n);
      continue;
    }
    if (first == 0)
      r.on_prompt({.id = r.prompt[0],
                   .logprob = std::numeric_limits<double>::quiet_NaN()});
    for (int64_t t = first + 1; t <= first + n; ++t, ++i) {
      if (t == std::ssize(r.prompt)) continue;
      DrawnToken token{.id = next[i], .logprob = -losses[i]};
      for (int64_t k = 0; k < std::min(r.likeliest, likeliest); ++k) {
        const size_t of =
            i * static_cast<size_t>(likeliest) + static_cast<size_t>(k);
        token.likeliest.emplace_back(static_cast<int64_t>(ids[of]),
                                     values[of] - chosen[i] - losses[i]);
      }
      r.on_prompt(token);
    }
  }
}

void Engine::draw_all(std::span<const int64_t> drawing, int64_t gathered,
                      const DistTensor& logits) {
  const NoGrad no_grad;
  std::vector<double> likeliest;
  if (gathered < std::ssize(drawing)) {
    const TopK best = topk(logits, 1);
    likeliest = values_of(model_, best.indices);
    // topk() takes a NaN for the largest logit, but draw() does not. If a row
    // has a NaN, all rows are gathered for draw().
    for (const double x : values_of(model_, best.values))
      if (std::isnan(x)) gathered = std::ssize(drawing);
  }
  std::vector<double> rows;
  if (gathered > 0) {
    // Rounded up, so that few shapes occur: KvCache::step() rounds the number
    // of all rows, but not the number of those that are gathered.
    const auto n =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(gathered)));
    rows = values_of(model_, slice(logits, 0, 0, std::min(n, logits.size(0))));
  }
  const auto vocab = static_cast<size_t>(model_.config().vocab);
  for (size_t i = 0; i < drawing.size(); ++i) {
    Text& t = running_text(drawing[i]);
    const TextRequest& r = t.request;
    DrawnToken token;
    if (static_cast<int64_t>(i) >= gathered) {
      if (!likeliest.empty()) token.id = static_cast<int64_t>(likeliest[i]);
    } else if (!rows.empty()) {
      token = draw(std::span(rows).subspan(i * vocab, vocab), r.sampling,
                   t.tokens, std::ssize(r.prompt), t.drawn(), r.likeliest);
    }
    append(t, std::move(token));
  }
}

void Engine::append(Text& t, DrawnToken token) {
  const TextRequest& r = t.request;
  t.tokens.push_back(token.id);
  Finish why = Finish::kRunning;
  if (std::find(r.stop.begin(), r.stop.end(), token.id) != r.stop.end())
    why = Finish::kStopToken;
  else if (t.drawn() == r.tokens)
    why = Finish::kLength;
  if (r.on_token && !r.on_token(token) && why == Finish::kRunning)
    why = Finish::kCallback;
  if (why != Finish::kRunning) end(t.number, why);
}

}  // namespace dtensor::nn
