// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/page_pool.h"

namespace dtensor::nn {

PagePool::PagePool(int64_t pages, int64_t ranks)
    : pages_(static_cast<size_t>(pages)), free_(static_cast<size_t>(ranks)) {
  for (int64_t p = 0; p < pages; ++p) free_[rank_of(p)].emplace(0, p);
}

int64_t PagePool::free() const {
  int64_t n = 0;
  for (const auto& of_rank : free_) n += std::ssize(of_rank);
  return n;
}

// The rank that has this page. Rank i of n has the pages from floor(i * size()
// / n) up to, but not including, floor((i + 1) * size() / n).
size_t PagePool::rank_of(int64_t page) const {
  return static_cast<size_t>(((page + 1) * std::ssize(free_) - 1) / size());
}

int64_t PagePool::take(int64_t after) {
  size_t rank = after < 0 ? first_++ : rank_of(after) + 1;
  while (free_[rank % free_.size()].empty()) ++rank;
  auto& from = free_[rank % free_.size()];
  const int64_t taken = from.begin()->second;
  from.erase(from.begin());
  Page& p = page(taken);
  if (p.kept) beginnings_.erase(p.tokens);
  p = {.users = 1};
  return taken;
}

void PagePool::use(int64_t which) {
  Page& p = page(which);
  if (p.users++ == 0) free_[rank_of(which)].erase({p.freed, which});
}

void PagePool::release(int64_t which) {
  Page& p = page(which);
  if (--p.users > 0) return;
  p.freed = p.kept ? ++releases_ : 0;
  free_[rank_of(which)].emplace(p.freed, which);
}

const PagePool::Beginning* PagePool::find(
    int64_t before, const std::vector<int64_t>& tokens) const {
  const auto found = beginnings_.find({before, tokens});
  return found == beginnings_.end() ? nullptr : &found->second;
}

PagePool::Beginning PagePool::keep(int64_t which, int64_t before,
                                   std::vector<int64_t> tokens) {
  const auto [at, is_new] =
      beginnings_.try_emplace({before, std::move(tokens)});
  if (is_new) {
    at->second = {++numbers_, which};
    page(which).kept = true;
    page(which).tokens = at;
  }
  return at->second;
}

}  // namespace dtensor::nn
