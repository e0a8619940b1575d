// SPDX-License-Identifier: Apache-2.0
// The pages of a cache of keys and values: how many texts use each page, and
// the tokens that it holds.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace dtensor::nn {

// Hands out pages 0, 1, ... Each of several ranks has a range of them: its part
// of a balanced split (placement/split.h). A page that no text uses is free,
// and keeps its tokens until it is taken again. Of a rank's free pages, those
// without known tokens are taken first, then the one that was released first.
// Equal calls give equal pages, so ranks that make the same calls need not
// communicate.
class PagePool {
 public:
  PagePool() = default;
  // REQUIRES: pages >= 1, ranks >= 1.
  PagePool(int64_t pages, int64_t ranks);

  int64_t size() const { return std::ssize(pages_); }
  int64_t free() const;

  // Takes a free page for one text, which then uses it. The first choice is the
  // rank after the one that has page `after`. If `after` is -1, it is rank 0 in
  // the first such call, and the next rank in each further one. Ranks without a
  // free page are skipped. REQUIRES: free() > 0.
  int64_t take(int64_t after);
  // Records that one more text uses the page.
  void use(int64_t page);
  // Records that one text no longer uses the page.
  void release(int64_t page);

  // The beginning of a text, in whole pages: a number that identifies it, and
  // its last page.
  struct Beginning {
    int64_t number = 0, page = -1;
  };
  // Finds the beginning that extends the one with number `before` (0 or less:
  // an empty one) by a page with these tokens. Null if no page holds it.
  const Beginning* find(int64_t before,
                        const std::vector<int64_t>& tokens) const;
  // Records that the page holds these tokens, which extend `before`. Returns
  // the beginning that they form. If another page holds it already, nothing is
  // recorded, and the result names that page.
  Beginning keep(int64_t page, int64_t before, std::vector<int64_t> tokens);

 private:
  using Tokens = std::pair<int64_t, std::vector<int64_t>>;
  using Beginnings = std::map<Tokens, Beginning>;
  struct Page {
    int64_t users = 0, freed = 0;
    bool kept = false;
    Beginnings::iterator tokens = {};  // in beginnings_, if `kept`
  };
  Page& page(int64_t i) { return pages_[static_cast<size_t>(i)]; }
  size_t rank_of(int64_t page) const;

  std::vector<Page> pages_;
  // By rank: the free pages, as (Page::freed, page). `freed` is 0 for pages
  // without tokens, and otherwise the number of the release.
  std::vector<std::set<std::pair<int64_t, int64_t>>> free_;
  Beginnings beginnings_;
  int64_t releases_ = 0, numbers_ = 0;
  size_t first_ = 0;
};

}  // namespace dtensor::nn
