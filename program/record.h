// SPDX-License-Identifier: Apache-2.0
// The record of a dry run, or of rank 0 of a run: the operators, what they sent
// and held, and why. docs/record.md describes its JSON.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/comm_table.h"
#include "dtensor/observer.h"
#include "dtensor/placement/cost.h"
#include "dtensor/program/record_tables.h"
#include "dtensor/tensor.h"

namespace dtensor {

class Record final : public Observer {
 public:
  using Json = nlohmann::ordered_json;
  // A rank's operators beyond this number are counted, but not recorded.
  static constexpr int64_t kMostOperators = 200'000;
  // The most candidates that a call lists, not counting the chosen one.
  static constexpr size_t kMostCandidates = 12;
  // The most candidates that all_choices() returns. On a mesh of four axes
  // there are thousands.
  static constexpr int kMostPriced = 64;

  // A record of a run on that mesh, under those prices.
  Record(std::string title, const Mesh&, CostTable);
  ~Record() override;

  void ran(RankContext&, const OpRan&) override;
  void ran(RankContext&, const KernelRan&) override;
  void sent(RankContext&) override;
  void step_begins(RankContext&,
                   std::span<const NamedTensor> parameters) override;
  void ended(RankContext&) override;
  bool reads_events(const RankContext&) const override;

  void set_title(std::string title) { title_ = std::move(title); }
  // Records at most so many operators of a rank, instead of kMostOperators.
  void keep_first(int64_t operators) { most_ = operators; }
  // Makes the run fail, with an Error that names the bound, at an operator of a
  // rank beyond this number.
  void refuse_beyond(int64_t operators) { bound_ = most_ = operators; }
  // Sets a member of the object that json() returns, whose value only the
  // calling program knows.
  void set(const std::string& member, Json value) {
    extra_[member] = std::move(value);
  }
  bool empty() const { return runs_.empty(); }
  // Drops all recorded runs.
  void discard();
  // Adds a run that consists of this move with this plan; no rank has run it.
  void add_move(const Move&, const Plan&);
  // Adds a picture to the record. `svg` is the content of an SVG file.
  void add_picture(std::string name, std::string title, std::string svg);

  // The totals of all recorded ranks together, as json() has them.
  Totals totals() const;
  Json json() const;

 private:
  struct Run;
  Run& run_of(RankContext&);
  size_t call(RankContext&, const OpRan&);
  void describe_choice(RankContext&, const OpRan&, Json& call);
  std::vector<size_t> moves_of(RankContext&, const OpRan&);
  // Adds RankContext::events [begin, end) to the run's totals. Adds those in
  // which the rank takes part to "sends" of the operator `op`, and their moves
  // to its "moves", except moves for which the operator `name` itself asked.
  void add_sends(Run&, Json& op, std::string_view name, size_t begin,
                 size_t end);
  size_t move_of(const CommEvent&);
  // Adds the moves that no operator made, from the first event that is not yet
  // recorded up to RankContext::events[end - 1].
  void add_moves(RankContext&, Run&, size_t end);
  struct State;  // of a rank after an operator
  static State state_of(const RankContext&);
  void add(Run&, Json op, const State&);

  std::string title_;
  const CostTable cost_;
  RecordTables tables_;
  const size_t mesh_;  // in `tables_`
  Json calls_ = Json::array(), parameters_ = Json::array(),
       pictures_ = Json::array(), extra_ = Json::object();
  int64_t most_ = kMostOperators;
  std::optional<int64_t> bound_;
  std::map<std::string, size_t> call_numbers_;
  std::set<std::string> parameter_names_;  // of parameters_
  // By execution and tensor: the index of the move in `tables_`.
  std::map<std::pair<std::shared_ptr<const Execution>, size_t>, size_t>
      move_numbers_;
  std::vector<std::unique_ptr<Run>> runs_;
};

}  // namespace dtensor
