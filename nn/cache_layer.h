// SPDX-License-Identifier: Apache-2.0
// The part of a cache of keys and values (kv_cache.h) that a layer uses.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor::nn {

// The keys and values of one layer: [slots, heads, d], a page after the other.
// Heads are split as the queries are, and pages over an axis that splits
// sequences. Where query heads of ranks do not divide the kv heads, a head that
// several ranks use is there several times (KvHeads in ops/paged_attention.h),
// and `heads` [heads] lists the kv head of each; otherwise it is undefined.
struct CacheLayer {
  DistTensor k, v, heads;
  int64_t page = 0;
  size_t kind = 0;  // of CacheTokens::places
};

// The tokens of one step on the mesh of a layer.
struct CacheTokens {
  DistTensor ids, positions;  // [1, t]
  // The position of each token again, and the row of its text in `pages`: [t].
  // Rows and slots of padding are -1.
  DistTensor position, row;
  DistTensor wanted;  // [n], the tokens whose logits are wanted
  // Layers with different windows keep different pages.
  struct Places {
    DistTensor slot;   // [t], for the key and value of each token
    DistTensor pages;  // [texts, pages of a text]
  };
  std::vector<Places> places;
};

}  // namespace dtensor::nn
