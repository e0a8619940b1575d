// A mixture of experts: every token through the few feed-forward networks that
// a router chose for it (Shazeer et al., arXiv 1701.06538).
#pragma once
#include <string_view>
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

// y[t] = sum over j of weights[t, j] expert(ids[t, j])(x[t]), where expert e is
// down[e] (silu(gate[e] x) * (up[e] x)), the SwiGLU of Shazeer (arXiv
// 2002.05202).
//   x [tokens, hidden]; ids, i64, and weights [tokens, k]
//   gate and up [experts, ffn, hidden]; down [experts, hidden, ffn]
// An id outside of [0, experts) is that of no expert and adds nothing.
//
// Experts that are split over a mesh axis have their tokens sent to them: the
// axis splits the tokens too, its ranks tell each other how many tokens they
// have for each expert (8 bytes a number, which no event counts), and a row of
// x travels for each (token, choice) whose expert is elsewhere. The results
// travel back; in the backward pass the rows of y's gradient go and those of
// x's come: four exchanges, each of as many bytes to a rank as
//   forward there, backward there: (rows for its experts from elsewhere)
//   forward back, backward back:   (rows of its tokens with experts elsewhere)
// times hidden times the size of an element. There is no capacity: no token is
// dropped and none is padded. Ranks may be without experts, and without tokens.
// An axis that splits ffn leaves a partial sum.
//
// The data decide these sizes. A dry run supposes that every rank's choices are
// spread evenly over the experts; an event of a run predicts from the counts.
// A gradient with create_graph runs every token through every expert. Throws
// Error when shapes or types do not fit.
DistTensor experts(const DistTensor& x, const DistTensor& ids,
                   const DistTensor& weights, const DistTensor& gate,
                   const DistTensor& up, const DistTensor& down);

// Do data decide the bytes that events of this operator have, so that they
// differ from one step to the next and from a dry run?
bool data_decide_bytes(std::string_view op);

// For all_ops().
std::vector<const Op*> experts_ops();

}  // namespace dtensor
