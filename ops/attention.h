// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention, and rotary embedding.
#pragma once
#include <cstdint>
#include <string_view>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// How attention is computed if queries, keys and values are split along the
// sequence over the same mesh axes (context parallelism).
enum class ContextParallel : uint8_t {
  // The cheaper of kRing and kAllToAll under the rank's cost table, for the
  // forward and backward pass together. A ring sends while it computes. An
  // all-to-all does not, and with fewer heads than ranks some ranks idle. If
  // either exceeds AttentionOptions::memory_bytes, takes the one that needs
  // less memory.
  kAuto,
  // Blocks of keys and values go around the ranks (Liu et al., arXiv
  // 2310.01889). Each of p ranks receives p-1 blocks of k and of v in the
  // forward pass. In the backward pass it receives them again, and as many
  // blocks of their gradients. Works for any number of heads.
  kRing,
  // Heads are split instead of the sequence during the computation (DeepSpeed
  // Ulysses, Jacobs et al., arXiv 2309.14509). q, k, v and the result are each
  // redistributed once.
  kAllToAll
};
// Parses "auto", "ring" or "all-to-all"; throws Error for other text.
ContextParallel parse_context(std::string_view);
std::string_view name(ContextParallel);

struct AttentionOptions {
  bool causal = false;
  double scale = 0;  // 0: 1 / sqrt(d)
  ContextParallel context = ContextParallel::kAuto;
  // For kAuto: the bytes that a rank may hold, as context_bytes() counts them.
  // 0: no limit.
  int64_t memory_bytes = 0;
  // If not 0, only the first `length` keys are used: k and v are caches that
  // are not full yet (copy_into() in view.h). The s queries are at the last of
  // these positions: query i is at position length - s + i. The layouts are
  // chosen once for all lengths. Only the gradient reads k and v from `length`
  // on, and needs finite numbers there. Not together with `documents`.
  int64_t length = 0;
  // Document ids [b, s] (i32 or i64) for self-attention on packed sequences: a
  // query attends only to keys with the same id. May be undefined.
  DistTensor documents = {};
  // If not 0, a query at position p attends only to keys in (p - window, p], as
  // with the sliding_window of Mistral and Gemma 2. Only with `causal`. The
  // time of a call is then proportional to `window`. A ring skips blocks that
  // no rank's queries attend to, if the same axes split queries and keys.
  int64_t window = 0;
  // If not 0, a score s becomes soft_cap * tanh(s / soft_cap) before the mask
  // is added (Gemma 2's attn_logit_softcapping).
  double soft_cap = 0;
};

// Computes softmax(scale * q k^T + mask) v. q is [b, s, h, d]; k and v are [b,
// t, g, d], where g divides h; query head i uses head floor(i * g / h) of k and
// v. `mask` (may be undefined) broadcasts to [b, h, s, t]: bools (true: may
// attend) or numbers of q's type that are added. Every rank of the mesh calls
// it. Throws Error if shapes, types or options do not fit, or if both a mask
// and documents are given.
//
// Heads may be split over any number of ranks: a rank fetches the heads of k
// and v that its query heads use. The sequence may be split in any way; for
// causal attention, zig-zag order (placement/owned.h) balances the work.
// Options count positions in the whole sequence, not in a rank's part. The full
// matrix of scores is stored only by the gradient, and only in three cases:
// under create_graph, for the gradient of a mask of numbers, and with
// AttentionOptions::length.
DistTensor attention(const DistTensor& q, const DistTensor& k,
                     const DistTensor& v, const AttentionOptions& = {},
                     const DistTensor& mask = {});

// attention() of torch's [b, heads, s, d], with a result of that shape.
DistTensor scaled_dot_product_attention(const DistTensor& q,
                                        const DistTensor& k,
                                        const DistTensor& v,
                                        const DistTensor& mask = {},
                                        const AttentionOptions& = {});

// The bytes that attention() and its gradient need beyond q, k and v, on the
// rank that needs most. 0 unless some mesh axis splits both q and k along the
// sequence, or if q, k or v is not [b, s, heads, d]. Counts these tensors:
//   kRing        the result, its cotangent, and the gradients of q, k and v;
//                two received blocks of k, of v and of each of their gradients;
//                sums of gradients: one for q, two for k and two for v
//   kAllToAll    in the layout that splits the heads instead of the sequence:
//                q, k, v, the result, the gradients of these four, and those of
//                k and v before their reduction. (In this layout, a tensor is
//                as large as in its own if there are enough heads for all
//                ranks.) In their own layouts: the result and its cotangent.
//   kAuto        those of the algorithm that is chosen
int64_t context_bytes(const Spec* q, const Spec* k, const Spec* v,
                      const AttentionOptions&);

// The angles of a rotary embedding, under the names that checkpoints give them.
struct Rope {
  double theta = 10000;
  // Only the first `dims` numbers of each head are rotated; the others stay as
  // they are. Must be even. 0 rotates all numbers.
  int64_t dims = 0;
  // If not 0, `factor` divides all frequencies (linear scaling). But if
  // original_positions is not 0 either, the scaling is that of "llama3" in
  // transformers: it depends on how many turns a frequency makes in
  // original_positions positions. With fewer than low_freq_factor turns, the
  // frequency is divided by `factor`; with more than high_freq_factor turns, it
  // stays; those in between are interpolated.
  double factor = 0, low_freq_factor = 0, high_freq_factor = 0;
  int64_t original_positions = 0;
};

// Rotary embedding (Su et al., arXiv 2104.09864, half-rotation form): rotates
// the pairs (x[i], x[i + dims/2]) of each head of x [b, s, h, d] by
// position * theta^(-2i/dims), scaled as Rope says. Positions start at `offset`
// and run along s, or are given as `positions` [b, s], i32 or i64. Every rank
// of the mesh calls it. Throws Error if d or dims is odd, if dims is more than
// d, or if the scaling is incomplete.
DistTensor rotary(const DistTensor& x, const Rope&, int64_t offset = 0);
DistTensor rotary(const DistTensor& x, const Rope&,
                  const DistTensor& positions);
inline DistTensor rotary(const DistTensor& x, double theta = 10000,
                         int64_t offset = 0) {
  return rotary(x, Rope{.theta = theta}, offset);
}

// The number of (query, key) pairs that an attention head computes for these
// queries and keys of one sequence. If `causal`, query i meets only keys j <=
// i. A `window` that is not 0 then also excludes keys j <= i - window.
int64_t score_pairs(const IntervalList& queries, const IntervalList& keys,
                    bool causal, int64_t window = 0);

}  // namespace dtensor
