// SPDX-License-Identifier: Apache-2.0
// The part of a cache of keys and values (kv_cache.h) that a layer uses.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor::nn {

// The keys k and values v of one layer: [slots, heads, d]. Each slot is for one
// token; `page` successive slots are a page. Heads are split as the query heads
// are. Pages are split over an axis that splits sequences, unless that axis
// also splits heads. If query heads of several ranks use one kv head, k and v
// may have several copies of it (KvHeads in ops/paged_attention.h). `heads`
// [heads] then has the number of the model's kv head for each head of k and v;
// otherwise it is undefined.
struct CacheLayer {
  DistTensor k, v, heads;
  int64_t page = 0;
  size_t kind = 0;  // the index in CacheTokens::places for the layer's window
};

// The tokens of one step (CacheStep in kv_cache.h), replicated over one mesh.
struct CacheTokens {
  // [1, t]: the id of each token, and its position in its text; 0 for padding.
  DistTensor ids, positions;
  // [t]: the same position, and the row of the token's text in Places::pages.
  // Both are -1 for padding.
  DistTensor position, row;
  // [n]: the indices of the tokens whose logits are wanted; 0 for padding.
  DistTensor wanted;
  // One for each CacheLayer::kind: layers with different windows have separate
  // pages.
  struct Places {
    DistTensor slot;   // [t], where each token's k and v go; -1 for padding
    DistTensor pages;  // [texts, pages of a text], numbers of pages; -1: none
  };
  std::vector<Places> places;
};

}  // namespace dtensor::nn
