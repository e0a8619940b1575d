// Scaled dot-product attention, and rotary embedding.
#pragma once
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

struct AttentionOptions {
  bool causal = false;
  double scale = 0;  // 0: 1 / sqrt(d)
};

// softmax(scale q k^T + mask) v. q is [b, s, h, d], k and v [b, t, g, d] with
// g dividing h: query head i uses head i * g / h. `mask` (may be undefined)
// broadcasts to [b, h, s, t]: bool (true: may attend) or numbers to add.
// Heads may be split over any number of ranks: a rank holds its own query
// heads and the heads of k and v that these name, fetched inside.
// Scores are never held as a whole, unless the gradient of a mask of numbers or
// a second gradient is wanted.
DistTensor attention(const DistTensor& q, const DistTensor& k,
                     const DistTensor& v, const AttentionOptions& = {},
                     const DistTensor& mask = {});

// Rotates pairs (x[i], x[i + d/2]) of x [b, s, h, d] by position *
// theta^(-2i/d) (Su et al., arXiv 2104.09864, half-rotation form). Positions
// count from `offset` along s.
DistTensor rotary(const DistTensor& x, double theta = 10000,
                  int64_t offset = 0);

// For all_ops().
std::vector<const Op*> attention_ops();

}  // namespace dtensor
