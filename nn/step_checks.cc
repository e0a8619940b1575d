// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/step_checks.h"

#include <algorithm>

#include "dtensor/ops/experts.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {
namespace {

int64_t received(std::span<const CommEvent> events) {
  int64_t sum = 0;
  for (const CommEvent& e : events)
    if (!data_decide_bytes(e.op)) sum += e.counted;
  return sum;
}

}  // namespace

void check_agreement(std::span<const CommRow> predicted,
                     std::span<const CommRow> ran) {
  DT_CHECK(predicted.size() == ran.size(), "train",
           "the number of kinds of collectives is {} in the prediction, but {} "
           "in the record; predict the training that runs, let it run at least "
           "one step, and set check_bytes; if all is so, report this as an "
           "error in dtensor",
           predicted.size(), ran.size());
  const auto same_kind = [](const CommRow& p, const CommRow& r) {
    return p.axis == r.axis && p.kind == r.kind && p.op == r.op &&
           p.phase == r.phase;
  };
  for (size_t i = 0; i < ran.size(); ++i) {
    const CommRow& r = ran[i];
    // Collectives of a rank's second thread (of a pipeline, for example) may be
    // recorded later than predicted, so rows are not matched by position.
    const auto found =
        std::find_if(predicted.begin(), predicted.end(),
                     [&](const CommRow& p) { return same_kind(p, r); });
    const CommRow p = found == predicted.end() ? CommRow() : *found;
    DT_CHECK(p.count == r.count &&
                 (p.predicted == r.predicted || data_decide_bytes(r.op)),
             "train",
             "{} x {} on {} for {} ({}) with {} bytes ran, but the prediction "
             "has {} of these collectives, with {} bytes; predict the training "
             "that runs; if that is so, report this as an error in dtensor",
             r.count, r.kind, r.axis, r.op, r.phase, r.predicted, p.count,
             p.predicted);
    DT_CHECK(r.predicted == r.counted, "train",
             "{} x {} on {} for {} ({}) ran, with {} bytes planned and {} "
             "counted; report this as an error in dtensor",
             r.count, r.kind, r.axis, r.op, r.phase, r.predicted, r.counted);
  }
}

void check_same_step(int64_t step, int64_t rank,
                     std::span<const CommEvent> first,
                     std::span<const CommEvent> now) {
  DT_CHECK(
      now.size() == first.size() && received(now) == received(first), "train",
      "on rank {}, step {} received {} bytes (without those that the data "
      "decide) and its number of collectives was {}, but the first step "
      "received {} and its number was {}; make all batches of one shape, or "
      "set check_bytes to false",
      rank, step, received(now), now.size(), received(first), first.size());
}

}  // namespace dtensor::nn
