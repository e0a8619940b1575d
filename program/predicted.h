// SPDX-License-Identifier: Apache-2.0
// A dry run predicts how many bytes a rank receives, and for how long the rank
// works and communicates at the prices of a CostTable. Every program that makes
// a prediction prints and writes it with these functions.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "dtensor/comm_table.h"
#include "dtensor/observer.h"
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

// Sums up the work of the operators of one or several runs, in each of them
// until ended() is called.
class WorkCounter final : public Observer {
 public:
  int64_t work_ps() const { return work_ps_; }

  using Observer::ran;
  void ran(RankContext&, const OpRan&) override;
  void ended(RankContext&) override;
  // The program that counts the work prints the events.
  bool reads_events(const RankContext&) const override;

 private:
  int64_t work_ps_ = 0;
  uint64_t ended_ = 0;  // the id of the latest run that ended
};

}  // namespace dtensor
