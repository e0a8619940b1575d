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
  // `texts`: the most texts to which one step appends tokens. `length`: the
  // most tokens of a text; 0: the model's longest sequence. `step`: the most
  // tokens that one step appends to a text.
  int64_t texts = 1, length = 0, step = 256;
  bool share = true;  // whether texts share the pages of equal beginnings
};

// A step of a KvCache: tokens that are appended to several texts at once.
class CacheStep {
 public:
  struct Part {
    int64_t text;  // from KvCache::add()
    std::vector<int64_t> tokens;
    bool wanted = true;   // whether the logits after the last token are wanted
    bool scored = false;  // whether those after each token are wanted
  };

  // The step's tensors on a mesh. Every rank of the run calls it.
  const CacheTokens& on(const Mesh&) const;
  // The number of rows of wanted logits, which come first in the result of
  // decode(): one row for each part that is `wanted`, then one for each token
  // of the parts that are `scored`.
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
// takes pages from one rank after the other; in a reproducible run, each rank
// has some of the heads instead. Every rank of the model makes the same calls,
// and thereby hands out the same pages. Only the constructor may send
// something: see table().
//
// Layers with a sliding window keep only the pages that the window reaches.
// Layers with different windows have separate pages.
//
// Texts with the same beginning share the pages that this beginning fills, if
// CacheOptions::share is set. The pages of a removed text can be shared until
// they are taken for another text (page_pool.h). A shared page is never
// written: each text has a page of its own for its last tokens.
class KvCache {
 public:
  // Throws Error for options out of range, and if the model cannot be
  // continued: see LanguageModel::attention_layers().
  KvCache(const LanguageModel&, const CacheOptions&);

  // Begins a text of at most `tokens` tokens, and reserves its pages. Returns
  // the number of the text, or -1 if too few pages are free. If the cache has
  // whole pages with the first tokens of `prompt`, the text starts with those
  // pages; its length() is the number of these tokens. The prompt's last token
  // is never among them. Throws Error if `tokens` is not from 1 to the most
  // tokens of a text (CacheOptions::length), or if the prompt has more.
  int64_t add(int64_t tokens, std::span<const int64_t> prompt = {});
  // The length() that add() would give a text with this prompt.
  int64_t shared(std::span<const int64_t> prompt) const;
  void remove(int64_t text);
  // Call it after the model's parameters were written to. Texts that are added
  // later share no page that was filled before. Collective, as the constructor
  // is.
  void parameters_changed(const LanguageModel&);
  // The number of tokens of a text that are in the cache.
  int64_t length(int64_t text) const;

  // Makes a step that appends these tokens, with at most one part for each
  // text. Layouts have to be decided for every new shape, so a number of tokens
  // or of wanted rows above 32 is rounded up with padding, by less than a
  // quarter. Throws Error if there are too many parts, or if one is empty or
  // has more tokens than a step takes or than its text has reserved.
  CacheStep step(std::span<const CacheStep::Part>);

  const CacheLayer& layer(int64_t i) const {
    return layers_[static_cast<size_t>(i)];
  }
  // The embedding table, which the constructor moves to the mesh of the last
  // layer, if the head shares it; otherwise undefined.
  const DistTensor& table() const { return table_; }
  // The number of pages that no text uses or has reserved. Layers with
  // different windows have separate pages; the smallest count is returned.
  int64_t free_pages() const;
  int64_t pages_for(int64_t tokens) const {
    return tokens / options_.page + (tokens % options_.page != 0);
  }
  // The bytes of keys and values on this rank.
  int64_t bytes() const;

 private:
  // The layers that have the same window share a pool of pages.
  struct Kind {
    int64_t window;
    PagePool pool;
  };
  // The pages that a text has in the pool of one Kind.
  struct Held {
    std::vector<int64_t> pages;  // in the order of its tokens; -1: released
    int64_t beginning = 0;       // the Beginning::number of its whole pages
  };
  struct Text {
    std::vector<Held> of;            // by kind
    int64_t length = 0, most = 0;    // tokens in the cache; tokens reserved
    std::vector<int64_t> last = {};  // the tokens after its whole pages
  };
  Text& text(int64_t number);
  // Returns the index in kinds_ of the kind with this window. If there is none
  // yet, adds it, with pages that are split over `ranks` ranks.
  size_t kind_of(int64_t window, int64_t ranks);
  // The most pages that a text of this many tokens has at one time.
  int64_t most_pages(const Kind&, int64_t tokens) const;
  // The whole pages of a prompt that are in the cache. Each kind has a list;
  // all lists have the same length.
  std::vector<std::vector<PagePool::Beginning>> known(
      std::span<const int64_t> prompt) const;
  // Appends a token to a text, and the token's slots to those of the step.
  void append(Text&, int64_t token, CacheStep&);
  // Releases the text's pages that are behind the window of its next token.
  void drop_behind_window(Text&);

  CacheOptions options_;
  int64_t table_width_ = 0;
  std::vector<CacheLayer> layers_;
  DistTensor table_;
  std::vector<Kind> kinds_;
  std::map<int64_t, Text> texts_;
  int64_t next_ = 0;
  // The Beginning::number of an empty text: 0, and less after each
  // parameters_changed().
  int64_t root_ = 0;
};

}  // namespace dtensor::nn
