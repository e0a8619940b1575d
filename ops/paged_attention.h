// SPDX-License-Identifier: Apache-2.0
// Attention of new queries to the keys and values of a cache, for serving.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

struct PagedAttentionOptions {
  int64_t kv_heads = 1;  // of the model; divides the heads of q
  int64_t page = 16;     // slots in a page
  double scale = 0;      // 0: 1 / sqrt(d)
  // If not 0: a query attends only to the last `window` positions up to its
  // own.
  int64_t window = 0;
  // If not 0: a score becomes soft_cap * tanh(score / soft_cap).
  double soft_cap = 0;
};

// softmax(scale * q k^T) v for t queries of any requests, each with its own
// keys. q and the result are [t, h, d]; k and v are [slots, heads, d], where
// `slots` is a multiple of the page. The other tensors are i32 or i64:
//   pages     [requests, m]  the pages of each request, in the order of its
//                            positions; requests may share pages. -1: no page,
//                            so that its positions have no keys. m pages have
//                            fewer than 2^31 positions
//   row       [t]  the request of each query; -1: none, and the result is zero
//   position  [t]  the query's position in its request. The query attends to
//                  the positions up to it, whose keys copy_into() has written.
//                  -1 if row is -1
//
// k and v are never moved. They may be whole, have heads split as kv_heads_of()
// says, have slots split in whole pages over other axes, or both. A rank with
// some of the pages attends to the keys of these pages alone. The result is
// then a partial sum over the axes of the slots, and ranks exchange one
// log-sum-exp for each query and head. Apart from that, q is sent if its heads
// are not split like those of k, and the index tensors if they are not laid out
// as the rank needs them. The layouts do not depend on the values in `pages`,
// `row` and `position`. Put the queries of a request next to each other, in any
// order: they then share reads of its keys.
//
// Every rank of the mesh calls it. Throws Error if shapes, types or layouts do
// not fit, or while autograd records q, k or v: there is no gradient. If a
// page, row or position does not exist, throws Error at once on the CPU, and
// later on other devices (data_check.h).
DistTensor paged_attention(const DistTensor& q, const DistTensor& k,
                           const DistTensor& v, const DistTensor& pages,
                           const DistTensor& row, const DistTensor& position,
                           const PagedAttentionOptions&);

// The heads of a cache for paged_attention().
struct KvHeads {
  // Head i of the cache is head heads[i] of the model's k and v.
  std::vector<int64_t> heads;
  Dim dim;  // the layout of the cache's heads
};

// The heads of a cache for `heads` query heads that the Split divides among
// ranks. Each rank holds the heads of k and v that its query heads use. If
// several ranks need the same head, the cache has it several times: with 6
// query heads and 2 of k and v, three ranks hold heads {0}, {0, 1} and {1}. If
// no two ranks need the same head, the heads are 0, 1, ... kv_heads - 1. Throws
// Error if kv_heads does not divide `heads`.
KvHeads kv_heads_of(int64_t heads, int64_t kv_heads, const Split&, const Mesh&);

}  // namespace dtensor
