// SPDX-License-Identifier: Apache-2.0
// The part of a cache of keys and values (kv_cache.h) that a layer uses.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor::nn {

// The keys and values of one layer: [slots, heads, d], one page after another.
// Heads are split as the query heads are, and pages over an axis that splits
// sequences. A kv head that the query heads of several ranks use may be there
// several times (KvHeads in ops/paged_attention.h). `heads` [heads] then lists
// the model's kv head of each head; otherwise it is undefined.
struct CacheLayer {
  DistTensor k, v, heads;
  int64_t page = 0;
  size_t kind = 0;  // its index in CacheTokens::places
};

// The tokens of one step (CacheStep) on the mesh of a layer, replicated.
struct CacheTokens {
  DistTensor ids, positions;  // [1, t]
  // The position of each token, and the row of its text in `pages`: [t]. They
  // and the slots are -1 for padding, for which `positions` has 0.
  DistTensor position, row;
  DistTensor wanted;  // [n], the indices of tokens whose logits are wanted
  // By CacheLayer::kind: layers with different windows have separate pages.
  struct Places {
    DistTensor slot;   // [t], for the key and value of each token
    DistTensor pages;  // [texts, pages of a text]
  };
  std::vector<Places> places;
};

}  // namespace dtensor::nn
