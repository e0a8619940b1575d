// SPDX-License-Identifier: Apache-2.0
// A mixture of experts: each token passes through the few feed-forward networks
// that a router chose for it (Shazeer et al., arXiv 1701.06538).
#pragma once
#include <string_view>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// Returns y[t] = sum_j weights[t, j] * f(ids[t, j], x[t]). Expert e is f(e, x)
// = down[e] (silu(gate[e] x) * (up[e] x)), the SwiGLU of Shazeer (arXiv
// 2002.05202).
//   x [tokens, hidden]; ids, i64, and weights [tokens, k]
//   gate and up [experts, ffn, hidden]; down [experts, hidden, ffn]
// Ids outside of [0, experts) choose no expert and add nothing.
//
// If a mesh axis splits the experts, it also splits the tokens, and tokens are
// sent to their experts. The ranks first exchange their token counts per expert
// (8 bytes for each count; no communication event). Then one row of x is
// sent for each pair (token, choice) whose expert is on another rank, and the
// results return. The backward pass sends rows of y's gradient, and returns
// rows of x's gradient. In both passes, a rank receives this many rows of
// `hidden` elements:
//   to the experts:  the rows from other ranks for this rank's experts
//   back:            the rows of this rank's tokens with experts elsewhere
// There is no capacity limit: tokens are neither dropped nor padded. A rank may
// have no experts, or no tokens. If an axis splits ffn, the result is a partial
// sum.
//
// The tokens are sequences of `sequence` tokens, one after another; 0: they are
// one sequence. In a reproducible run, ranks may split the tokens between
// sequences, and in a sequence at multiples of 128.
//
// The sizes of these exchanges depend on the data. A dry run assumes that every
// rank's choices are spread evenly over the experts; in a run, an event's
// predicted bytes follow from the actual counts. Under create_graph, the
// gradient passes every token through every expert. Every rank of the mesh
// calls it. Throws Error if shapes or types do not fit.
DistTensor experts(const DistTensor& x, const DistTensor& ids,
                   const DistTensor& weights, const DistTensor& gate,
                   const DistTensor& up, const DistTensor& down,
                   int64_t sequence = 0);

// Whether the bytes of this operator's events depend on the data, as for
// experts() and sort(). Such bytes differ between steps, and from a dry run.
bool data_decide_bytes(std::string_view op);

}  // namespace dtensor
