// SPDX-License-Identifier: Apache-2.0
// One call of attention or of its gradient on this rank: which queries meet
// which keys, the ring that passes keys between ranks, and the merging of
// partial results. Private to ops.
#pragma once
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "dtensor/ops/compute.h"
#include "dtensor/ops/kernels/attention.h"
#include "dtensor/ops/op.h"
#include "dtensor/placement/region.h"

namespace dtensor::internal {

struct AttentionArgs {
  static constexpr Fields kFields = {"causal",
                                     value("scale"),
                                     "ring",
                                     "documents",
                                     value_or_zero("length"),
                                     "context",
                                     "memory_bytes",
                                     "window",
                                     value("soft_cap")};
  bool causal;
  double scale;        // 0: see scale_of()
  bool ring;           // keys stay split along the sequence
  bool documents;      // the additional inputs are ids, not a mask
  int64_t length = 0;  // this and the members below: see AttentionOptions
  int64_t context = 0, memory_bytes = 0, window = 0;
  double soft_cap = 0;
  // 1 / sqrt(d) if no scale was given; d is the size of a head.
  double scale_of(int64_t d) const {
    return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(d));
  }
};

// The rule for the inputs q, k and v, or, if `backward`, for q, k, v, out, lse
// and dout. After their shapes, `shapes` may have that of the mask, or those of
// the document ids of the queries and of the keys. In a ring, two factors stand
// for the sequence of keys: t in k and v, where the ranks split it, and u in
// the mask or the ids of the keys, where every rank has all of it.
BoundRule attention_rule(std::string_view op, const std::vector<Shape>& shapes,
                         const AttentionArgs&, bool backward);

// Throws Error unless the window and the soft cap are at least 0, and the cap
// is finite.
void check_window_and_cap(std::string_view op, int64_t window, double soft_cap);

// Returns the tensor itself if each of its rows (along the last dimension) is
// contiguous, else a contiguous copy.
Tensor with_unit_rows(const Tensor&);
// The memory and strides of a local tensor [b, s, h, d] as the kernels take
// them: with dimensions in the order [b, h, s, d]. No copy is made.
kernels::HeadsIn heads_in(const Tensor&);
kernels::HeadsOut heads_out(const Tensor&);

// The operator of rotary(), for the list of operators in attention.cc.
const Op& rotary_operator();

// The layout of the keys after `steps` steps of the ring. The ranks form the
// ring in their order along the mesh axes that split the keys: each rank has
// the part that the rank `steps` places after it had at first.
Dim passed_on(const Dim& keys, const Mesh&, size_t steps);

// The steps of the ring that are carried out. Without a window, or if other
// mesh axes split the queries than the keys, these are all steps. Otherwise
// they are step 0, and each step at which some rank has a block with keys to
// which its queries may attend. The ring skips the other steps.
std::vector<size_t> ring_steps(const Dim& queries, const Dim& keys, const Mesh&,
                               const AttentionArgs&);

// Computes the attention of this rank's queries, which are ranges of the
// sequence, to blocks of keys: only to this rank's block, or in a ring (Liu et
// al., arXiv 2310.01889) to the blocks of all ranks that share the sequence, in
// turn, except those of skipped steps (ring_steps()). Each rank sends blocks to
// the rank before it, or further back if steps are skipped. Usually, the rank's
// other thread passes a block on and receives the next one while the current
// one is computed. A rank holds at most two blocks besides its own.
class AttentionCall {
 public:
  // `fixed`: the number of inputs before a mask or ids.
  AttentionCall(Compute& c, size_t fixed);

  // Sets c.out[0] to the result, and c.out[1] to lse, the log of each query's
  // sum of exponentials, which is used to merge the results of blocks.
  void forward();
  // Sets c.out to dq, dk and dv. In a ring, the gradients of a block's keys and
  // values are sent to the block's owner as soon as they are known, and added
  // there.
  void backward();

 private:
  // Keys and values of one rank, limited to the heads that this rank uses.
  struct Block {
    size_t step = 0;  // index in the lists of Ring
    Tensor k, v;
    IntervalList keys;
  };
  struct Ring;

  const Ring& ring();
  void check_allowed(const Ring&, bool backward) const;
  void for_each_block(const std::function<void(const Block&)>&);
  // used_of() fetches the heads of k or v that this rank uses. held_of() adds
  // up the gradients of these heads on the ranks that hold the heads.
  Tensor used_of(const Tensor& x, size_t step);
  Tensor held_of(const Tensor& dx, size_t step);
  // For the rank at a coordinate: the heads of k and v that it uses, and the
  // regions of k that it holds and uses at a step.
  IntervalList used_heads(const Coord&) const;
  Region held(const Coord&, size_t step) const;
  Region used(const Coord&, size_t step) const;
  std::array<AxisMask, 4> depend(size_t step) const;

  // True if this is the ring's only block, and its keys are one range.
  bool one_block(const Block&);
  // The part of the block's range `key` to which at least one query of range
  // `query` may attend. It ends before AttentionOptions::length, if that is
  // set.
  Interval seen(size_t query, const Block&, size_t key) const;
  // The kernel's arguments for range `query` of this rank's queries and the
  // keys that seen(query, block, key) returns.
  kernels::Attention call(size_t query, const Block&, size_t key);
  void set_mask(kernels::Attention&, size_t query, Interval keys);

  Compute& c_;
  const AttentionArgs& args_;
  const int64_t heads_, kv_heads_;
  Tensor q_;
  IntervalList queries_;             // ranges of the sequence
  std::vector<int64_t> query_rows_;  // the first row of each range in q_
  std::vector<int> kv_head_;  // for each query head, its key head in a block
  Tensor mask_, key_ids_;     // with `documents`, mask_ is query ids
  Tensor may_;                // the mask made from ids
};

}  // namespace dtensor::internal
