// Cross entropy of logits that may be split along the vocabulary: a rank
// never holds more than its own columns.
#pragma once
#include <string_view>
#include <vector>

#include "dtensor/ops/op.h"

namespace dtensor {

enum class Reduction { kNone, kMean, kSum };

// -log softmax(logits)[target] for logits [..., v] and targets [...] (i32 or
// i64), in f32 (f64 for f64 logits). Targets equal to ignore_index count for
// nothing, also in the mean. label_smoothing e mixes (1-e) of the target with
// e / v of every class. A target that is no class is an Error on every rank,
// whoever holds it: where targets are split, the ranks exchange 16 bytes first.
DistTensor cross_entropy(const DistTensor& logits, const DistTensor& targets,
                         Reduction = Reduction::kMean,
                         int64_t ignore_index = -100,
                         double label_smoothing = 0);

// For all_ops().
std::vector<const Op*> cross_entropy_ops();

}  // namespace dtensor
