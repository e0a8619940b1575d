// SPDX-License-Identifier: Apache-2.0
// Connectionist temporal classification (Graves et al., ICML 2006).
#include <limits>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/loss_parts.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// Stands for log(0). It is finite, so that no difference of two is NaN.
constexpr double kNever = -1e30;

// y[..., i] = x[..., i - by], or kNever if there is none.
DistTensor shifted(const DistTensor& x, int64_t by) {
  return pad(x, {by, -by}, kNever);
}

}  // namespace

DistTensor ctc_loss(const DistTensor& log_probs, const DistTensor& targets,
                    const DistTensor& input_lengths,
                    const DistTensor& target_lengths, int64_t blank,
                    Reduction reduction, bool zero_infinity) {
  constexpr std::string_view op = "ctc_loss";
  check_defined(op, {log_probs, targets, input_lengths, target_lengths});
  const int64_t n = targets.ndim() == 2 ? targets.size(0) : 0;
  DT_CHECK(
      log_probs.ndim() == 3 && targets.ndim() == 2 && log_probs.size(0) > 0 &&
          log_probs.size(1) == n && input_lengths.shape() == Shape{n} &&
          target_lengths.shape() == Shape{n},
      op,
      "log-probabilities {}, targets {} and lengths {} and {} do not fit; "
      "pass [t, n, classes], [n, s], [n] and [n]",
      log_probs.spec()->to_string(), targets.spec()->to_string(),
      input_lengths.spec()->to_string(), target_lengths.spec()->to_string());
  DT_CHECK(is_float(log_probs.dtype()) && !is_float(targets.dtype()), op,
           "log-probabilities are {} and targets {}; pass floats and integers",
           name(log_probs.dtype()), name(targets.dtype()));
  DT_CHECK(blank >= 0 && blank < log_probs.size(2), op,
           "blank is {}, and there are {} classes; write one of them", blank,
           log_probs.size(2));
  const int64_t time = log_probs.size(0), states = 2 * targets.size(1) + 1;
  const Mesh& mesh = targets.mesh();
  // The states of a text a b are: blank a blank b blank.
  const DistTensor blanks = full_like(targets, static_cast<double>(blank));
  const DistTensor pairs = flatten(stack({blanks, targets}, 2), 1);
  const DistTensor end =
      full({n, 1}, static_cast<double>(blank), mesh, {}, targets.dtype());
  const DistTensor ids = cast(cat({pairs, end}, 1), DType::kI64);
  // If the classes are split, this is a sum over the ranks that hold them.
  // kNever is not finite in f16.
  const DistTensor wide = log_probs.dtype() == DType::kF16
                              ? cast(log_probs, DType::kF32)
                              : log_probs;
  const DistTensor emitted =
      gather(wide, 2, expand(unsqueeze(ids, 0), {time, n, states}));
  // A path may leave out the blank between two different labels.
  const DistTensor before = pad(ids, {2, -2}, static_cast<double>(blank));
  const DistTensor may_skip = logical_and(ne(ids, blank), ne(ids, before));
  const DistTensor state = arange(states, mesh);
  const DistTensor lengths = unsqueeze(input_lengths, 1);
  // Without input, there is the empty text, with probability 1.
  const DistTensor start = where(lt(state, 2), select(emitted, 0, 0), kNever);
  const DistTensor empty = where(eq(state, 0), zeros_like(start), kNever);
  DistTensor alpha = where(gt(lengths, 0), start, empty);
  for (int64_t t = 1; t < time; ++t) {
    const DistTensor skipped = where(may_skip, shifted(alpha, 2), kNever);
    const DistTensor next =
        add(logaddexp(logaddexp(alpha, shifted(alpha, 1)), skipped),
            select(emitted, 0, t));
    alpha = where(gt(lengths, t), next, alpha);
  }
  // A path ends in the last label or in the blank behind it.
  const DistTensor last = unsqueeze(mul(target_lengths, 2), 1);
  const DistTensor ends = logical_or(eq(state, last), eq(state, sub(last, 1)));
  const DistTensor likelihood = logsumexp(where(ends, alpha, kNever), {1});
  const DistTensor possible = gt(likelihood, kNever / 2);
  const DistTensor loss =
      where(possible, neg(likelihood),
            zero_infinity ? 0 : std::numeric_limits<double>::infinity());
  if (reduction != Reduction::kMean) return reduced(loss, reduction);
  return mean(div(loss, clamp_min(cast(target_lengths, loss.dtype()), 1)));
}

}  // namespace dtensor
