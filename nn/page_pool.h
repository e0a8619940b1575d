// SPDX-License-Identifier: Apache-2.0
// The pages of a cache of keys and values: who uses them, and the tokens that
// they have.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace dtensor::nn {

// Pages 0, 1, ... of which each of several ranks has a range, as a split in
// granules cuts them (placement/split.h). A page that no text uses is free, and
// keeps its tokens until it is taken again: first the pages without known
// tokens, then those that are free for longest. Equal calls give equal pages.
class PagePool {
 public:
  PagePool() = default;
  // REQUIRES: pages >= 1, ranks >= 1.
  PagePool(int64_t pages, int64_t ranks);

  int64_t size() const { return std::ssize(pages_); }
  int64_t free() const;

  // Takes a free page for one text, which then uses it: of the rank behind the
  // one that has page `after`, or, if `after` is -1, behind the one that the
  // last such call began with. Ranks without a free page are passed over.
  // REQUIRES: free() > 0.
  int64_t take(int64_t after);
  // One more text uses the page, or one less.
  void use(int64_t page);
  void release(int64_t page);

  // A text's beginning, in whole pages: its number, and its last page.
  struct Beginning {
    int64_t number = 0, page = -1;
  };
  // The beginning `before` (0: an empty one) and these tokens; null if no page
  // has them.
  const Beginning* find(int64_t before,
                        const std::vector<int64_t>& tokens) const;
  // The page has these tokens from now on. Returns the beginning, with another
  // page if that has them already.
  Beginning keep(int64_t page, int64_t before, std::vector<int64_t> tokens);

 private:
  using Tokens = std::pair<int64_t, std::vector<int64_t>>;
  using Beginnings = std::map<Tokens, Beginning>;
  struct Page {
    int64_t users = 0, freed = 0;
    bool kept = false;
    Beginnings::iterator tokens = {};  // if it is kept
  };
  Page& page(int64_t i) { return pages_[static_cast<size_t>(i)]; }
  size_t rank_of(int64_t page) const;

  std::vector<Page> pages_;
  // By rank: (when it was released, page), with 0 for pages without tokens.
  std::vector<std::set<std::pair<int64_t, int64_t>>> free_;
  Beginnings beginnings_;
  int64_t releases_ = 0, numbers_ = 0;
  size_t first_ = 0;
};

}  // namespace dtensor::nn
