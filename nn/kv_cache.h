// SPDX-License-Identifier: Apache-2.0
// The keys and values of the texts that a model is continuing.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "dtensor/nn/cache_layer.h"
#include "dtensor/nn/page_pool.h"

namespace dtensor::nn {

class LanguageModel;

struct CacheOptions {
  int64_t tokens = 0;  // the capacity, of all texts together
  int64_t page = 32;   // tokens in a page
  // The most texts in one step, the most tokens of a text (0: the model's
  // longest sequence), and the most tokens of a text in one step.
  int64_t texts = 1, length = 0, step = 256;
  bool share = true;  // pages of equal beginnings
};

// A step: tokens of several texts at once, each at the end of its text.
class CacheStep {
 public:
  struct Part {
    int64_t text;  // from KvCache::add()
    std::vector<int64_t> tokens;
    bool wanted = true;   // whether the logits after the last one are wanted
    bool scored = false;  // whether those after each one are, in further rows
  };

  // The step on a mesh; every rank of the run calls it.
  const CacheTokens& on(const Mesh&) const;
  // The number of rows of wanted logits, which come first in those of decode():
  // one for each part that is wanted, then those of the scored parts.
  int64_t wanted() const { return wanted_; }

 private:
  friend class KvCache;
  struct Places {
    std::vector<int64_t> slot, pages;
  };
  std::vector<int64_t> ids_, positions_, row_, want_;
  std::vector<Places> places_;  // by CacheLayer::kind
  int64_t wanted_ = 0, texts_ = 0;
  mutable std::deque<std::pair<Mesh, CacheTokens>> on_;
};

// Memory for a number of tokens, cut into pages. A text holds the pages that
// its tokens need, and gives them back when it is removed. Along an axis that
// splits sequences (nn/parallel.h), each rank has some of the pages, and a text
// gets them from one rank after the other. Pages are handed out by every rank
// alike, and nothing is sent: every rank of the model makes the same calls.
//
// Layers with a sliding window keep only the pages that it reaches, and layers
// with different windows have pages of their own.
//
// Texts with the same beginning share its whole pages, also with texts that are
// removed, until their pages are needed (page_pool.h). A shared page is never
// written: the last tokens of a text are in a page of its own.
class KvCache {
 public:
  // Throws Error if the model cannot be continued: see
  // LanguageModel::attention_layers().
  KvCache(const LanguageModel&, const CacheOptions&);

  // Begins a text of at most `tokens` tokens, and reserves its pages. Returns
  // its number, or -1 if too few pages are free. The text already has those of
  // the first tokens of its prompt that are in the cache; its length() says how
  // many, and is less than the prompt's.
  int64_t add(int64_t tokens, std::span<const int64_t> prompt = {});
  // The length() of such a text.
  int64_t shared(std::span<const int64_t> prompt) const;
  void remove(int64_t text);
  // The tokens of a text that are in the cache.
  int64_t length(int64_t text) const;

  // A step that appends these tokens; each text at most once. The numbers of
  // tokens and of wanted logits are rounded up if they are more than 32, by
  // less than a quarter, so that there are few shapes to decide layouts for.
  // Throws Error if a text becomes longer than was reserved.
  CacheStep step(std::span<const CacheStep::Part>);

  const CacheLayer& layer(int64_t i) const {
    return layers_[static_cast<size_t>(i)];
  }
  // The embedding table on the mesh of the last layer, for a head that shares
  // it; else undefined.
  const DistTensor& table() const { return table_; }
  // The pages that no text has or has reserved, of the layers that have fewest.
  int64_t free_pages() const;
  int64_t pages_for(int64_t tokens) const {
    return tokens / options_.page + (tokens % options_.page != 0);
  }
  // The bytes of keys and values on this rank.
  int64_t bytes() const;

 private:
  struct Kind {
    int64_t window;
    PagePool pool;
  };
  // The pages of one kind.
  struct Held {
    std::vector<int64_t> pages;  // that hold its tokens; -1: none any more
    int64_t beginning = 0;       // the number of that of its whole pages
  };
  struct Text {
    std::vector<Held> of;  // by kind
    int64_t length = 0, most = 0;
    std::vector<int64_t> last = {};  // the tokens after its whole pages
  };
  Text& text(int64_t number);
  // The kind of layers with this window, whose pages so many ranks share.
  size_t kind_of(int64_t window, int64_t ranks);
  // The pages that a text of so many tokens has at most at once.
  int64_t most_pages(const Kind&, int64_t tokens) const;
  // The whole pages of a prompt that are in the cache, equally many by kind.
  std::vector<std::vector<PagePool::Beginning>> known(
      std::span<const int64_t> prompt) const;
  // Appends a token, and its slots to those of the step.
  void append(Text&, int64_t token, CacheStep&);
  // Releases the pages that no window reaches any more.
  void drop_behind_window(Text&);

  CacheOptions options_;
  int64_t table_width_ = 0;
  std::vector<CacheLayer> layers_;
  DistTensor table_;
  std::vector<Kind> kinds_;
  std::map<int64_t, Text> texts_;
  int64_t next_ = 0;
};

}  // namespace dtensor::nn
