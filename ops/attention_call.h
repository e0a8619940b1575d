// One call of attention or of its gradient on this rank: which queries meet
// which keys, the ring that brings the keys of other ranks, and the merging of
// what is computed of one block after the other. Private to ops.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "dtensor/ops/compute.h"
#include "dtensor/ops/op.h"
#include "dtensor/placement/region.h"

namespace dtensor::internal {

struct AttentionArgs {
  static constexpr Fields kFields = {"causal", value("scale"), "ring",
                                     "documents"};
  bool causal;
  double scale;    // 0: see scale_of()
  bool ring;       // keys may stay split along the sequence
  bool documents;  // what follows the other inputs are ids, not a mask
  // For queries of d numbers: 1 / sqrt(d) unless there is another.
  double scale_of(int64_t d) const {
    return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(d));
  }
};

// The rule for q, k, v and, of the gradient, out, lse, dout; and a mask or the
// ids of queries and of keys, if there are more shapes. In a ring, t is the
// keys' dimension as it lies on the ranks, and u that of what every rank has
// for all of them.
BoundRule attention_rule(std::string_view op, const std::vector<Shape>& shapes,
                         const AttentionArgs&, bool backward);

// Its last stride is 1.
Tensor with_unit_rows(const Tensor&);
// Of a local [b, s, h, d], in the kernels' order [b, h, s, d].
void set_strides(const Tensor&, int64_t (&strides)[4]);

// For attention_ops().
const Op& rotary_operator();

// Where keys are after so many steps of the ring: every rank has what the rank
// so many further along their axes had.
Dim passed_on(const Dim& keys, const Mesh&, size_t steps);

// The queries that this rank holds, in ranges of the sequence, against blocks
// of keys: its own, or (in a ring; Liu et al., arXiv 2310.01889) one after the
// other those of all ranks that share the sequence. While a block is computed
// on, the rank's other thread passes it on and receives the next: every rank
// sends to the one before it. At most two blocks are held besides its own.
class AttentionCall {
 public:
  // `fixed` inputs come before a mask or ids.
  AttentionCall(Compute& c, size_t fixed);

  // Computes c.out[0] = out and c.out[1] = lse. What one block gives is merged
  // with what came before by its log of the sum of exponentials.
  void forward();
  // Computes dq, dk, dv. In a ring, what a block's keys and values get from
  // this rank's queries is sent home as soon as it is known, and added there.
  void backward();

 private:
  // Keys and values of one rank: the heads that this rank's queries use.
  struct Block {
    size_t step = 0;  // whose: of the rank that is so many further in the ring
    Tensor k, v;
    IntervalList keys;
  };
  struct Ring;

  const Ring& ring();
  void check_allowed(const Ring&, bool backward) const;
  void for_each_block(const std::function<void(const Block&)>&);
  // The heads of k, v that are used, of those that ranks hold: see used().
  Tensor used_of(const Tensor& x, size_t step);
  Tensor held_of(const Tensor& dx, size_t step);
  IntervalList used_heads(const Coord&) const;
  Region held(const Coord&, size_t step) const;
  Region used(const Coord&, size_t step) const;

  bool one_block(const Block&);  // one range of it, and no other
  // Is there a query of this range that may attend to one of these keys?
  bool meet(size_t query, Interval keys) const;
  // The kernel's arguments for one range of queries and one of keys, at these
  // places among this rank's and the block's.
  kernels::Attention call(size_t query, const Block&, size_t key);
  void set_mask(kernels::Attention&, size_t query, Interval keys);

  Compute& c_;
  const AttentionArgs& args_;
  const int64_t heads_, kv_heads_;
  Tensor q_;
  IntervalList queries_;             // of the sequence
  std::vector<int64_t> query_rows_;  // where each lies in q_
  std::vector<int> kv_head_;         // that each query head uses, in a block
  Tensor mask_, key_ids_;            // mask_: or the queries' ids
  Tensor may_;                       // the mask made of them
};

}  // namespace dtensor::internal
