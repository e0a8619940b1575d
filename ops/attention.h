// Scaled dot-product attention, and rotary embedding.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

// How attention is computed where queries, keys and values are split along the
// sequence over the same mesh axes (context parallelism).
enum class ContextParallel : uint8_t {
  // The cheaper one under the rank's prices, of forward and backward pass
  // together: what a ring sends is hidden behind its computation, and what the
  // all-to-all sends is not; a rank without a head has nothing to do. Where one
  // of them holds more than AttentionOptions::memory_bytes: the one that holds
  // less.
  kAuto,
  // Blocks of keys and values travel from rank to rank (Liu et al., arXiv
  // 2310.01889): of p ranks each receives p-1 blocks of k and of v forward; the
  // same again, and as much of their gradients, backward. Any number of heads.
  kRing,
  // Heads are split instead while it is computed (DeepSpeed Ulysses, Jacobs et
  // al., arXiv 2309.14509): q, k, v and the result each change places once.
  kAllToAll
};
// "auto", "ring" or "all-to-all"; throws Error for another text.
ContextParallel parse_context(std::string_view);
std::string_view name(ContextParallel);

struct AttentionOptions {
  bool causal = false;
  double scale = 0;  // 0: 1 / sqrt(d)
  ContextParallel context = ContextParallel::kAuto;
  // Of kAuto: what a rank may hold of the call, as context_bytes() counts it.
  // 0: any.
  int64_t memory_bytes = 0;
  // Integers [b, s] of self-attention on packed sequences, may be undefined:
  // queries attend to the keys of their own document alone.
  DistTensor documents = {};
};

// softmax(scale q k^T + mask) v. q is [b, s, h, d], k and v [b, t, g, d] with
// g dividing h: query head i uses head i * g / h. `mask` (may be undefined)
// broadcasts to [b, h, s, t]: bool (true: may attend) or numbers to add. Throws
// Error for a mask and documents at once, or documents that do not fit.
// Heads may be split over any number of ranks: a rank holds its own query
// heads and the heads of k and v that these name, fetched inside. The sequence
// may be split in any way, a causal one best in zig-zag order
// (placement/owned.h): positions are those in the whole sequence.
// Scores are never held as a whole, unless the gradient of a mask of numbers or
// a second gradient is wanted.
DistTensor attention(const DistTensor& q, const DistTensor& k,
                     const DistTensor& v, const AttentionOptions& = {},
                     const DistTensor& mask = {});

// What a rank holds at most of such a call and of its gradient beyond q, k and
// v, on the rank that has the most of them; 0 where they are not split along
// the sequence over the same axes, or no [b, s, heads, d].
//   kRing        the result, its cotangent and three gradients; two blocks of
//                keys and values, and two of their gradients; and the sums of
//                the gradients, of those of keys and values twice
//   kAllToAll    q, k, v, the result and the gradients of all four with heads
//                split instead, of the whole sequence: as much as in their own
//                layouts where heads suffice for all ranks (gradients of keys
//                and values as their queries' ranks compute them, too); and the
//                result and its cotangent
// kAuto: that of the one that is chosen.
int64_t context_bytes(const Spec* q, const Spec* k, const Spec* v,
                      const AttentionOptions&);

// Rotates pairs (x[i], x[i + d/2]) of x [b, s, h, d] by position *
// theta^(-2i/d) (Su et al., arXiv 2104.09864, half-rotation form). Positions
// count from `offset` along s.
DistTensor rotary(const DistTensor& x, double theta = 10000,
                  int64_t offset = 0);

// For all_ops().
std::vector<const Op*> attention_ops();

}  // namespace dtensor
