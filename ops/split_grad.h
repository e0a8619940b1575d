// Gradients that come in several goes: what others wait for first, and sums
// over micro-batches settled in the end. What a pipeline is made of
// (nn/pipeline.h).
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "dtensor/ops/grad.h"
#include "dtensor/split_backward.h"

namespace dtensor {

// d output / d inputs in two parts: those of `now`, and all that they have in
// common with those of `later`, at once; then the products that only one of
// `later` needs (dtensor/split_backward.h). The graph is let go of. Collective,
// as grad() is.
class SplitGrad {
 public:
  // `cotangent` as GradOptions::cotangent. Throws Error as grad() does.
  SplitGrad(const DistTensor& output, const DistTensor& cotangent,
            std::vector<DistTensor> now, std::vector<DistTensor> later);
  // Of several outputs, as grad().
  SplitGrad(const std::vector<DistTensor>& outputs,
            const std::vector<DistTensor>& cotangents,
            std::vector<DistTensor> now, std::vector<DistTensor> later);
  // In the layouts that grad() gives them.
  const std::vector<DistTensor>& now() const { return now_; }
  // As grad() gives them with these options, of which cotangent, create_graph
  // and release_graph count for nothing: kept partial unless told otherwise.
  // Once; throws Error the second time.
  std::vector<DistTensor> later(GradOptions = {.keep_partial = true});

 private:
  std::unique_ptr<SplitBackward> pass_;
  std::vector<DistTensor> inputs_, now_;
};

// Gradients that were kept partial (undefined where there is none), one for
// each input, in the layouts that grad() gives them, all in one exchange; sent
// as GradOptions::wire_dtype says. Those that nobody else holds are reduced
// where they lie: move them here. Collective.
std::vector<DistTensor> settle(const std::vector<DistTensor>& inputs,
                               std::vector<DistTensor> gradients,
                               std::optional<DType> wire_dtype = {});

}  // namespace dtensor
