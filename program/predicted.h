// SPDX-License-Identifier: Apache-2.0
// A dry run predicts how many bytes a rank receives, and for how long the rank
// works and communicates at the prices of a CostTable. Every program that makes
// a prediction prints and writes it with these functions.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "dtensor/comm_table.h"
#include "dtensor/op_recorder.h"
#include "dtensor/placement/cost.h"

namespace dtensor {

// The price of a rank's operators and of its collectives. A real run can
// overlap the two, and ranks may wait for each other: neither is counted.
struct Predicted {
  int64_t bytes = 0;             // of the rank that receives the most
  int64_t work_ps = 0;           // of the operators; updates of an optimizer
                                 // are not operators
  int64_t communication_ps = 0;  // of the rank whose collectives take longest

  int64_t total_ps() const { return work_ps + communication_ps; }
};
Predicted predicted(const Totals&, const CostTable&);

// "times as if nothing overlapped, by these prices: alpha 5 us, ...".
std::string basis_of_times(const CostTable&);
// One line: "predicted time: 1.500 ms (operators 1.000 ms, communication 0.500
// ms); times as if ...".
std::string to_string(const Predicted&, const CostTable&);
// {"work_us", "communication_us", "us"}.
nlohmann::ordered_json to_json(const Predicted&);

// Sums up the work of a rank's operators. Passes every call on to the recorder
// `next`, which may be null.
class WorkCounter final : public OpRecorder {
 public:
  explicit WorkCounter(std::shared_ptr<OpRecorder> next)
      : next_(std::move(next)) {}
  int64_t work_ps() const { return work_ps_; }

  void ran(RankContext&, const OpRan&) override;
  void ran(RankContext&, const KernelRan&) override;
  void sent(RankContext&) override;
  void step_begins(RankContext&, std::span<const NamedTensor>) override;
  void ended(RankContext&) override;

 private:
  const std::shared_ptr<OpRecorder> next_;
  int64_t work_ps_ = 0;
};

}  // namespace dtensor
