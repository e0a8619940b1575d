// Cross entropy. The logits may be split along the vocabulary; a rank never
// holds more than its own columns.
#pragma once
#include <string_view>

#include "dtensor/dist_tensor.h"

namespace dtensor {

enum class Reduction { kNone, kMean, kSum };

// -log softmax(logits)[target] for logits [..., v] and targets [...] (i32 or
// i64), in f32 (in f64 for f64 logits). Targets equal to ignore_index are
// skipped, also in the mean. label_smoothing e gives the target the weight 1-e
// and spreads e evenly over all classes. Every rank of the mesh calls it. A
// target outside of [0, v) throws Error on every rank; if targets are split,
// the ranks first exchange 16 bytes to find out.
DistTensor cross_entropy(const DistTensor& logits, const DistTensor& targets,
                         Reduction = Reduction::kMean,
                         int64_t ignore_index = -100,
                         double label_smoothing = 0);

}  // namespace dtensor
