// SPDX-License-Identifier: Apache-2.0
// Attention to keys and values in pages of a cache.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// Maps a rank's query heads to its heads of k and v; ranks may split both.
// Local query head h is head g = first_head + h of all `heads`. It uses head
// (g * kv_heads / heads) of all `kv_heads`, whose local number is kv_head(h).
struct HeadGroups {
  int64_t heads = 1, kv_heads = 1, first_head = 0, first_kv_head = 0;
  DT_HD int64_t kv_head(int64_t h) const {
    return (first_head + h) * kv_heads / heads - first_kv_head;
  }
};

// Query i belongs to request row[i]; -1: to none, and its result is zero. It
// attends to the keys of its request at positions p with position[i] - window <
// p <= position[i]; if window is 0, to all up to position[i]. The key at p is
// in slot (pages[row[i], p / page] - first_page) * page + p % page. If that is
// not in [0, slots), the key does not exist. A query without keys gets zeros.
//
// q and out are [1, hq, t, d]; k and v are [1, hkv, slots, d]. A score is x =
// scale * (q . k), or soft_cap * tanh(x / soft_cap) if soft_cap is not 0. lse
// [hq, t], of type `stat`, gets the log of each query's sum of exp(score), -inf
// without keys. It may be null. Takes floats.
struct PagedAttention {
  DType type = DType::kF32;
  int64_t t = 0, hq = 0, hkv = 0, slots = 0, d = 0;
  HeadsIn q = {}, k = {}, v = {};
  HeadsOut out = {};
  void* lse = nullptr;
  HeadGroups groups = {};
  int64_t page = 1, first_page = 0, requests = 0, pages_each = 0;
  const int64_t* pages = nullptr;     // [requests, pages_each]
  const int64_t* row = nullptr;       // [t]
  const int64_t* position = nullptr;  // [t]
  double scale = 1, soft_cap = 0;
  int64_t window = 0;
  // Whether sums are those that docs/reproducible.md defines, on the CPU.
  bool by_blocks = false;

  // The positions that query i attends to: [begin, end).
  DT_HD int64_t end(int64_t i) const {
    if (row[i] < 0 || row[i] >= requests || position[i] < 0) return 0;
    const int64_t most = pages_each * page;
    return position[i] < most ? position[i] + 1 : most;
  }
  DT_HD int64_t begin(int64_t i) const {
    const int64_t first = position[i] + 1 - window;
    return window > 0 && first > 0 ? first : 0;
  }
  // The slot of position p of a request; -1 if its key does not exist.
  DT_HD int64_t slot(int64_t request, int64_t p) const {
    const int64_t at = pages[request * pages_each + p / page] - first_page;
    return at < 0 || at >= slots / page ? -1 : at * page + p % page;
  }
};

}  // namespace dtensor::kernels
